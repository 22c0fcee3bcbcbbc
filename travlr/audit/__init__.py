"""The audit of a dataset: every promise about its rows, splits and files, checked from the files alone.

`examine.py` reads the manifest and examines one piece of the dataset after the other, in several processes; `rows.py`
checks a single row and `pictures.py` its picture; `checks.py` joins what was counted into the lines of the report.
`__main__.py` is the command. Nothing of these is used to generate datasets, so that two workings are compared.

`regenerate.py` is one more check beside them: it makes the dataset again with the generator and compares, with
`structure.py` for files of other versions; `proof.py` writes its lines of the report. It finds what differs from the
generator's output, while the others find mistakes of the generator itself.
"""
