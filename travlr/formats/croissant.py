"""Croissant metadata of a dataset (mlcommons.org/croissant/1.0): what its files and columns are, for programs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from travlr.formats.columns import COLUMNS, IMAGE

_OWN = """citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset
jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source subField
transform"""
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _OWN.split()},
}
TYPES = {pa.string(): "sc:Text", pa.bool_(): "sc:Boolean", pa.int32(): "sc:Integer", IMAGE: "sc:ImageObject"}
PARQUET = "application/x-parquet"


def croissant_text(manifest: dict[str, Any], name: str, citation: str) -> str:
    """The text of croissant.json, which stands beside the Parquet files. citation: "" for none."""
    licence = "https://www.apache.org/licenses/LICENSE-2.0" if manifest["config"] else ""  # data of others keep theirs
    about = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": "Scenes as pictures and as captions with the same content, and queries that are true or false.",
        "version": f"{manifest['format_version']}.0.0+{manifest['content_digest'][:16]}",
        **({"citeAs": citation} if citation else {}),
        **({"license": licence} if licence else {}),
        "distribution": [
            *({"@type": "cr:FileSet", "@id": f"{split}-files", "name": f"{split}-files", "encodingFormat": PARQUET,
               "includes": f"{split}-*.parquet"} for split in manifest["splits"]),
            *({"@type": "cr:FileObject", "@id": file["name"], "name": file["name"], "encodingFormat": PARQUET,
               "contentUrl": file["name"], "contentSize": f"{file['bytes']} B", "sha256": file["sha256"]}
              for file in manifest["files"]),
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": split, "name": split,
             "field": [_field(split, column, kind) for column, kind in COLUMNS.items()]}
            for split in manifest["splits"]
        ],
    }  # fmt: skip
    return json.dumps(about, indent=1) + "\n"


def _field(split: str, column: str, kind: pa.DataType) -> dict[str, Any]:
    """A column as a field; a list of structures has a field below it for each of their names."""
    about = {"@type": "cr:Field", "@id": f"{split}/{column}", "name": f"{split}/{column}"}
    source: dict[str, Any] = {"fileSet": {"@id": f"{split}-files"}, "extract": {"column": column}}
    if kind == IMAGE:
        source["transform"] = {"jsonPath": "bytes"}
    if not pa.types.is_list(kind):
        return about | {"dataType": TYPES[kind], "source": source}
    if not pa.types.is_struct(kind.value_type):
        return about | {"dataType": TYPES[kind.value_type], "repeated": True, "source": source}
    parts = [
        {"@type": "cr:Field", "@id": f"{split}/{column}/{part.name}", "name": f"{split}/{column}/{part.name}",
         "dataType": TYPES[part.type], "source": source | {"transform": {"jsonPath": part.name}}}
        for part in kind.value_type
    ]  # fmt: skip
    return about | {"repeated": True, "subField": parts}
