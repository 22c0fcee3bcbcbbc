"""Matchers (`train.ask.matchers`) and generative models as scorers of a corpus: `loading`, a scorer by name;
`generative`, models that are asked; `scoring`, a scorer over a whole corpus."""
