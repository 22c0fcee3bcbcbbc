"""Models as scorers, functions (images, texts) -> scores. To read in this order: `base`, a scorer and its parts;
`loading`, a scorer by name; `families`, the models of `transformers`, with `hub` (loading), `contrastive`, `generative`
and `vision_cache`; `travlr_models`, our own four; `models`, those of a run; `scoring`, a scorer over a whole corpus."""
