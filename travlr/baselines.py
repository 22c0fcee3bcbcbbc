"""Baselines: rules that answer queries without reasoning, scored on every split.

A rule is *unbound* when it sees counts of words, totals, places or orders, but not which colour, shape and place belong
together, or only one of the objects or counts that a query compares (DESIGN: shortcuts, baselines, strict data). Each
rule below is a set of features with a line on what it cannot see. It is fitted on the train split and scored on
validation, test_ind and test_ood. What a rule reaches is what a score must exceed to mean reasoning.

A rule is fitted as a decision tree (scikit-learn). N examples, W words of the world (colours, shapes, sizes).
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("baselines", "travlr.baselines")

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from travlr import cli
from travlr.dataset import Dataset, open_dataset
from travlr.scene import SPLITS
from travlr.tasks import TASKS

COLUMNS = ("query_form", "caption", "objects", "answer")
FITTED_ON = 32_000  # examples of the train split, at most
DEPTH = 12  # of a decision tree
LEAST = 20  # examples in a leaf of a decision tree


@dataclass(frozen=True)
class Examples:
    """N examples as arrays.

    operators: (N, O), the arguments of a query that describe no objects: a number itself, a word ("left") as a number
    below -1, -1 for none.
    nouns: (N, D, 2) words of the arguments that describe objects, a colour and a shape, -1 where a noun lacks one.
    counts: (N, W), how many objects each word describes. first: (N, W), the first object in caption order that a word
    describes, -1 if there is none. cells: (N, cells) bool, occupied. total: (N,). places: (N, D, 2), row and column of
    the object that a noun describes, -1 unless there is exactly one. ends: (N, 2, 4), colour, shape, row and column of
    the first and the last object. length: (N,), characters of the caption. answers: (N,) bool.
    """

    operators: np.ndarray
    nouns: np.ndarray
    counts: np.ndarray
    first: np.ndarray
    cells: np.ndarray
    total: np.ndarray
    places: np.ndarray
    ends: np.ndarray
    length: np.ndarray
    answers: np.ndarray
    colours: int  # the first words are colours, then come shapes

    def noun_counts(self, noun: int) -> np.ndarray:
        """(N, 2): how many objects the colour and the shape of a noun describe, each word alone; -1 for none."""
        words = self.nouns[:, noun]
        return np.where(words < 0, -1, np.take_along_axis(self.counts, np.maximum(words, 0), 1))


Features = Callable[[Examples], np.ndarray]


@dataclass(frozen=True)
class Baseline:
    """A rule. blind: what it cannot see. features: (N, F) numbers that it sees beside the words of the query.

    bound_for: kinds of task (`Task.decided_by`) for which these features hold what decides, so that the rule is no
    baseline. noun: the only noun that the features are about, if there is one.
    """

    name: str
    blind: str
    features: Features
    bound_for: tuple[str, ...] = ()
    noun: int | None = None


def _query(e: Examples) -> np.ndarray:
    return np.concatenate([e.operators, e.nouns.reshape(len(e.total), -1)], 1)


def _total(e: Examples) -> np.ndarray:
    return e.total[:, None]


def _sorted_counts(e: Examples) -> np.ndarray:
    """Counts of colours and of shapes, each in descending order; how many shapes have the number that a query names."""
    colours, shapes = e.counts[:, : e.colours], e.counts[:, e.colours :]
    named = (shapes == e.operators[:, -1:]).sum(1, keepdims=True)
    return np.concatenate([-np.sort(-colours, 1), -np.sort(-shapes, 1), named, _total(e)], 1)


def _count_of(noun: int) -> Features:
    def features(e: Examples) -> np.ndarray:
        counts = e.noun_counts(noun)
        rest = e.total[:, None] - counts
        largest = e.counts[:, e.colours :].max(1, keepdims=True)
        return np.concatenate([counts, rest, counts.max(1, keepdims=True) == largest, _total(e)], 1)

    return features


def _word_counts(e: Examples) -> np.ndarray:
    """Counts of the words of both nouns, each word alone, and the total."""
    return np.concatenate([*(e.noun_counts(noun) for noun in range(e.nouns.shape[1])), _total(e)], 1)


def _others(e: Examples) -> np.ndarray:
    """Objects that no word of the query describes, at least: the total without the counts of its words."""
    counts = np.concatenate([e.noun_counts(noun) for noun in range(e.nouns.shape[1])], 1)
    return (e.total - np.maximum(counts, 0).sum(1))[:, None]


def _words_present(e: Examples) -> np.ndarray:
    present = (e.counts > 0).astype(np.int64)
    return np.concatenate(
        [present[:, : e.colours].sum(1, keepdims=True), present[:, e.colours :].sum(1, keepdims=True)], 1
    )


def _order(e: Examples) -> np.ndarray:
    """Which noun the caption mentions first, and the position of each."""
    words = e.nouns.max(2)  # the shape, or the colour where there is no shape
    position = np.where(words < 0, -1, np.take_along_axis(e.first, np.maximum(words, 0), 1))
    before = (position[:, :1] < position[:, -1:]).astype(np.int64)
    return np.concatenate([position, before], 1)


def _place_of(noun: int) -> Features:
    return lambda e: e.places[:, noun]


def _cells(e: Examples) -> np.ndarray:
    return e.cells


def _ends(e: Examples) -> np.ndarray:
    return e.ends.reshape(len(e.total), -1)


def _length(e: Examples) -> np.ndarray:
    return e.length[:, None]


BASELINES = (
    Baseline("query", "the scene", lambda e: np.zeros((len(e.total), 0), np.int64)),
    Baseline("total", "all but the number of objects", _total),
    Baseline("length", "all but the length of the caption", _length),
    Baseline("occupied cells", "colours and shapes", _cells),
    Baseline("first and last object", "the other objects", _ends),
    Baseline("order of mention", "counts and places", _order),
    Baseline("words present", "how many objects have a colour or shape", _words_present),
    Baseline("sorted counts", "which count belongs to which colour or shape", _sorted_counts),
    Baseline("other objects", "the objects that the query describes", _others, bound_for=("count",)),
    Baseline("count of first noun", "the other noun", _count_of(0), bound_for=("count",), noun=0),
    Baseline("count of second noun", "the first noun", _count_of(1), bound_for=("count",), noun=1),
    Baseline("word counts", "which colour belongs to which shape", _word_counts, bound_for=("count", "counts")),
    Baseline("place of first noun", "the other object", _place_of(0), bound_for=("count", "counts", "binding"), noun=0),
    Baseline(
        "place of second noun", "the first object", _place_of(1), bound_for=("count", "counts", "binding"), noun=1
    ),
)


@dataclass(frozen=True)
class Result:
    """The score of a rule on a split: accuracy and macro-F1 in percent, of N examples."""

    baseline: str
    blind: str
    split: str
    accuracy: float
    macro_f1: float
    examples: int


def score_baselines(folder: str | Path) -> list[Result]:
    """Fit every unbound rule on train and score it on the other splits; the last is a tree on all features together.

    Raises `ValueError` if the folder is not a dataset, or lacks its train split.
    """
    dataset = open_dataset(folder)
    if "train" not in dataset.splits:
        raise ValueError(f"{folder}: has no train split, on which baselines are fitted")
    words = word_lists(dataset)
    task = TASKS[str(dataset["train"].columns("task")["task"][0])]
    splits = {split: examples_of(dataset, split, words) for split in SPLITS if split in dataset.splits}
    nouns = splits["train"].nouns.shape[1]
    rules = [r for r in BASELINES if task.decided_by not in r.bound_for and (r.noun or 0) < nouns]
    found = [result for rule in rules for result in _scores(rule.name, rule.blind, [rule], splits)]
    return found + _best([_scores(ALL, "binding", group, splits) for group in _groups(rules, task.decided_by, nouns)])


ALL = "all unbound features"


def _groups(rules: Sequence[Baseline], decided_by: str, nouns: int) -> list[list[Baseline]]:
    """Rules whose features together are unbound still: of a task that compares two nouns, those about one noun."""
    if decided_by == "binding":
        return [list(rules)]
    return [[rule for rule in rules if rule.noun in (None, noun)] for noun in range(nouns)]


def _best(alternatives: list[list[Result]]) -> list[Result]:
    """Of each split the best of some rules."""
    return [max(results, key=lambda result: result.accuracy) for results in zip(*alternatives, strict=True)]


def _scores(name: str, blind: str, rules: Sequence[Baseline], splits: dict[str, Examples]) -> list[Result]:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import f1_score
        from sklearn.tree import DecisionTreeClassifier
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise ValueError("baselines need scikit-learn; install it with pip install -e .[train]") from None

    def features(examples: Examples) -> np.ndarray:
        return np.concatenate([_query(examples), *(rule.features(examples) for rule in rules)], 1)

    train = splits["train"]
    rows = slice(0, FITTED_ON)
    tree: Any = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST, random_state=0)
    if len(rules) > 1:  # one tree on many features is a poor learner
        tree = HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=0)
    with threadpool_limits(1):  # the threads of several processes wait for each other
        tree.fit(features(train)[rows], train.answers[rows])
    results = []
    for split, examples in splits.items():
        if split == "train" or not len(examples.answers):
            continue
        predictions = tree.predict(features(examples))
        accuracy = float((predictions == examples.answers).mean())
        f1 = float(f1_score(examples.answers, predictions, average="macro"))
        results.append(Result(name, blind, split, 100 * accuracy, 100 * f1, len(predictions)))
    return results


# Reading --------------------------------------------------------------------------------------------------------------


def word_lists(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Colours and shapes that the train split shows, sorted."""
    objects = dataset["train"].columns("objects")["objects"].combine_chunks().flatten()
    colours, shapes = (sorted(set(objects.field(name).unique().to_pylist())) for name in ("colour", "shape"))
    return colours, shapes


def examples_of(dataset: Dataset, split: str, words: tuple[list[str], list[str]]) -> Examples:
    """A split as arrays. words: colours and shapes."""
    table = dataset[split].columns(*COLUMNS)
    colours, shapes = words
    objects = table["objects"].combine_chunks()
    starts = objects.offsets.to_numpy() - objects.offsets[0].as_py()
    total = np.diff(starts)
    example = np.repeat(np.arange(len(table)), total)
    parts = objects.flatten()
    colour, shape = (
        pa.compute.index_in(parts.field(name), pa.array(known)).fill_null(-1).to_numpy()
        for name, known in (("colour", colours), ("shape", shapes))
    )
    row, column = (parts.field(name).to_numpy() for name in ("row", "column"))
    operators, nouns = _queries(table["query_form"].to_pylist(), words)
    counts = np.zeros((len(table), len(colours) + len(shapes)), np.int64)
    np.add.at(counts, (example, colour), 1)
    np.add.at(counts, (example, len(colours) + shape), 1)
    cells = np.zeros((len(table), int(row.max()) + 1, int(column.max()) + 1), bool)
    cells[example, row, column] = True
    columns = np.stack([colour, shape, row, column], 1)
    return Examples(
        operators,
        nouns,
        counts,
        _first(example, starts, (colour, len(colours) + shape), counts.shape),
        cells.reshape(len(table), -1),
        total,
        _places(nouns, len(colours), example, columns),
        np.stack([columns[starts[:-1]], columns[starts[1:] - 1]], 1),
        pa.compute.utf8_length(table["caption"].combine_chunks()).to_numpy(),
        table["answer"].to_numpy(),
        len(colours),
    )


def _queries(forms: Sequence[str], words: tuple[list[str], list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """`Examples.operators` and `Examples.nouns` of queries."""
    colours, shapes = words
    operators = _operators(forms)
    rows: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    for text in dict.fromkeys(forms):
        form = json.loads(text)
        described = TASKS[form["task"]].object_arguments
        nouns = []
        for i in described:
            parts = str(form["args"][i]).split()
            colour = next((colours.index(word) for word in parts if word in colours), -1)
            shape = next((len(colours) + shapes.index(word) for word in parts if word in shapes), -1)
            nouns.append((colour, shape))
        others = [arg for i, arg in enumerate(form["args"]) if i not in described]
        coded = [arg if isinstance(arg, int) else -2 - operators.index(str(arg)) for arg in others]
        rows[text] = (coded or [-1], nouns)
    numbers, nouns_of = zip(*(rows[text] for text in forms), strict=True)
    return np.array(numbers, np.int64), np.array(nouns_of, np.int64)


def _operators(forms: Sequence[str]) -> list[str]:
    """The words of queries that describe no objects, sorted, so that each split gives them the same numbers."""
    parsed = [json.loads(text) for text in dict.fromkeys(forms)]
    words = {(form["task"], i, arg) for form in parsed for i, arg in enumerate(form["args"]) if isinstance(arg, str)}
    return sorted({arg for task, i, arg in words if i not in TASKS[task].object_arguments})


def _first(
    example: np.ndarray, starts: np.ndarray, words: tuple[np.ndarray, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """(N, W): the position in its caption of the first object that a word describes, -1 if there is none."""
    none = len(example) + 1
    first = np.full(shape, none)
    position = np.arange(len(example)) - starts[example]
    for word in words:
        np.minimum.at(first, (example, word), position)
    first[first == none] = -1
    return first


def _places(nouns: np.ndarray, colours: int, example: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`Examples.places`. columns: (objects, 4), colour, shape, row and column of each."""
    places = np.full((len(nouns), nouns.shape[1], 2), -1)
    for noun in range(nouns.shape[1]):
        colour, shape = nouns[example, noun].T
        match = ((colour < 0) | (colour == columns[:, 0])) & ((shape < 0) | (shape - colours == columns[:, 1]))
        one = np.bincount(example[match], minlength=len(nouns)) == 1
        rows = np.flatnonzero(match & one[example])
        places[example[rows], noun] = columns[rows, 2:]
    return places


# Command line ---------------------------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> str:
    """The accuracy of each rule on each split, in percent, and what the rule cannot see."""
    splits = list(dict.fromkeys(result.split for result in results))
    accuracy = {(result.baseline, result.split): result.accuracy for result in results}
    lines = [f"{'rule':<24}{''.join(f'{split:>12}' for split in splits)}  cannot see"]
    for name, blind in dict.fromkeys((result.baseline, result.blind) for result in results):
        scores = "".join(f"{accuracy[name, split]:>12.1f}" for split in splits)
        lines.append(f"{name:<24}{scores}  {blind}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = cli.Parser(
        prog="python -m travlr.baselines",
        description="Fit rules that do not reason on the train split, and print their accuracy on the other splits.",
    )
    parser.add_argument("dir", metavar="DIR", type=cli.folder, help="folder of a dataset, in any format")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    options = parser.parse_args(arguments)
    results = score_baselines(options.dir)
    print(json.dumps([asdict(result) for result in results], indent=1) if options.json else table(results))
    return 0
