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

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from render.text import CAPTION_STYLES
from travlr import cli
from travlr.config import Style
from travlr.files import regular, replacing
from travlr.formats import LAYOUTS
from travlr.formats.manifest import read_manifest
from travlr.scene import SPLITS
from travlr.tasks import TASKS, config_from_dict

COLUMNS = ("query_form", "caption", "objects", "answer", "task")
ROWS = 32_000  # of each split, at most
FILE = "baselines.json"  # in the dataset's folder
DEPTH = 12  # of a decision tree
VERSION = 1  # of the rules; another one computes them again
LEAST = 20  # examples in a leaf of a decision tree


@dataclass(frozen=True)
class SplitArrays:
    """N examples as arrays.

    operators: (N, O), the arguments of a query that describe no objects: a number itself, a word ("left") as a number
    below -1, -1 for none.
    nouns: (N, D, 2) words of the arguments that describe objects, a colour and a shape, -1 where a noun lacks one.
    counts: (N, W), how many objects each word describes. first: (N, W), the first object in caption order that a word
    describes, -1 if there is none. cells: (N, rows, columns) bool, occupied. total: (N,). described: (N,), how many
    objects any noun describes. places: (N, D, 2), row and column of the object that a noun describes, -1 unless there
    is exactly one. ends: (N, 2, 4), colour, shape, row and column of the first and the last object. length, picture:
    (N,), characters of the caption and bytes of the picture file. answers: (N,) bool.
    """

    operators: np.ndarray
    nouns: np.ndarray
    counts: np.ndarray
    first: np.ndarray
    cells: np.ndarray
    total: np.ndarray
    described: np.ndarray
    places: np.ndarray
    ends: np.ndarray
    length: np.ndarray
    picture: np.ndarray
    answers: np.ndarray
    colours: int  # the first words are colours, then come shapes

    def noun_counts(self, noun: int) -> np.ndarray:
        """(N, 2): how many objects the colour and the shape of a noun describe, each word alone; -1 for none."""
        words = self.nouns[:, noun]
        return np.where(words < 0, -1, np.take_along_axis(self.counts, np.maximum(words, 0), 1))


Features = Callable[[SplitArrays], np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A rule. blind: what it cannot see. features: (N, F) numbers that it sees beside the words of the query.

    bound_for: kinds of task (`Task.decided_by`) for which these features hold what decides, so that the rule is no
    baseline. alone_for: kinds of task for which it is unbound only without the features of other rules. noun: the only
    noun that the features are about, if there is one.
    """

    name: str
    blind: str
    features: Features
    bound_for: tuple[str, ...] = ()
    alone_for: tuple[str, ...] = ()
    noun: int | None = None


def _query(e: SplitArrays) -> np.ndarray:
    return np.concatenate([e.operators, e.nouns.reshape(len(e.total), -1)], 1)


def _total(e: SplitArrays) -> np.ndarray:
    return e.total[:, None]


def _sorted_counts(e: SplitArrays) -> np.ndarray:
    """Counts of colours and of shapes, each in descending order; how many shapes have the number that a query names."""
    colours, shapes = e.counts[:, : e.colours], e.counts[:, e.colours :]
    asked = [(counts == e.operators[:, -1:]).sum(1, keepdims=True) for counts in (colours, shapes)]
    return np.concatenate([-np.sort(-colours, 1), -np.sort(-shapes, 1), *asked, _total(e)], 1)


def _count_of(noun: int) -> Features:
    def features(e: SplitArrays) -> np.ndarray:
        counts = e.noun_counts(noun)
        rest = e.total[:, None] - counts
        highest = [part.max(1, keepdims=True) for part in (e.counts[:, : e.colours], e.counts[:, e.colours :])]
        leads = [counts.max(1, keepdims=True) == number for number in highest]
        return np.concatenate([counts, rest, *leads, _total(e)], 1)

    return features


def _word_counts(e: SplitArrays) -> np.ndarray:
    """Counts of the words of both nouns, each word alone, and the total."""
    return np.concatenate([*(e.noun_counts(noun) for noun in range(e.nouns.shape[1])), _total(e)], 1)


def _others(e: SplitArrays) -> np.ndarray:
    """Objects that no word of the query describes, at least: the total without the counts of its words."""
    counts = np.concatenate([e.noun_counts(noun) for noun in range(e.nouns.shape[1])], 1)
    return (e.total - np.maximum(counts, 0).sum(1))[:, None]


def _words_present(e: SplitArrays) -> np.ndarray:
    present = (e.counts > 0).astype(np.int64)
    return np.concatenate(
        [present[:, : e.colours].sum(1, keepdims=True), present[:, e.colours :].sum(1, keepdims=True)], 1
    )


def _other_attributes(e: SplitArrays) -> np.ndarray:
    """Counts of the colours where the nouns name shapes alone, of the shapes where they name colours alone."""
    colours, shapes = e.counts[:, : e.colours], e.counts[:, e.colours :]
    names_colour, names_shape = (np.any(e.nouns[:, :, [kind]] >= 0, axis=1) for kind in (0, 1))
    return np.concatenate([np.where(names_colour, -1, colours), np.where(names_shape, -1, shapes)], 1)


def _another_word(e: SplitArrays) -> np.ndarray:
    """The count of the word after the first noun's in the list of its kind; -1 where the second noun names it."""
    word = e.nouns[:, 0].max(1)
    first, number = np.where(word < e.colours, 0, e.colours), np.where(word < e.colours, e.colours, e.counts.shape[1])
    after = first + (word + 1 - first) % np.maximum(number - first, 1)
    described = np.any(e.nouns == after[:, None, None], axis=(1, 2))
    return np.where(described, -1, np.take_along_axis(e.counts, np.maximum(after, 0)[:, None], 1)[:, 0])[:, None]


def _distractors(e: SplitArrays) -> np.ndarray:
    return (e.total - e.described)[:, None]


def _order(e: SplitArrays) -> np.ndarray:
    """Which noun the caption mentions first, and the position of each."""
    words = e.nouns.max(2)  # the shape, or the colour where there is no shape
    position = np.where(words < 0, -1, np.take_along_axis(e.first, np.maximum(words, 0), 1))
    before = (position[:, :1] < position[:, -1:]).astype(np.int64)
    return np.concatenate([position, before], 1)


def _place_of(noun: int) -> Features:
    return lambda e: e.places[:, noun]


def _cells(e: SplitArrays) -> np.ndarray:
    """The occupied cells, and how many there are in each row, each column and each half."""
    rows, columns = e.cells.sum(2), e.cells.sum(1)
    halves = [part[:, : part.shape[1] // 2].sum(1, keepdims=True) for part in (rows, columns)]
    return np.concatenate([e.cells.reshape(len(e.total), -1), rows, columns, *halves], 1)


def _ends(e: SplitArrays) -> np.ndarray:
    return e.ends.reshape(len(e.total), -1)


def _length(e: SplitArrays) -> np.ndarray:
    return e.length[:, None]


def _picture(e: SplitArrays) -> np.ndarray:
    return e.picture[:, None]


RULES = (
    Rule("query", "the scene", lambda e: np.zeros((len(e.total), 0), np.int64)),
    Rule("total", "all but the number of objects", _total),
    Rule("length", "all but the length of the caption", _length),
    Rule("size of the picture file", "what the picture shows", _picture),
    Rule("occupied cells", "colours and shapes", _cells),
    Rule("first and last object", "the other objects", _ends, bound_for=("place",)),
    Rule("order of mention", "counts and places", _order),
    Rule("words present", "how many objects have a colour or shape", _words_present),
    Rule("sorted counts", "which count belongs to which colour or shape", _sorted_counts),
    Rule("counts of other attributes", "the attributes that the query names", _other_attributes),
    Rule("count of another word", "the objects that the query describes", _another_word),
    Rule("other objects", "the objects that the query describes", _others, ("count",), alone_for=("counts",)),
    Rule("distractors", "the objects that the query describes", _distractors, ("count", "counts"), ("binding",)),
    Rule("count of first noun", "the other noun", _count_of(0), bound_for=("count",), noun=0),
    Rule("count of second noun", "the first noun", _count_of(1), bound_for=("count",), noun=1),
    Rule("word counts", "which colour belongs to which shape", _word_counts, bound_for=("count", "counts")),
    Rule("place of first noun", "the other object", _place_of(0), bound_for=("count", "counts", "binding"), noun=0),
    Rule("place of second noun", "the first object", _place_of(1), bound_for=("count", "counts", "binding"), noun=1),
)


@dataclass(frozen=True)
class RuleScore:
    """The score of a rule on a split, in percent.

    interval: 95 % of the accuracy, over couples. couples: percent of couples with both answers right; None where the
    examples are not in couples.
    """

    baseline: str
    blind: str
    split: str
    accuracy: float
    interval: tuple[float, float]
    macro_f1: float
    couples: float | None
    examples: int


def score_baselines(folder: str | Path) -> list[RuleScore]:
    """Fit every unbound rule on train and score it on the other splits; the last is a tree on all features together.

    Raises `ValueError` if the folder is not a dataset, or lacks its train split.
    """
    manifest = read_manifest(folder)
    if "train" not in manifest["splits"]:
        raise ValueError(f"{folder}: has no train split, on which baselines are fitted")
    tables = {split: read_split(Path(folder), manifest, split) for split in SPLITS if split in manifest["splits"]}
    words = word_lists(tables["train"])
    task = TASKS[str(tables["train"]["task"][0])]
    splits = {split: examples_of(table, words) for split, table in tables.items()}
    nouns, decided_by = splits["train"].nouns.shape[1], task.decided_by
    if decided_by in ("count", "counts") and np.all(splits["train"].nouns >= 0, axis=2).any():
        decided_by = "binding"  # nouns of two words: the counts of single words do not decide
    rules = [r for r in RULES if decided_by not in r.bound_for and (r.noun or 0) < nouns]
    found = [result for rule in rules for result in _scores(rule.name, rule.blind, [rule], splits)]
    return found + _best([_scores(ALL, "binding", group, splits) for group in _groups(rules, decided_by, nouns)])


def dataset_baselines(folder: str | Path) -> list[RuleScore]:
    """As `score_baselines`; from the file in the dataset's folder where there is one, else computed and written there.

    Raises `ValueError` as `score_baselines` does.
    """
    path, digest = Path(folder) / FILE, read_manifest(folder)["content_digest"]
    identity = {"content_digest": digest, "version": VERSION}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        held = json.loads(regular(path).read_text(encoding="utf-8"))
        if {name: held[name] for name in identity} == identity:
            return [RuleScore(**entry | {"interval": tuple(entry["interval"])}) for entry in held["results"]]
    results = score_baselines(folder)
    text = json.dumps(identity | {"results": [asdict(result) for result in results]}, indent=1)
    with contextlib.suppress(OSError), replacing(path) as temporary:  # some folders cannot be written
        temporary.write_text(text, encoding="utf-8")
    return results


def best_unbound(results: Sequence[RuleScore]) -> dict[str, RuleScore]:
    """split -> the rule with the highest accuracy there."""
    best: dict[str, RuleScore] = {}
    for result in results:
        if result.split not in best or result.accuracy > best[result.split].accuracy:
            best[result.split] = result
    return best


ALL = "all unbound features"


def _groups(rules: Sequence[Rule], decided_by: str, nouns: int) -> list[list[Rule]]:
    """Rules whose features together are unbound still: of a task that compares two nouns, those about one noun."""
    together = [rule for rule in rules if decided_by not in rule.alone_for]
    if decided_by == "binding":
        return [together]
    return [[rule for rule in together if rule.noun in (None, noun)] for noun in range(nouns)]


def _best(alternatives: list[list[RuleScore]]) -> list[RuleScore]:
    """Of each split the best of some rules."""
    return [max(results, key=lambda result: result.accuracy) for results in zip(*alternatives, strict=True)]


def _scores(name: str, blind: str, rules: Sequence[Rule], splits: dict[str, SplitArrays]) -> list[RuleScore]:
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import f1_score
        from sklearn.tree import DecisionTreeClassifier
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise ValueError("baselines need scikit-learn; install it with pip install -e .[train]") from None

    def features(examples: SplitArrays) -> np.ndarray:
        return np.concatenate([_query(examples), *(rule.features(examples) for rule in rules)], 1)

    train = splits["train"]
    tree: Any = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST, random_state=0)
    if len(rules) > 1:  # one tree on many features is a poor learner
        tree = HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=0)
    with threadpool_limits(1):  # the threads of several processes wait for each other
        tree.fit(features(train), train.answers)
    results = []
    for split, examples in splits.items():
        if split == "train" or not len(examples.answers):
            continue
        predictions = tree.predict(features(examples))
        f1 = float(f1_score(examples.answers, predictions, average="macro"))
        accuracy, interval, couples = _accuracy(predictions == examples.answers, examples.answers)
        results.append(RuleScore(name, blind, split, accuracy, interval, 100 * f1, couples, len(predictions)))
    return results


def _accuracy(right: np.ndarray, answers: np.ndarray) -> tuple[float, tuple[float, float], float | None]:
    """Accuracy, its 95 % interval over couples (over examples where there are none), and couples right, percent."""
    units, couples = right[:, None], None
    if len(right) % 2 == 0 and (answers[0::2] != answers[1::2]).all():
        units = right.reshape(-1, 2)
        couples = 100 * float(units.all(axis=1).mean())
    accuracy = 100 * float(right.mean())
    half = 196 * float(units.mean(axis=1).std() / np.sqrt(len(units)))
    return accuracy, (max(accuracy - half, 0.0), min(accuracy + half, 100.0)), couples


# Reading --------------------------------------------------------------------------------------------------------------


def read_split(folder: Path, manifest: dict[str, Any], split: str) -> pa.Table:
    """The first rows of a split: `COLUMNS`, and `picture`, the bytes of each picture file."""
    layout, rows = LAYOUTS[manifest["layout"]], min(ROWS, manifest["splits"][split]["rows"])
    parts = []
    for table in layout.read(folder, manifest, split, 0, rows):
        sizes = pa.compute.binary_length(table["image"].combine_chunks().field("bytes"))
        parts.append(table.select(COLUMNS).append_column("picture", sizes))
    whole = pa.concat_tables(parts)
    style = config_from_dict(manifest["config"]).style if manifest["config"] else Style()
    return whole if CAPTION_STYLES[style.caption].ordered else in_reading_order(whole)


def in_reading_order(table: pa.Table) -> pa.Table:
    """A table with the objects of each row in the order in which a grid of words shows them."""
    objects = table["objects"].combine_chunks()
    example = np.repeat(np.arange(len(table)), objects.value_lengths().to_numpy())
    things = objects.flatten()
    row, column = (things.field(name).to_numpy() for name in ("row", "column"))
    lengths = np.bincount(example, minlength=len(table))
    offsets = pa.array(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
    sorted_objects = pa.ListArray.from_arrays(offsets, things.take(pa.array(np.lexsort((column, row, example)))))
    return table.set_column(table.column_names.index("objects"), "objects", sorted_objects)


def word_lists(train: pa.Table) -> tuple[list[str], list[str]]:
    """Colours and shapes that the train split shows, sorted."""
    objects = train["objects"].combine_chunks().flatten()
    colours, shapes = (sorted(set(objects.field(name).unique().to_pylist())) for name in ("colour", "shape"))
    return colours, shapes


def examples_of(table: pa.Table, words: tuple[list[str], list[str]]) -> SplitArrays:
    """A split, as `read_split` returns it, as arrays. words: colours and shapes."""
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
    return SplitArrays(
        operators,
        nouns,
        counts,
        _first(example, starts, (colour, len(colours) + shape), counts.shape),
        cells,
        total,
        _described(nouns, len(colours), example, columns),
        _places(nouns, len(colours), example, columns),
        np.stack([columns[starts[:-1]], columns[starts[1:] - 1]], 1),
        pa.compute.utf8_length(table["caption"].combine_chunks()).to_numpy(),
        table["picture"].to_numpy(),
        table["answer"].to_numpy(),
        len(colours),
    )


def _queries(forms: Sequence[str], words: tuple[list[str], list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """`SplitArrays.operators` and `SplitArrays.nouns` of queries."""
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


def _matches(nouns: np.ndarray, noun: int, colours: int, example: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(objects,) bool, whether a noun of its example describes each object."""
    colour, shape = nouns[example, noun].T
    return ((colour < 0) | (colour == columns[:, 0])) & ((shape < 0) | (shape - colours == columns[:, 1]))


def _described(nouns: np.ndarray, colours: int, example: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`SplitArrays.described`."""
    any_noun = np.zeros(len(example), bool)
    for noun in range(nouns.shape[1]):
        any_noun |= _matches(nouns, noun, colours, example, columns)
    return np.bincount(example[any_noun], minlength=len(nouns))


def _places(nouns: np.ndarray, colours: int, example: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """`SplitArrays.places`. columns: (objects, 4), colour, shape, row and column of each."""
    places = np.full((len(nouns), nouns.shape[1], 2), -1)
    for noun in range(nouns.shape[1]):
        match = _matches(nouns, noun, colours, example, columns)
        one = np.bincount(example[match], minlength=len(nouns)) == 1
        rows = np.flatnonzero(match & one[example])
        places[example[rows], noun] = columns[rows, 2:]
    return places


# Command line ---------------------------------------------------------------------------------------------------------


def table(results: Sequence[RuleScore]) -> str:
    """The accuracy of each rule on each split with half its 95 % interval, in percent, and what the rule cannot see."""
    splits = list(dict.fromkeys(result.split for result in results))
    by_place = {(result.baseline, result.split): result for result in results}
    width = max(len(result.baseline) for result in results) + 1
    lines = [f"{'rule':<{width}}{''.join(f'{split:>14}' for split in splits)}  cannot see"]
    for name, blind in dict.fromkeys((result.baseline, result.blind) for result in results):
        scores = "".join(f"{_score_text(by_place[name, split]):>14}" for split in splits)
        lines.append(f"{name:<{width}}{scores}  {blind}")
    return "\n".join(lines)


def _score_text(result: RuleScore) -> str:
    return f"{result.accuracy:.1f} ± {(result.interval[1] - result.interval[0]) / 2:.1f}"


def main(arguments: list[str]) -> int:
    parser = cli.Parser(
        prog="python -m travlr.baselines",
        description="Fit rules that do not reason on the train split, and print their accuracy on the other splits.",
    )
    parser.add_argument("dir", metavar="DIR", type=cli.folder, help="folder of a dataset, in any format")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    options = parser.parse_args(arguments)
    results = dataset_baselines(options.dir)
    print(json.dumps([asdict(result) for result in results], indent=1) if options.json else table(results))
    return 0
