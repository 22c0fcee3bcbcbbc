"""The audit of a dataset: every promise about its rows and splits, checked from the files.

`rows.py` checks a single row and its picture; `checks.py` examines all shards, in several processes, and joins what was
counted into the lines of the report. `__main__.py` is the command. These share no code with the generator, so that two
workings are compared.

One more check makes every shard again with the generator and compares: it finds what differs from the generator's
output, while the others find mistakes of the generator itself.
"""
