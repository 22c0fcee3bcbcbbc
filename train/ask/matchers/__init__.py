"""Matchers, which score a picture and a sentence. To read in this order: `base`, the steps of a model; `families`, the
models of `transformers`; `published`, VisualBERT, UNITER, LXMERT and ALBEF with published weights; `loading`, a
matcher by name."""
