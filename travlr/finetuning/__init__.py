"""The examples as training data of today's models, for trainers outside this project.

`rows` makes a row of each example: the request of `evaluate.py` and the right reply. `exports` writes rows of a dataset
as files, `streams` makes rows without end, and `torch_stream` and `datasets_stream` hand them to data loaders. The last
two need torch and `datasets`.
"""
