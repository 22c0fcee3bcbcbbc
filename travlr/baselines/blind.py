"""Blind rules of corpora: they see the sentences of an item, and not its picture.

Rules are fitted on other items by cross-validation. Items of a couple are in one fold, as one gives away the answer of
the other, and so are items without a couple that share a picture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from travlr.baselines.scores import RuleScore
from travlr.corpora import item_columns
from travlr.corpora.writing import SPLIT
from travlr.dataset import Dataset
from travlr.metrics import both_ranked, picture_clusters, proportion, ranked

FOLDS = 5
RULES = {"shorter sentence": "picture and words", "words and pairs of words": "picture"}  # and what they cannot see


def score_blind(dataset: Dataset) -> list[RuleScore]:
    """The percent of items that each rule ranks right, of the whole corpus and of each axis."""
    columns = {name: column.astype(str) for name, column in item_columns(dataset, SPLIT).items()}
    items, couples, axes, sources, pictures = (columns[n] for n in ("item", "couple", "axis", "source", "picture"))
    table = dataset[SPLIT].columns("query", "answer")
    sentences, answers = table["query"].to_pylist(), np.array(table["answer"].to_pylist(), bool)
    groups = np.char.add(np.char.add(axes, "\n"), sources)
    units = np.where(couples == "", np.char.add("picture ", pictures), couples)
    clusters = picture_clusters(pictures, couples)
    parts = {"": np.ones(len(axes), bool)} | {axis: axes == axis for axis in dict.fromkeys(axes.tolist())}
    if len(parts) == 2:  # one axis is the whole corpus
        parts.popitem()
    results = []
    for rule, scores in zip(RULES, blind_scores(sentences, answers, groups, units), strict=True):
        first, right = ranked(scores, answers, items)
        for axis, of_axis in parts.items():
            here = of_axis[first]
            percent, *interval = proportion(right[here], clusters[first[here]])
            both = both_ranked(right[here], couples[first[here]])[1]
            of_couples = 100 * float(both.mean()) if len(both) else None
            numbers = (percent, (interval[0], interval[1]), percent, of_couples, int(here.sum()))
            results.append(RuleScore(rule, RULES[rule], SPLIT, *numbers, axis))
    return results


def blind_scores(sentences: Sequence[str], answers: np.ndarray, groups: np.ndarray, units: np.ndarray) -> np.ndarray:
    """(rule, N) scores of sentences by `RULES`, higher where a rule holds a sentence to be true.

    groups: (N,) sentences that a rule is fitted on together, such as those of an axis. units: (N,) what stays in one
    fold. Ties are broken by a hash of the sentence.
    """
    hashes = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest() for text in sentences]
    tie_breaks = np.array([int.from_bytes(digest) for digest in hashes]) / (1 << 48)
    shorter = tie_breaks - [len(text) for text in sentences]
    words = np.zeros(len(sentences))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        words[rows] = _naive_bayes([sentences[row] for row in rows.tolist()], answers[rows], units[rows])
    return np.stack([shorter, words + tie_breaks / 100])


def _naive_bayes(sentences: list[str], answers: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Log-odds of each sentence by naive Bayes on its words and pairs of words, fitted on the other folds."""
    try:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.model_selection import GroupKFold, cross_val_predict
        from sklearn.naive_bayes import MultinomialNB
    except ImportError:
        raise ValueError("baselines need scikit-learn; install it with pip install -e .[train]") from None
    folds = min(FOLDS, len(np.unique(units)))
    if folds < 2:
        return np.zeros(len(sentences))
    counts = CountVectorizer(lowercase=False, token_pattern=r"\S+", ngram_range=(1, 2)).fit_transform(sentences)
    logs = cross_val_predict(
        MultinomialNB(), counts, answers, groups=units, cv=GroupKFold(folds), method="predict_log_proba"
    )
    return np.asarray(logs[:, 1] - logs[:, 0])
