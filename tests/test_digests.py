"""The content of the presets' datasets never changes by accident: their digests at full size, without pictures."""

from __future__ import annotations

import pytest

from render.pictures.renderer import Renderer
from travlr.formats.columns import content_digest, rows_digest
from travlr.generate import Generator
from travlr.scene import SPLITS
from travlr.tasks import config_from_dict

# (task, preset) -> the first digits of the digest with seed 0.
DIGESTS = {
    ("spatiality", "paper"): "0b4c222811dbd9be",
    ("cardinality", "paper"): "3ea49471a9c3d9ac",
    ("quantifiers", "paper"): "b78d45d8dccaf33c",
    ("comparison", "paper"): "b443a5f15f65d345",
    ("cardinality", "released"): "b2b6e6e936e0c421",
    ("quantifiers", "released"): "eaada9cbfe24d697",
    ("spatiality", "strict"): "1aa05ebdf049769b",
    ("cardinality", "strict"): "e1f6d7753d0c3302",
    ("quantifiers", "strict"): "8856acfc547791b7",
    ("comparison", "strict"): "14580fd9bc2b39f8",
    ("existence", "paper"): "92cd9b4a588d832b",
    ("attribute", "paper"): "9dbe90b829ad6899",
    ("relation", "paper"): "804a970d81e12c6a",
    ("binding", "paper"): "713c574726090530",
}
ROWS = 4000  # at a time


@pytest.mark.parametrize(("task", "preset"), DIGESTS)
def test_content_digest_of_every_preset(task: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Renderer, "pngs", lambda _, grid: [b""] * len(grid))  # the sprites' digest stands for pixels
    config = config_from_dict({"task": task, "preset": preset})
    maker = Generator(config)
    rows = {}
    for split in SPLITS:
        count = getattr(config.count, split)
        tables = (maker.table(split, start, min(start + ROWS, count)) for start in range(0, count, ROWS))
        rows[split] = sum(map(rows_digest, tables)) % (1 << 256)
    assert content_digest(rows, maker.renderer.digest())[:16] == DIGESTS[task, preset]
