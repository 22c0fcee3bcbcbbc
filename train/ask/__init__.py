"""Pretrained models, asked about datasets: chat models of `transformers`, of servers, finished runs, matchers.

Read `config` (the settings of `evaluate.py`) first, then `evaluation` (the whole way from a dataset to results), then
the sources of replies: `local`, `server`, `trained` and `matchers`. `vl_checklist` has the interface of its toolbox.
The files of an evaluation are in `train.results`: `answers`, `metrics` and `evaluation_table`.
"""
