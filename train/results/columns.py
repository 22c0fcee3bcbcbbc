"""The names that results share: columns, test settings, splits and baselines, for training and analysis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from train.config import SETTINGS
from travlr.scene import SPLITS

Row = dict[str, Any]  # of results: the keys of `RESULT_COLUMNS`; None for an unknown value

TEST_SETTINGS = tuple(setting for setting in SETTINGS if setting != "mixed")  # mixed exists in training only
TEST_SPLITS = tuple(split for split in SPLITS if split.startswith("test_"))

# Baseline -> what its rule sees. The column `baseline_NAME` is its macro-F1, `baseline_NAME_accuracy` its accuracy. The
# last is the best of the rules in `travlr.baselines`.
BASELINES = {"query": "query", "query_objects": "query and number of objects", "unbound": "best unbound"}

RESULT_COLUMNS: dict[str, type] = {
    "run": str,  # hash of the config
    "name": str,  # of the run's folder
    "experiment": str,
    "model": str,
    "size": str,
    "setting": str,  # trained in
    "task": str,
    "seed": int,
    "test_setting": str,
    "split": str,
    "macro_f1": float,  # percent, as are the next five
    "accuracy": float,
    "f1_true": float,
    "f1_false": float,
    "interval_low": float,  # 95 %, of macro_f1
    "interval_high": float,
    "p_value": float,
    "above_random": bool,
    "test": str,  # the significance test of above_random
    **{f"baseline_{name}": float for name in BASELINES},  # percent
    **{f"baseline_{name}_accuracy": float for name in BASELINES},
    "couples_right": float,  # percent of couples with both answers right
    "couples_low": float,  # 95 %, of couples_right
    "couples_high": float,
    "ranked": float,  # percent of items whose true sentences score higher than its false ones; of answers true or false
    "ranked_low": float,  # 95 %, of ranked
    "ranked_high": float,
    "both_ranked": float,  # percent of couples of two items, both ranked right: Winoground's text score
    "image_score": float,  # percent of couples with each sentence's own picture scored higher, as Winoground's
    "group_score": float,  # percent of couples with both
    "groups": str,  # JSON: first item of the pair -> its scores
    "examples": int,
    "parameters": int,  # trainable
    "weights": str,  # "random", or the checkpoint's name and SHA-256
    "regions": str,
    "hardware": str,
    "precision": str,
    "steps": int,
    "train_examples": int,  # labelled
    "unlabelled_examples": int,  # pairs of image and caption without an answer, of consistency
    "train_seconds": float,
    "evaluate_seconds": float,
    "dataset": str,  # content digest
    "versions": str,  # JSON
    "commit": str,  # of the code, "-dirty" where files differed from it
    "created": str,  # UTC, ISO 8601
    "config": str,  # JSON
    "unparsed": float,  # percent of replies without an answer, as are the next three
    "chance": float,  # accuracy of the best constant answer; of a coin, for training runs
    "bias": float,  # by how much `bias_answer` is given more often than it is right, in points
    "bias_answer": str,
    # Of evaluations (`evaluate.py`) alone; None in the rows of training runs.
    "origin": str,  # zero-shot, adapter or trained
    "form": str,  # the answer form
    "prompt": str,
    "wording": str,  # version of travlr/questions/wording.toml
    "answers": str,  # generate or likelihood
    "image_style": str,
    "caption_style": str,
    "calibrated_accuracy": float,  # percent, with answers=likelihood, after batch calibration
    "objects": str,  # JSON: of form=read, objects found, missed, invented, misplaced, miscoloured, misshaped
    "input_tokens": int,
    "output_tokens": int,
}


def in_order(values: Iterable[str], order: Iterable[str]) -> list[str]:
    """The distinct values: first those in `order`, in its order, then the others by the alphabet."""
    ranks = {value: rank for rank, value in enumerate(order)}
    return sorted(set(values), key=lambda value: (ranks.get(value, len(ranks)), value))


def main_test_setting(setting: str) -> str:
    """The test setting that belongs to a training setting: the same one, and image+caption for mixed."""
    return "image+caption" if setting == "mixed" else setting
