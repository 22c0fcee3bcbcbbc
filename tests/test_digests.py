"""The content of presets never changes by accident: digests without pictures, of the paper and of the released
datasets at full size, of the others the first and last rows of each split."""

from __future__ import annotations

import pytest

from render.pictures.renderer import Renderer
from travlr.formats.columns import content_digest, rows_digest
from travlr.generate import Generator
from travlr.scene import SPLITS
from travlr.tasks import config_from_dict

# (task, preset) -> the first digits of the digest with seed 0.
WHOLE = {
    ("spatiality", "paper"): "0b4c222811dbd9be",
    ("cardinality", "paper"): "3ea49471a9c3d9ac",
    ("quantifiers", "paper"): "b78d45d8dccaf33c",
    ("comparison", "paper"): "b443a5f15f65d345",
    ("cardinality", "released"): "b2b6e6e936e0c421",
    ("quantifiers", "released"): "eaada9cbfe24d697",
}
ENDS = {
    ("spatiality", "strict"): "3c30b86a89ab9a89",
    ("cardinality", "strict"): "7cf46734d7c26c4d",
    ("quantifiers", "strict"): "b771a9fb77e5621e",
    ("comparison", "strict"): "f3a8c6b1274ea718",
    ("existence", "paper"): "e65ec87e4d067221",
    ("attribute", "paper"): "505ede1260ad5eb1",
    ("relation", "paper"): "6413cbea5442f246",
    ("binding", "paper"): "8275a5a125b8158c",
}


def parts(count: int, whole: bool) -> list[tuple[int, int]]:
    """The rows of a split that are looked at, some at a time: starts and stops."""
    if not whole:
        return [(0, 1000), (count - 1000, count)]
    return [(start, min(start + 4000, count)) for start in range(0, count, 4000)]


@pytest.mark.parametrize(("task", "preset"), [*WHOLE, *ENDS])
def test_content_digest_of_every_preset(task: str, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Renderer, "pngs", lambda _, grid: [b""] * len(grid))  # the sprites' digest stands for pixels
    config, whole = config_from_dict({"task": task, "preset": preset}), (task, preset) in WHOLE
    maker = Generator(config)
    rows = {}
    for split in SPLITS:
        tables = (maker.table(split, *part) for part in parts(getattr(config.count, split), whole))
        rows[split] = sum(map(rows_digest, tables)) % (1 << 256)
    assert content_digest(rows, maker.renderer.digest())[:16] == (WHOLE | ENDS)[task, preset]
