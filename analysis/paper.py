"""The numbers that the TraVLR paper prints, which tables show beside ours.

Scores are macro-F1 in percent, differences are in points. All of the paper's runs started from pretrained weights. Its
underlining (above random) and bold (best of a column) are missing, as the copy that was read has neither. `paper.csv`
has the scores of Tables 2 and 10 to 14, of appendix C and of section 5.2; and, as `score`, hours of fine-tuning (Table
6) and millions of trainable parameters (Table 8). Differences are from test_ind; in Table 13 from the models trained in
image+caption; in Table 14, which has no scores, from the models trained on the part of the data in one setting.
`seeds`: how many runs converged (Tables 2, 13, 14) or were averaged. `size`: of the train split in Tables 6 and 10 to
12, and a part of it in appendix C.
"""

from __future__ import annotations

import csv
import math
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from train.results.columns import TEST_SPLITS
from travlr.scene import SPLITS as ALL_SPLITS
from travlr.tasks import PAPER

LETTERS = dict(zip(PAPER, "SCQN", strict=True))  # the paper's abbreviations of its tasks
LEGEND = "S: spatiality, C: cardinality, Q: quantifiers, N: numerical comparison"
BIMODAL = ("visualbert", "uniter", "lxmert", "albef")
TEXT_ONLY = ("bert", "roberta")
MODEL_NAMES = {
    "visualbert": "VisualBERT",
    "uniter": "UNITER",
    "lxmert": "LXMERT",
    "albef": "ALBEF",
    "bert": "BERT",
    "roberta": "RoBERTa",
}
SPLITS = TEST_SPLITS[::-1]  # in the order of the paper's columns


@dataclass(frozen=True)
class Published:
    """A cell of a table; NaN, and None for `seeds`, where nothing is printed."""

    score: float = math.nan
    difference: float = math.nan
    deviation: float = math.nan
    _: KW_ONLY
    seeds: int | None = None


def _read() -> dict[tuple[str, ...], Published]:
    cells = {}
    with open(Path(__file__).with_suffix(".csv"), encoding="utf-8", newline="") as file:
        for *key, score, difference, deviation, seeds in list(csv.reader(file))[1:]:
            numbers = [float(text or "nan") for text in (score, difference, deviation)]
            cells[tuple(key)] = Published(*numbers, seeds=int(seeds) if seeds else None)
    return cells


_PUBLISHED = _read()


def published(
    table: str, task: str, model: str, setting: str, test: str, split: str = "test_ood", *, size: str = "",
    controlled: str = "",
) -> Published:  # fmt: skip
    """The cell of a model trained in `setting`. controlled: `True` or `False`, in Tables 8 and 10 to 12."""
    return _PUBLISHED.get((table, task, model, controlled, size, setting, test, split), Published())


# Table 3: examples whose answer is true and false.
TABLE_3 = {
    task: dict(zip(ALL_SPLITS, counts, strict=True))
    for task, counts in {
        "spatiality": ((15903, 16097), (4979, 5021), (5064, 4936), (9918, 10082)),
        "cardinality": ((4040, 3960), (4927, 5073), (5043, 4957), (10079, 9921)),
        "quantifiers": ((4006, 3994), (5003, 4997), (5030, 4970), (10029, 9971)),
        "comparison": ((4088, 3912), (4926, 5074), (4992, 5008), (10033, 9967)),
    }.items()
}


# Table 9: (setting first trained in, then trained in on 200 examples, task, model, seed). No scores are printed;
# section 4.2 says that none of them came above random.
TABLE_9 = (
    ("image", "caption", "spatiality", "uniter", 0),
    ("image", "caption", "spatiality", "lxmert", 0),
    ("image", "caption", "quantifiers", "visualbert", 2),
    ("image", "caption", "quantifiers", "uniter", 2),
    ("image", "caption", "quantifiers", "lxmert", 2),
    ("caption", "image", "spatiality", "uniter", 0),
    ("caption", "image", "spatiality", "albef", 2),
    ("caption", "image", "quantifiers", "visualbert", 2),
    ("caption", "image", "quantifiers", "uniter", 2),
    ("caption", "image", "quantifiers", "albef", 2),
)
