"""The audit of a dataset: every promise about its rows, splits and files, checked from the files alone.

`examine.py` reads the manifest and examines one piece of the dataset after the other, in several processes; `rows.py`
checks a single row and `pictures.py` its picture; `checks.py` joins what was counted into the lines of the report.
`__main__.py` is the command. No code here is used to generate datasets, so that two workings are compared.
"""
