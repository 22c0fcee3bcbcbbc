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

import functools
from pathlib import Path

import pandas as pd

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
KEYS = ("table", "task", "model", "controlled", "size", "setting", "test_setting", "split")


@functools.cache
def _numbers() -> pd.DataFrame:
    frame = pd.read_csv(Path(__file__).with_suffix(".csv"), dtype=dict.fromkeys(KEYS, "str"), keep_default_na=False,
                        na_values={name: [""] for name in ("score", "difference", "deviation", "seeds")})  # fmt: skip
    return frame.rename(columns={"score": "mean"})


def published(table: str) -> pd.DataFrame:
    """A row for each cell of a table: `KEYS`, mean, difference, deviation, and seeds; NaN where nothing is printed."""
    numbers = _numbers()
    return numbers[numbers["table"] == table].reset_index(drop=True)


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
