"""Baselines: rules that answer queries without reasoning (`travlr.baselines.rules`), scored on every split.

A rule is fitted on the train split, as a decision tree (scikit-learn), and scored on validation, test_ind and test_ood.
The score of a model means reasoning only where it exceeds that of the rules.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from travlr.baselines.arrays import SplitArrays, read_split, split_arrays, word_lists
from travlr.baselines.blind import score_blind
from travlr.baselines.rules import RULES, Rule, query_features
from travlr.baselines.scores import RuleScore
from travlr.corpora import is_corpus
from travlr.dataset import open_dataset
from travlr.files import replace_file
from travlr.formats.manifest import read_manifest
from travlr.metrics import couples_in_order, couples_right, macro_f1, proportion
from travlr.scene import SPLITS
from travlr.tasks import task_class

FILE = "baselines.json"  # in the dataset's folder
DEPTH = 12  # of a decision tree
VERSION = 5  # of the rules; scores of another version are computed again
LEAST = 20  # examples in a leaf of a decision tree
ALL = "all unbound features"  # but those of mentions and ink, whose many values make trees weaker
TOGETHER = "all unbound features, mentions and ink"
GRAMS = "words, pairs and triples of words"
TEXTS = 8_000  # of each split, for the linear rule on texts


def score_baselines(folder: str | Path) -> list[RuleScore]:
    """Fit every unbound rule on train and score it on the other splits. The last two are trees on all their features.
    Of a corpus: blind rules (`travlr.baselines.blind`).

    Raises `ValueError` if the folder is not a dataset, or lacks its train split.
    """
    dataset = open_dataset(folder)
    if is_corpus(dataset):
        return score_blind(dataset)
    if "train" not in dataset.splits:
        raise ValueError(f"{folder}: has no train split, on which baselines are fitted")
    tables = {split: read_split(dataset, split) for split in SPLITS if split in dataset.splits}
    words = word_lists(tables["train"])
    task = task_class(dataset.task)
    splits = {split: split_arrays(table, words) for split, table in tables.items()}
    nouns, decided_by = splits["train"].nouns.shape[1], task.decided_by
    if decided_by in ("count", "counts") and np.all(splits["train"].nouns >= 0, axis=2).any():
        decided_by = "binding"  # nouns of two words: the counts of single words do not decide
    rules = [r for r in RULES if decided_by not in r.bound_for and (r.noun or 0) < nouns]
    scores = [score for rule in rules for score in _scores(rule.name, rule.blind, [rule], splits)]
    scores += _scores(GRAMS, "which of them the query asks about", [], splits)
    # Groups of rules whose joint features are unbound, too: in a task that compares nouns, one group for each noun.
    every = [rule for rule in rules if decided_by not in rule.alone_for and not rule.counts]
    for name, joint in ((ALL, [rule for rule in every if not rule.boosted]), (TOGETHER, every)):
        groups = [[rule for rule in joint if rule.noun in (None, noun)] for noun in range(nouns)]
        if decided_by == "binding":
            groups = [joint]
        by_group = [_scores(name, "binding", group, splits) for group in groups]
        scores += [max(of_split, key=lambda score: score.accuracy) for of_split in zip(*by_group, strict=True)]
    return scores


def dataset_baselines(folder: str | Path) -> list[RuleScore]:
    """As `score_baselines`; from the file in the dataset's folder where there is one, else computed and written there.

    Raises `ValueError` as `score_baselines` does.
    """
    path, digest = Path(folder) / FILE, read_manifest(folder)["content_digest"]
    fingerprint = {"content_digest": digest, "version": VERSION}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if {name: content[name] for name in fingerprint} == fingerprint:
            return [RuleScore(**entry | {"interval": tuple(entry["interval"])}) for entry in content["results"]]
    results = score_baselines(folder)
    text = json.dumps(fingerprint | {"results": [asdict(result) for result in results]}, indent=1)
    with contextlib.suppress(OSError), replace_file(path) as temporary:  # some folders cannot be written
        temporary.write_text(text, encoding="utf-8")
    return results


def _scores(name: str, blind: str, rules: Sequence[Rule], splits: dict[str, SplitArrays]) -> list[RuleScore]:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier
        from sklearn.tree import DecisionTreeClassifier
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise ValueError("baselines need scikit-learn; install it with pip install -e .[train]") from None

    def features(examples: SplitArrays) -> Any:
        if not rules:
            return grams.transform(examples.texts)
        return np.column_stack([query_features(examples), *(rule.features(examples) for rule in rules)])

    train, grams = splits["train"], HashingVectorizer(ngram_range=(1, 3), n_features=1 << 18)
    if not rules:
        splits = {n: replace(e, texts=e.texts[:TEXTS], answers=e.answers[:TEXTS]) for n, e in splits.items()}
        train = splits["train"]
    tree: Any = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST, random_state=0)
    if not rules:
        tree = SGDClassifier(loss="log_loss", random_state=0)
    elif len(rules) > 1 or rules[0].boosted:  # one tree on many features is a poor learner
        tree = HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=0)
    with threadpool_limits(1):  # the threads of several processes wait for each other
        tree.fit(features(train), train.answers)
    results = []
    for split, examples in splits.items():
        if split == "train" or not len(examples.answers):
            continue
        predictions = tree.predict(features(examples))
        right, couples = predictions == examples.answers, couples_in_order(examples.answers)
        _, both = couples_right(examples.answers, right, couples)
        accuracy, low, high = proportion(right, couples if len(both) else None)
        f1, of_couples = macro_f1(examples.answers, predictions), 100 * float(both.mean()) if len(both) else None
        results.append(RuleScore(name, blind, split, accuracy, (low, high), f1, of_couples, len(predictions)))
    return results
