"""The styles of pictures, one file each: a function that draws everything that the pictures of a world consist of.

Read `look.py` first, which says what a style draws, then `plain.py`, the default. `renderer.py` makes pictures of it.
`render/image.py` has the registry.
"""
