"""The numbers that the TraVLR paper prints, as data, to stand beside ours and labelled as the paper's.

Scores are macro-F1 in percent, differences in points of it. All of the paper's runs started from pretrained weights.
Its underlining (above random) and bold (best of a column) are not here: the copy this was taken from has lost both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from train.results.columns import TEST_SETTINGS, TEST_SPLITS
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
    """A cell: a score, its difference from what the table names, its standard deviation, and how many runs converged
    (Tables 2, 13, 14) or were averaged (10 to 12); None for what is not printed."""

    score: float | None = None
    difference: float | None = None
    deviation: float | None = None
    seeds: int | None = None


def _rows(text: str) -> list[tuple[str, str, list[float]]]:
    """Task, model and numbers of each line."""
    models = {name: model for model, name in MODEL_NAMES.items()}
    tasks = {letter: task for task, letter in LETTERS.items()}
    found = []
    for line in text.strip().splitlines():
        task, model, numbers = line.split(" ", 2)
        found.append((tasks[task], models[model], [float(number) for number in re.findall(r"[+-]?[\d.]+", numbers)]))
    return found


# Table 2: for each training setting three test settings, each the score on test_ood and its difference from test_ind,
# and how many of three seeds converged.
_TABLE_2 = """
S VisualBERT 65.94-1.02 48.92-0.23 52.47+0.19 3 49.40+0.09 93.55-6.45 93.46-6.54 2 49.34+0.31 70.99-1.59 71.39-1.65 3
S UNITER 89.67+0.96 44.36+0.48 46.15-0.19 3 37.66+0.54 92.31-7.67 92.23-7.74 1 50.15+0.17 70.75+1.24 71.17+0.40 1
S LXMERT 99.46-0.38 38.87-0.27 48.82+0.33 3 33.52+0.47 33.52+0.47 33.52+0.47 0 33.52+0.47 33.52+0.47 33.52+0.47 0
S ALBEF 48.28+0.10 44.54-0.26 44.85-0.18 0 48.75+0.52 98.42-1.58 98.42-1.58 1 48.56+0.94 93.66-6.34 93.31-6.69 2
C VisualBERT 77.41+1.11 33.14+0.01 46.94-0.53 3 46.63-0.03 99.99+0.08 99.99+0.16 3 45.20-1.41 99.94+0.10 99.94+0.18 3
C UNITER 77.12+0.09 42.36-0.35 48.55+0.23 3 41.97-0.95 98.96+1.82 98.99+0.82 3 42.36-1.97 98.48+0.11 98.83+1.99 3
C LXMERT 82.90-1.66 33.16+0.02 43.79-0.95 3 45.23-0.21 60.02-18.88 60.10-18.98 3 50.72+0.34 55.00-1.60 55.26-7.83 3
C ALBEF 59.19+0.43 32.67-0.05 53.31-0.44 2 41.58-3.24 99.61+0.17 99.61+0.17 3 43.17-2.33 99.61+0.26 99.61+0.26 3
Q VisualBERT 86.59-2.73 45.09+1.16 60.93-2.25 3 49.22+0.63 99.99-0.01 99.99-0.01 3 49.51-0.16 99.98-0.01 99.98-0.02 3
Q UNITER 95.14-1.10 48.89+0.62 53.99-0.13 3 48.64-0.99 99.42-0.41 99.36-0.44 3 48.07-1.14 97.85+2.11 98.87+1.43 3
Q LXMERT 96.72-0.94 34.87-0.27 39.94-0.69 3 43.33-0.98 92.91+6.58 90.65+7.02 3 48.95-0.14 33.93-0.01 51.02+0.17 0
Q ALBEF 66.19-0.19 43.88+0.21 54.78-1.32 3 48.27+0.19 99.98+0.12 99.98+0.12 3 47.73+0.19 99.98+0.17 99.97+0.17 3
N VisualBERT 58.75-14.16 40.27+1.26 53.13-2.81 3 49.62-0.42 99.77-0.06 99.75+0.00 3 51.10+0.20 99.79-0.11 99.79-0.10 3
N UNITER 63.08-22.07 45.52+0.81 52.97-0.62 3 49.32-0.59 69.43-30.34 68.77-30.91 3 46.78-1.03 64.80-34.71 63.88-35.92 3
N LXMERT 62.56-21.57 45.85-0.34 46.62+0.59 3 48.62-0.94 53.10-46.30 53.15-46.21 3 50.68+2.31 57.45-26.77 56.81-41.86 2
N ALBEF 41.93-4.30 41.23-1.27 33.88-3.13 0 48.00-0.82 97.96-1.88 97.96-1.88 3 47.24-1.50 98.93-0.91 98.93-0.91 3
"""

TABLE_2 = {
    (task, model, train, test): Published(
        numbers[7 * i + 2 * j], numbers[7 * i + 2 * j + 1], seeds=int(numbers[7 * i + 6])
    )
    for task, model, numbers in _rows(_TABLE_2)
    for i, train in enumerate(TEST_SETTINGS)
    for j, test in enumerate(TEST_SETTINGS)
}

# Table 13, trained in mixed: test_ood then test_ind in three test settings, each with its difference from the models
# trained in image+caption; and how many seeds converged.
_TABLE_13 = """
S VisualBERT 50.61+1.28 70.03-0.96 69.26-2.12 50.88+1.85 72.26-0.32 71.94-1.10 3
S UNITER 64.24+14.09 50.03-20.72 49.70-21.47 63.53+13.55 49.70-19.81 50.32-20.45 1
S LXMERT 33.27-0.24 33.27-0.24 33.27-0.24 33.43+0.38 33.43+0.38 33.43+0.38 0
S ALBEF 48.25-0.31 96.12+2.46 96.10+2.79 48.14+0.52 99.99-0.01 99.99-0.01 3
C VisualBERT 65.07+19.87 99.86-0.08 99.85-0.10 65.01+18.39 99.53-0.31 99.41-0.35 3
C UNITER 66.01+23.65 97.86-0.62 97.40-1.44 67.61+23.28 94.57-3.80 94.01-2.83 3
C LXMERT 60.43+9.71 54.03-0.97 54.35-0.91 64.42+14.04 76.80+20.20 73.63+10.55 3
C ALBEF 47.67+4.51 99.21-0.41 99.16-0.45 48.77+3.28 98.30-1.06 98.21-1.14 3
Q VisualBERT 66.34+16.83 99.01-0.97 99.01-0.96 65.35+15.68 98.43-1.56 98.37-1.63 3
Q UNITER 75.04+26.98 93.41-4.44 93.82-5.04 73.18+23.97 88.14-7.60 88.43-9.00 3
Q LXMERT 64.72+15.78 53.23+19.30 50.13-0.90 62.36+13.27 69.16+35.22 67.06+16.21 3
Q ALBEF 51.92+4.19 99.88-0.09 99.87-0.09 51.68+4.14 99.18-0.62 99.12-0.68 3
N VisualBERT 59.32+8.22 92.68-7.10 92.79-7.00 61.54+10.64 99.62-0.27 99.64-0.26 3
N UNITER 61.79+15.01 56.92-7.88 56.85-7.03 76.65+28.84 99.17-0.34 99.08-0.71 3
N LXMERT 58.81+8.13 56.07-1.39 56.57-0.24 62.17+13.80 84.17-0.05 79.42-19.24 3
N ALBEF 42.80-4.44 88.82-10.11 88.83-10.10 47.34-1.40 99.62-0.22 99.62-0.22 3
"""

# Table 14: the same models' scores less those of models trained on the part of the data in one setting.
_TABLE_14 = """
S VisualBERT +1.36 +19.07 -21.95 +1.28 +21.66 -28.05 3
S UNITER -27.24 +0.37 -0.66 -24.80 -1.38 +0.42 1
S LXMERT -65.73 -16.15 -16.97 -65.59 -16.47 -17.65 0
S ALBEF +0.16 +47.09 +47.27 -0.56 +50.87 +50.89 3
C VisualBERT +6.49 +11.41 +1.82 +4.86 +12.50 +4.48 3
C UNITER +1.52 +10.46 +2.02 +3.27 +11.35 +4.31 3
C LXMERT -2.97 +4.08 +3.85 -0.11 +19.47 +24.46 3
C ALBEF -9.47 +12.29 +0.47 -8.50 +9.64 +1.83 3
Q VisualBERT +9.18 +44.72 +13.31 +8.70 +45.03 +15.75 3
Q UNITER +12.15 +43.48 -2.30 +8.44 +36.99 -2.73 3
Q LXMERT +31.32 +19.83 +0.15 +28.89 +35.69 +17.93 3
Q ALBEF +1.18 +7.37 +2.14 +0.81 +13.61 +2.92 3
N VisualBERT +6.73 +38.46 +17.75 +0.09 +43.60 +1.18 3
N UNITER +0.10 -8.21 -3.95 +4.69 +5.98 +0.26 3
N LXMERT -0.59 -2.77 -1.28 +1.54 +18.20 +11.76 3
N ALBEF -2.75 -5.73 +28.78 -0.61 +5.29 +21.15 3
"""

TABLE_13 = {
    (task, model, split, test): Published(numbers[6 * i + 2 * j], numbers[6 * i + 2 * j + 1], seeds=int(numbers[-1]))
    for task, model, numbers in _rows(_TABLE_13)
    for i, split in enumerate(SPLITS)
    for j, test in enumerate(TEST_SETTINGS)
}
TABLE_14 = {
    (task, model, split, test): Published(difference=numbers[3 * i + j], seeds=int(numbers[-1]))
    for task, model, numbers in _rows(_TABLE_14)
    for i, split in enumerate(SPLITS)
    for j, test in enumerate(TEST_SETTINGS)
}

# Table 3: examples whose answer is true and false.
TABLE_3 = {
    "spatiality": {
        "train": (15903, 16097),
        "validation": (4979, 5021),
        "test_ind": (5064, 4936),
        "test_ood": (9918, 10082),
    },
    "cardinality": {
        "train": (4040, 3960),
        "validation": (4927, 5073),
        "test_ind": (5043, 4957),
        "test_ood": (10079, 9921),
    },
    "quantifiers": {
        "train": (4006, 3994),
        "validation": (5003, 4997),
        "test_ind": (5030, 4970),
        "test_ood": (10029, 9971),
    },
    "comparison": {
        "train": (4088, 3912),
        "validation": (4926, 5074),
        "test_ind": (4992, 5008),
        "test_ood": (10033, 9967),
    },
}

# Table 6: hours of fine-tuning, by the size of the train split, model and setting (None: not trained in it).
TABLE_6: dict[tuple[str, str], tuple[float | None, float | None, float | None]] = {
    ("32k", "uniter"): (15, 27, 27),
    ("32k", "visualbert"): (15, 27, 27),
    ("32k", "lxmert"): (25.5, 36.5, 36.5),
    ("32k", "albef"): (38, 38, 38),
    ("32k", "bert"): (None, 12, None),
    ("32k", "roberta"): (None, 12, None),
    ("8k", "uniter"): (3.5, 7, 7),
    ("8k", "visualbert"): (5, 7, 7),
    ("8k", "lxmert"): (6.5, 10.5, 10.5),
    ("8k", "albef"): (8, 9, 9),
    ("8k", "bert"): (None, 3, None),
    ("8k", "roberta"): (None, 3, None),
}
CARBON = {("32k", "albef"): 15.24}  # kg of CO2-equivalent, of the longest runs (section B.3)

# Table 8: millions of trainable parameters, of (model, whether it has the controlled architecture).
TABLE_8 = {
    ("visualbert", False): 112.64,
    ("uniter", False): 111.08,
    ("lxmert", False): 209.12,
    ("albef", False): 290.34,
    ("bert", False): 108.31,
    ("roberta", False): 124.65,
    ("visualbert", True): 114.02,
    ("uniter", True): 113.63,
    ("lxmert", True): 210.50,
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

# Tables 10 to 12: (size of the train split, model, whether controlled) -> mean and standard deviation on test_ood, on
# test_ind, and how many seeds. 10: spatiality in image; 11: cardinality in image; 12: cardinality in caption.
_CONTROLLED: dict[str, dict[tuple[str, str, bool], tuple[float, float | None, float, float | None, int]]] = {
    "table10": {
        ("32k", "lxmert", True): (99.30, None, 99.67, None, 1),
        ("32k", "uniter", True): (99.67, None, 99.88, None, 1),
        ("32k", "visualbert", True): (98.31, None, 98.92, None, 1),
        ("32k", "lxmert", False): (99.46, 0.47, 99.84, 0.13, 3),
        ("32k", "uniter", False): (89.67, 14.43, 88.71, 14.58, 3),
        ("32k", "visualbert", False): (65.94, 6.63, 66.96, 6.05, 3),
        ("8k", "lxmert", True): (62.28, 3.16, 64.17, 3.73, 3),
        ("8k", "uniter", True): (94.46, 1.19, 93.18, 1.50, 3),
        ("8k", "visualbert", True): (60.73, 2.39, 60.69, 2.90, 3),
        ("8k", "lxmert", False): (99.02, None, 99.00, None, 1),
        ("8k", "uniter", False): (88.33, None, 91.48, None, 1),
        ("8k", "visualbert", False): (49.60, None, 49.25, None, 1),
    },
    "table11": {
        ("8k", "lxmert", True): (73.38, 0.56, 79.30, 0.39, 3),
        ("8k", "uniter", True): (85.91, 5.13, 87.40, 3.36, 3),
        ("8k", "visualbert", True): (81.67, 4.46, 83.90, 1.66, 3),
        ("8k", "lxmert", False): (82.90, 3.86, 84.56, 2.71, 3),
        ("8k", "uniter", False): (77.12, 5.04, 77.03, 1.44, 3),
        ("8k", "visualbert", False): (77.41, 0.61, 76.30, 0.46, 3),
    },
    "table12": {
        ("8k", "lxmert", True): (97.87, 0.85, 99.44, 0.03, 3),
        ("8k", "uniter", True): (98.73, 1.25, 99.60, 0.11, 3),
        ("8k", "visualbert", True): (99.40, 0.03, 98.50, 0.11, 3),
        ("8k", "lxmert", False): (60.02, 4.76, 78.90, 6.83, 3),
        ("8k", "uniter", False): (98.96, 0.30, 97.14, 0.83, 3),
        ("8k", "visualbert", False): (99.99, 0.01, 99.91, 0.06, 3),
    },
}
CONTROLLED = {
    table: {
        (*key, split): Published(numbers[2 * i], deviation=numbers[2 * i + 1], seeds=numbers[4])
        for key, numbers in cells.items()
        for i, split in enumerate(SPLITS)
    }
    for table, cells in _CONTROLLED.items()
}

# Appendix C draws its scores; those that are printed somewhere: (task, model, setting, part of the train split) on
# test_ood (the text of appendix C; Table 10, with its difference from test_ind).
SUBSETS = {
    ("cardinality", "roberta", "caption", 0.125): Published(86.76),
    ("spatiality", "lxmert", "image", 0.25): Published(99.02, 99.02 - 99.00),
    ("spatiality", "uniter", "image", 0.25): Published(88.33, 88.33 - 91.48),
    ("spatiality", "visualbert", "image", 0.25): Published(49.60, 49.60 - 49.25),
}

# Section 5.2, encoder frozen: the only scores given, above random and in image; all others are not above random.
FROZEN = {
    ("spatiality", "lxmert", "image"): Published(52.29, 52.29 - 52.67),
    ("cardinality", "lxmert", "image"): Published(56.39, 56.39 - 60.88),
}
