"""Today's vision-language models: chat models of `transformers`, and of servers, asked about datasets.

Read `config` (the settings of `evaluate.py`) first, then `evaluation` (the whole way from a dataset to results), then
the sources of replies: `local`, `server` and `trained`. The probes use `chat`, too. The files of an evaluation are
in `train.results`: `answers`, `metrics` and `evaluation_table`.
"""
