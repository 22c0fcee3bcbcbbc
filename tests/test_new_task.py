"""New tasks: the one of docs/adding-a-task.md and others like it go from generation to a report, unregistered."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import TABLES, figures
from analysis.examples import _pairs, describe_examples
from analysis.figures import draw
from analysis.figures.of_predictions import axis_values
from analysis.frames import read_runs
from analysis.report import main as report
from tests.grid import make_run
from tests.helpers import command, page_data, task_of_the_page
from tests.together import Together, TogetherTask
from tests.words import COLOURS, Mode
from train.config import Run, Training
from train.data.auxiliary import auxiliary_targets, check_auxiliary_words
from train.data.text import UnknownWord, WordTokenizer, grammar_tokenizer
from train.run import run
from travlr import Count, GenerateArguments, Image, generate_dataset, open_dataset
from travlr.audit.__main__ import main as audit_command
from travlr.audit.checks import audit
from travlr.baselines import score_baselines
from travlr.browse import main as browse_command
from travlr.browse import make_page
from travlr.convert import convert_dataset
from travlr.formats.exports import FORMATS
from travlr.generate import iterate
from travlr.questions import make_question
from travlr.sampling.sampler import make_sampler
from travlr.scene import SPLITS, Object, Scene
from travlr.tasks import TASKS, parse_query, query_text, task_class, use_task
from travlr.tasks.base import Arguments
from travlr.tasks.cardinality import CardinalityTask
from travlr.tasks.simple import SimpleTask
from travlr.tasks.vectorised import Task

pytestmark = pytest.mark.usefixtures("one_thread", "rules_not_fitted")
COUNT = Count(train=96, validation=20, test_ind=64, test_ood=64)


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the task of the page, whose folder is among those of modules."""
    folder = tmp_path_factory.mktemp("task")
    name = task_of_the_page(folder)
    sys.path.insert(0, str(folder))
    yield name
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def data(parity: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(parity, tmp_path_factory.mktemp("data") / "parity")


def config_of(name: str, **settings: Any) -> Any:
    task: Any = use_task(name)
    return task.Config(task=name, **{"count": COUNT, "image": Image(cell=16)} | settings)


def written(name: str, folder: Path) -> Path:
    """A small dataset of a task."""
    generate_dataset(config_of(name), GenerateArguments(out=str(folder), workers=1), log=lambda _: None)
    return folder


def failed(folder: Path) -> set[str]:
    return {check.name for check in audit(folder, workers=1) if check.status == "FAIL"}


def test_audit_fails_on_a_corrupted_dataset(data: Path, tmp_path: Path) -> None:
    assert failed(data) == set()
    copy = shutil.copytree(data, tmp_path / "copy")
    path = next(copy.glob("train-*.parquet"))
    table = pq.read_table(path)
    answers = table["answer"].to_pylist()
    answers[0] = not answers[0]
    table = table.set_column(table.column_names.index("answer"), "answer", pa.array(answers))
    pq.write_table(table, path)
    assert {"files", "answer"} <= failed(copy)


def test_card_claims_nothing_of_other_tasks(data: Path) -> None:
    card = (data / "README.md").read_text()
    for claim in ("preset=", "pairs follow", "all others"):
        assert claim not in card
    assert "`python -m travlr.baselines`" in card


def test_simple_task_holds_out_queries_and_numbers(parity: str, data: Path) -> None:
    examples = open_dataset(data)["test_ood"]
    for number in range(len(examples)):
        example = examples[number]
        query = parse_query(example.query)
        assert query.task == parity and query_text(query) == example.query
        shape, count = query.args[1], sum(o.shape == query.args[1] for o in example.scene)
        assert example.answer == ((count % 2 == 0) == (query.args[0] == "even"))
        assert list(example.pair) == [shape, str(count)]
        assert shape in ("star", "octagon") and count in (2, 5)


def test_browse_and_convert_take_the_task(parity: str, data: Path, tmp_path: Path) -> None:
    assert str(use_task(parity).__doc__)[1:-1] in make_page(data)
    queries = open_dataset(data)["train"].columns("query")["query"].to_pylist()
    for layout in FORMATS:
        convert_dataset(data, tmp_path / layout, layout, log=lambda _: None)
    convert_dataset(tmp_path / "original", tmp_path / "back", "parquet", log=lambda _: None)
    assert open_dataset(tmp_path / "back")["train"].columns("query")["query"].to_pylist() == queries


def test_commands_take_the_task_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parity = task_of_the_page(tmp_path)
    few = [f"count.{split}={n}" for split, n in {"train": 60, "validation": 20, "test_ind": 20, "test_ood": 20}.items()]
    code, out, err = command("generate", f"task={parity}", *few, "image.cell=8", "out=d", cwd=tmp_path)
    assert code == 0 and f"audit d --task {parity}" in out, err
    code, _, err = command("audit", "d", cwd=tmp_path)
    assert code and err.startswith(f"audit: task={parity}: ") and err.endswith(f"--task {parity}\n"), err
    monkeypatch.chdir(tmp_path)
    assert audit_command(["d", "--task", parity]) == browse_command(["d", "--task", parity]) == 0


# Whose code is imported ----------------------------------------------------------------------------------------------


def test_task_class_imports_nothing_for_a_name_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile.py").write_text("raise SystemExit('executed')")
    with pytest.raises(ValueError, match=r"^task=hostile:Task: .*--task hostile:Task"):
        task_class("hostile:Task")
    assert "hostile" not in sys.modules


@pytest.mark.parametrize("name", ["os:system", "pathlib:Path", "tests.words:COLOURS", "tests.words:Nothing"])
def test_use_task_refuses_what_is_no_task(name: str) -> None:
    with pytest.raises(ValueError, match=f"^task={name}: .*SimpleTask"):
        task_class(name)


# Other kinds of task -------------------------------------------------------------------------------------------------


class OddOneOut(SimpleTask):
    """Whether one object alone has another colour. The scene does not depend on the answer, and there is no noun."""

    query = "The object with a colour of its own is in the {half} half."
    arguments = {"half": ["left", "right"]}

    @staticmethod
    def odd(scene: Scene) -> Object:
        colours = Counter(one.colour for one in scene)
        return next(one for one in scene if colours[one.colour] == 1)

    @classmethod
    def truth(cls, scene: Scene, half: str) -> bool:
        return (cls.odd(scene).column < 3) == (half == "left")

    @classmethod
    def pair(cls, scene: Scene, half: str) -> tuple[str, ...]:
        return cls.odd(scene).colour, next(one.colour for one in scene if one != cls.odd(scene))

    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        odd, usual = random.sample(self.world.colours, 2)
        names = [random.choice(self.names(odd)), *random.choices(self.names(usual), k=random.randint(3, 8))]
        return self.place(random, names)


class Adjacency(SimpleTask):
    """Whether two shapes are neighbours. Which groups there are, and which cells are free, depends on the query."""

    query = "{first:a} is next to {second:a}."
    arguments = {"first": "objects", "second": "objects"}
    decided_by = "place"

    @staticmethod
    def places(scene: Scene, first: str, second: str) -> list[Object]:
        return [next(one for one in scene if one.matches(name)) for name in (first, second)]

    @classmethod
    def truth(cls, scene: Scene, first: str, second: str) -> bool:
        a, b = cls.places(scene, first, second)
        return abs(a.row - b.row) + abs(a.column - b.column) == 1

    @classmethod
    def pair(cls, scene: Scene, first: str, second: str) -> tuple[str, ...]:
        return (str(cls.places(scene, first, second)[0].row + 1),)

    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        row, column = random.randrange(self.world.rows), random.randrange(self.world.columns)
        cells = [(r, c) for r in range(self.world.rows) for c in range(self.world.columns)]
        near = [cell for cell in cells if abs(cell[0] - row) + abs(cell[1] - column) == 1]
        second = random.choice(near if answer else [cell for cell in cells if cell not in (*near, (row, column))])
        others = random.sample([cell for cell in cells if cell not in (second, (row, column))], 5)
        names = [*arguments.values(), *random.sample(self.names(but=arguments.values()), 5)]
        return self.place(random, names, [(row, column), second, *others])

    def exchange(self, scene: Scene, random: Random, first: str, second: str) -> Scene:
        """The second object and any other but the first exchange their places."""
        a, b = self.places(scene, first, second)
        other = random.choice([one for one in scene if one not in (a, b)])
        moved = replace(b, row=other.row, column=other.column), replace(other, row=b.row, column=b.column)
        return tuple(one for one in scene if one not in (b, other)) + moved


def own(task: type) -> str:
    return f"{task.__module__}:{task.__name__}"


SIMPLE = [own(OddOneOut), own(Adjacency), *(f"tests.words:{name}" for name in ("Mode", "Majority", "NoPair"))]


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_task_is_balanced_and_holds_splits_apart(name: str) -> None:
    sampler = make_sampler(config_of(name))
    batches = {split: sampler.examples(split, 0, 200) for split in SPLITS}
    seen: set[tuple[bytes, int]] = set()
    for batch in batches.values():
        assert (batch.query[::2] == batch.query[1::2]).all() and (batch.answer[::2] != batch.answer[1::2]).all()
        totals, true = (
            np.bincount(part, minlength=len(batch.pairs)) for part in (batch.pair, batch.pair[batch.answer])
        )
        shown = totals[totals > 0]
        assert shown.max() - shown.min() <= 2 and abs(2 * true - totals).max() <= 1
        seen |= {(grid.tobytes(), int(query)) for grid, query in zip(batch.grid, batch.query, strict=True)}
    assert len(seen) == 200 * len(SPLITS)
    held_out = {tuple(pair) for pair in sampler.held_out()["pairs"]}
    pairs = {split: {batch.pairs[number] for number in batch.pair} for split, batch in batches.items()}
    assert not held_out & (pairs["train"] | pairs["validation"] | pairs["test_ind"])
    assert not held_out or pairs["test_ood"] == held_out
    queries = {split: set(batch.query.tolist()) for split, batch in batches.items()}
    in_training = queries["train"] | queries["validation"] | queries["test_ind"]
    assert not sampler.held_out()["queries"] or not in_training & queries["test_ood"]
    part = make_sampler(config_of(name)).examples("test_ind", 7, 41)
    for values, all_values in zip(vars(part).values(), vars(batches["test_ind"]).values(), strict=True):
        if isinstance(values, np.ndarray):
            assert (values == all_values[7:41]).all()


def test_simple_task_of_two_seeds_shares_no_scene() -> None:
    name = "tests.words:Mode"
    grids = [make_sampler(config_of(name, seed=seed)).examples("train", 0, 60).grid for seed in (0, 1)]
    assert not {grid.tobytes() for grid in grids[0]} & {grid.tobytes() for grid in grids[1]}


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small dataset of each simple task."""
    return {name: written(name, tmp_path_factory.mktemp("simple") / "d") for name in SIMPLE}


@pytest.mark.parametrize("name", SIMPLE)
def test_audit_passes_simple_tasks(name: str, simple: dict[str, Path]) -> None:
    task, checks = use_task(name), {check.name: check for check in audit(simple[name], workers=1)}
    assert [check for check in checks.values() if check.status == "FAIL"] == []
    assert ("`truth`" in checks["answer"].detail) == (task.recount is SimpleTask.recount)


def test_train_and_report_take_any_task(
    parity: str, data: Path, simple: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also tasks without nouns, with pairs of words, and without pairs."""
    training = Training(steps=2, check_every=2)
    words: dict[str, int | None] = {own(OddOneOut): 1, "tests.words:Majority": 1, "tests.words:NoPair": 0, parity: None}
    for name, maps in words.items():
        folder = simple.get(name, data)
        results = run(
            Run(task=name, data=str(folder), size="tiny", setting="mixed", runs=str(tmp_path / "runs"),
                precision="float32", training=training), log=lambda *_: None,
        )  # fmt: skip
        assert {result["test_setting"] for result in results} == {"image", "caption", "image+caption"}
        if maps is not None:  # pairs of two values alone have a heat map
            assert len(page_data(make_page(folder), "pairs-data")["maps"]) == maps and score_baselines(folder)
    monkeypatch.setattr(figures, "FIGURES", {"cells": figures.FIGURES["cells"]})
    assert report([str(tmp_path / "runs")]) == 0
    page = (tmp_path / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in words)


def test_simple_task_strict_couples_differ_by_an_exchange(tmp_path: Path) -> None:
    config = config_of(own(Adjacency), preset="strict", image=Image())
    texts_and_scenes = set()
    for split in SPLITS:
        examples = list(iterate(config, split, 0, 60))
        for one, other in zip(examples[0::2], examples[1::2], strict=True):
            assert (one.query, one.answer) == (other.query, not other.answer)
            assert {(o.row, o.column) for o in one.scene} == {(o.row, o.column) for o in other.scene}
            for word in ("colour", "shape"):
                here, there = (Counter(getattr(o, word) for o in example.scene) for example in (one, other))
                assert here == there
        for answer in (False, True):
            times = Counter(tuple(example.pair) for example in examples if example.answer == answer)
            assert max(times.values()) - min(times.values()) <= 1
        texts_and_scenes |= {
            (e.query, frozenset((o.colour, o.shape, o.row, o.column) for o in e.scene)) for e in examples
        }
    assert len(texts_and_scenes) == 4 * 60
    generate_dataset(config, GenerateArguments(out=str(tmp_path / "d"), workers=1), log=lambda _: None)
    assert failed(tmp_path / "d") == set()


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        (SimpleTask.exchange, "preset=strict: .* changed"),
        (lambda self, scene, random, **arguments: scene, "`exchange` .*false"),
        (lambda self, scene, random, **arguments: scene[:2], "`exchange` .*false"),
        (lambda self, scene, random, **arguments: scene + scene, "`exchange` .*two objects"),
    ],
)
def test_simple_task_refuses_an_exchange_that_is_none(
    exchange: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "changed", changed(exchange=exchange))
    with pytest.raises(ValueError, match=message):
        make_sampler(Mode.Config(task="changed", preset="strict"))


def test_make_question_refuses_forms_without_their_methods() -> None:
    (example,) = iterate(config_of("tests.words:Mode"), "train", 0, 1)
    for form, lacks in (("choice", "alternatives"), ("open", "open question")):
        with pytest.raises(ValueError, match=f"^form={form}: .*tests.words:Mode.* {lacks}"):
            make_question(example, form)


# Rules that a task may break -----------------------------------------------------------------------------------------


def changed(**entries: Any) -> type[SimpleTask]:
    return type("Changed", (Mode,), entries)


def scene_of(*objects: Object) -> Any:
    return lambda self, random, arguments, answer: tuple(objects)


RED = Object("red", "circle", "medium", 0, 0)
BROKEN_SIMPLE: dict[str, tuple[dict[str, Any], str]] = {
    "never true": ({"truth": staticmethod(lambda scene, colour: False)}, "`truth` .*True"),
    "does not apply": ({"truth": staticmethod(lambda scene, colour: int("x"))}, "`truth` "),
    "no objects": ({"scene": scene_of()}, "`scene` .*no objects"),
    "another world": ({"scene": scene_of(Object("pink", "circle", "medium", 0, 0))}, "`scene` .*medium pink"),
    "outside": ({"scene": scene_of(Object("red", "circle", "medium", 6, 0))}, "outside"),
    "one cell": ({"scene": scene_of(RED, RED)}, "`scene` .*two objects.* 0"),
    "pair is a text": ({"pair": staticmethod(lambda scene, colour: "red")}, "`pair` .*'red'"),
    "pair follows from the answer": (
        {"pair": staticmethod(lambda scene, colour: (str(Mode.truth(scene, colour)),)), "held_out": {"pairs": []}},
        "pair .*follow",
    ),
    "unknown kind of argument": ({"arguments": {"colour": "colors"}}, "`arguments`: colour .*'colors'"),
    "field without argument": ({"query": "It is {hue}."}, "`query` .*hue"),
    "unknown form": ({"query": "It is {colour:x}."}, r"`query`: \{colour:x\}"),
    "everything held out": ({"held_out": {"queries": [[c] for c in COLOURS], "pairs": []}}, "train"),
}


@pytest.mark.parametrize("rule", BROKEN_SIMPLE)
def test_simple_task_names_the_rule_that_it_breaks(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, message = BROKEN_SIMPLE[rule]
    monkeypatch.setitem(TASKS, "changed", changed(**entries))
    with pytest.raises(ValueError, match=message) as error:
        make_sampler(Mode.Config(task="changed"))
    assert "\n" not in str(error.value) and "task=" in str(error.value)


def test_simple_task_refuses_more_examples_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def scene(self: SimpleTask, random: Random, arguments: Arguments, answer: bool) -> Scene:
        return (Object(random.choice(self.world.colours), "circle", "medium", 0, 0),)

    monkeypatch.setitem(TASKS, "changed", changed(scene=scene))
    with pytest.raises(ValueError, match=r"^task=changed: `scene` .*count"):
        make_sampler(Mode.Config(task="changed")).examples("train", 0, 200)


# Vectorised tasks ----------------------------------------------------------------------------------------------------


def test_simple_task_takes_three_nouns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third noun is counted, has targets, rules and a column, and makes a run."""
    monkeypatch.setitem(TASKS, "together", TogetherTask)
    folder = tmp_path / "together"
    config = Together(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(folder), workers=1), log=lambda _: None)
    assert failed(folder) == set()
    rules = {score.baseline for score in score_baselines(folder)}
    assert {f"count of {place} noun" for place in ("first", "second", "third")} < rules
    frame = describe_examples(open_dataset(folder), "test_ind")
    example = open_dataset(folder)["test_ind"][0]
    query = parse_query(example.query)
    assert [frame[name][0] for name in ("claim", "first", "second", "third")] == list(query.args)
    tokenizer = WordTokenizer(grammar_tokenizer("together"))
    targets = auxiliary_targets(tokenizer, [example.query], [example.pair], [""])
    words = tokenizer.tokenizer.convert_ids_to_tokens(targets.query_objects[0, :, 0].tolist())
    assert words == list(query.args[1:])
    monkeypatch.chdir(tmp_path)
    training = Training(steps=2, check_every=2)
    (row, *_) = run(Run(task="together", data=str(folder), size="tiny", training=training, precision="float32"), print)
    assert 0 <= row["accuracy"] <= 100


def change(**entries: Any) -> type[Task]:
    """The task about three nouns with other class attributes."""
    return type("Changed", (TogetherTask,), entries)


def add_twice(task: Task, *template: Any) -> None:
    for _ in range(2):
        TogetherTask.add_ordered_template(task, *template)


BROKEN: dict[str, tuple[type[Task], str]] = {
    "unequal lists": (
        change(add_ordered_template=lambda self, side, *_: self.add_template(side, [0, 1], [2], [0])),
        "2 true .*1 false",
    ),
    "groups of different numbers": (change(build=lambda self: self.set_groups([[0, 1], [0]], 3)), "groups"),
    "a query in two templates": (change(add_ordered_template=add_twice), "twice"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_task_names_the_rule_that_it_breaks(rule: str) -> None:
    task, message = BROKEN[rule]
    with pytest.raises(ValueError, match=f"^task=together: .*{message}") as error:
        task(Together())
    assert "\n" not in str(error.value)


def refuses(scene: Any, **arguments: Any) -> Any:
    raise ValueError("`truth` does not apply")


@pytest.mark.parametrize("truth", [lambda scene, **arguments: True, refuses])
def test_audit_finds_a_recount_that_disagrees(truth: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong `truth` changes no dataset of a vectorised task, as answers come from templates."""
    monkeypatch.setitem(TASKS, "together", change(truth=staticmethod(truth)))
    config = Together(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(tmp_path / "d"), workers=1), log=lambda _: None)
    checks = {check.name: check for check in audit(tmp_path / "d", workers=1) if check.status == "FAIL"}
    assert "`truth`" in checks["answer"].detail


def test_auxiliary_words_refuse_unknown_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = staticmethod(lambda pair: ["sandwiched", pair[1]])
    monkeypatch.setitem(TASKS, "cardinality", type("Other", (CardinalityTask,), {"auxiliary_words": words}))
    with pytest.raises(UnknownWord, match="'sandwiched'"):
        auxiliary_targets(WordTokenizer(grammar_tokenizer()), ["There are 3 circle objects."], [["circle", "3"]], [""])


def test_auxiliary_words_refuse_words_that_fit_both_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    words = staticmethod(lambda pair: ["1", pair[1]])
    monkeypatch.setitem(TASKS, "cardinality", type("Other", (CardinalityTask,), {"auxiliary_words": words}))
    with pytest.raises(ValueError, match=r"^task=cardinality: .*`auxiliary_words` .*'1'"):
        check_auxiliary_words(["There are 3 circle objects."], [["circle", "3"]], np.array([True]))


# Reports -------------------------------------------------------------------------------------------------------------

OWN_MODEL = "my_package.my_module:MyModel"


@pytest.fixture(scope="module")
def runs(parity: str, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the task of the page, and of a task of the paper, by a model of ours and by a user's."""
    place = tmp_path_factory.mktemp("reported")
    config = CardinalityTask.Config(task="cardinality", count=COUNT, image=Image(cell=8))
    generate_dataset(config, GenerateArguments(out=str(place / "cardinality"), workers=1), log=lambda _: None)
    for folder in (place / "cardinality", data):
        for model in ("uniter", OWN_MODEL):
            make_run(place / "runs", folder, lambda test, split: 0.8, config={"model": model}, setting="image")
    return place / "runs"


def test_report_puts_a_users_task_and_model_last(parity: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"cells", "objects", "agreement", "calibration", "numbers", "pairs", "quantifiers"}  # of single runs
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in figures.FIGURES if name in kinds})
    assert report([str(runs)]) == 0
    frame = TABLES["overview"](read_runs(runs)).frame.drop("baseline")
    assert list(dict.fromkeys(column[0] for column in frame)) == ["cardinality", parity]
    assert [line[0] for line in frame.index] == ["UNITER", OWN_MODEL] and (frame != "").all(axis=None)
    data = page_data((runs / "report" / "report.html").read_text(encoding="utf-8"), "errors-data")
    choices = {name: data["choices"][name] for name in ("task", "model", "setting")}
    assert choices == {"task": ["cardinality", parity], "model": [OWN_MODEL, "uniter"], "setting": ["image"]}
    figures_of_task = {path.name.partition("-")[0] for path in (runs / "report" / "figures").glob("*arity*.svg")}
    assert figures_of_task == {"cells", "objects", "agreement", "calibration"}
    models = {row["model"] for card in data["cards"] if card["columns"]["task"] == parity for row in card["rows"]}
    assert models == {"uniter", OWN_MODEL}


def test_figures_hold_a_users_model(parity: str, runs: Path) -> None:
    saved = read_runs(runs)
    transfer = draw("transfer", saved, task=parity)
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in transfer.axes]
    assert titles[:4] == ["uniter small: test_ind", "test_ood", f"{OWN_MODEL} small: test_ind", "test_ood"]
    loss = draw("loss", saved, task=parity, setting="image")
    assert {text.get_text() for text in loss.legends[0].get_texts()} == {"uniter", "chance: ln 2", OWN_MODEL}
    assert str(use_task(parity).__doc__)[1:-1] in str(draw("dataset", saved, task=parity).get_label())


def test_figures_have_axes_of_words() -> None:
    """A task whose pairs are no numbers, as those of connectives and truth values."""
    table = _pairs(pa.array([["and", "true", "false"], ["or", "true", "true"], ["and", "false", "false"]]))
    assert axis_values(table, "x", "y") == {"false": "false", "true": "true"}
    assert list(axis_values(table, "y", "x")) == ["true", "false"]  # from below
    letters = _pairs(pa.array([["horizontal", "A", "C"], ["horizontal", "B", "A"]]))
    assert letters["x"].to_list() == [1, 2] and letters["y"].to_list() == [3, 1]
    assert (
        list(axis_values(letters, "x", "y").values())
        == list(axis_values(letters, "y", "x").values())
        == ["A", "B", "C"]
    )
