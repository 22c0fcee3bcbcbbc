"""Scenes -> pictures (`image.py`) and captions (`text.py`), and back. Imports only `travlr.scene` of the project.

Both modules draw from look-up tables of all kinds of objects, so that rendering a batch takes no drawing; both have a
parser, so that the audit can compare what they show with the scene.
"""
