"""Models as scorers, functions (images, texts) -> scores. To read in this order: `base`, the steps of a model;
`loading`, a scorer by name; `contrastive` and `generative`, the models of `transformers`;
`travlr_models`, our own four; `scoring`, a scorer over a whole corpus; `attention`, heat maps of a model."""
