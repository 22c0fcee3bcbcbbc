"""The styles of captions, one file each: a class that writes the captions of a world, and parses them.

Read `style.py` first, which has the interface, then `sentences.py`, the default. `render/text.py` has the registry.
"""
