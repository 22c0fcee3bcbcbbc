"""Today's vision-language models: chat models of `transformers`, and of servers, asked about datasets.

Read `config` (the settings of `evaluate.py`) first, then `evaluation` (the whole way from a dataset to results), then
where replies come from: `local`, `server` and `trained`. `chat` is shared with the probes. What an evaluation
leaves on disk is in `train.results`: `answers`, `measures` and `evaluation_table`.
"""
