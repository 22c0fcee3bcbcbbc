"""Pages that are filled without Jinja2, until the report is one Jinja2 page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import travlr
from travlr.files import replace_file

SHARED = Path(travlr.__file__).with_name("page.html")


def fill_template(template: Path, data: Any, **values: str) -> str:
    """A page from its template, filled with what all pages share, values in HTML, and data for its script."""
    text = insert_shared(template)
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    values["script_hash"] = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values["data"] = embed_json(data)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def insert_shared(template: Path) -> str:
    """A template with the tags of the head, the style and the script that all pages share."""
    text, shared = (path.read_text(encoding="utf-8") for path in (template, SHARED))
    for part in ("head", "style", "script"):
        inside = shared.partition(f"<{part}>")[2].partition(f"</{part}>")[0].strip("\n")
        text = text.replace(f"{{{{shared_{part}}}}}", inside)
    return text


def embed_json(value: Any) -> str:
    """JSON in which no character means anything to HTML."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def write_file(out: Path, content: str | bytes) -> None:
    """Write a page or a picture atomically. Raises `ValueError` where the file cannot be written."""
    try:
        with replace_file(out) as path:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ValueError(f"{out}: cannot be written ({error.strerror}); choose another file with --out") from None
