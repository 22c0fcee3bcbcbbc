"""Examples as arrays, and the batches made of them.

Read `inputs` (the batch that a model takes) first, then `text` (tokens), `pixels` and `auxiliary` (auxiliary targets),
which `examples` joins. `sources` reads examples from a dataset or streams them; `batching` orders them.
"""
