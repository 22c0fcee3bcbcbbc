"""How datasets lie on disk: one file for each format, and the registry of them.

Read `base.py` first: what a format is, and the parts in which a dataset is written. Then `parquet.py`, the default;
`imagefolder.py`, `webdataset.py` and `original.py` hold the same tables in other files. `writing.py` writes a dataset
part by part and can be stopped at any moment; `card.py` writes its README.
"""

from __future__ import annotations

from travlr.formats.base import Layout
from travlr.formats.imagefolder import ImageFolder
from travlr.formats.original import Original
from travlr.formats.parquet import Parquet
from travlr.formats.webdataset import WebDataset

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (Parquet(), ImageFolder(), WebDataset(), Original())}
