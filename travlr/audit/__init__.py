"""The audit of a dataset: every promise about its rows and splits, checked from the files.

`examine.py` reads the manifest and examines one shard after the other, in several processes; `rows.py` checks a single
row and `pictures.py` its picture; `checks.py` joins what was counted into the lines of the report. `__main__.py` is the
command. These share no code with the generator, so that two workings are compared.

One more check makes every shard again with the generator and compares: it finds what differs from the generator's
output, while the others find mistakes of the generator itself.
"""
