"""Corpora of items, each a picture with true and false sentences. To read in this order: `items`; `checklist` and
`predicate_noun`, the files of the two published studies; `selection`,
samples of a corpus."""
