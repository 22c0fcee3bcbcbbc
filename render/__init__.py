"""Scenes -> pictures (`image.py`) and captions (`text.py`), and back. Imports only `travlr.scene` of the project.

Both have several styles, which lie in `pictures/` and `captions/`. All of them draw from look-up tables of all kinds of
objects, so that rendering a batch takes no drawing; all have a reader, so that the audit can compare what they show
with the scene. `shapes.py` has the shapes and colours, `png.py` the picture files.
"""
