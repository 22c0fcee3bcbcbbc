"""What runs leave on disk, without torch: training writes it and analysis reads it.

Read `columns` (the names that all share), `scores` and `baselines` (numbers of predictions), `predictions` and `store`
(files), then `tables` (results as text). `answers`, `metrics` and `evaluation_table` are of `evaluate.py`.
`provenance` says on which hardware and with which versions a run was made.
"""
