"""Runs from config to results at tiny size: every model and setting, resuming, and what a model cannot know."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from train.config import Optimiser, Recipe, RegionSettings, Run, Training
from train.data import auxiliary
from train.data.examples import Examples, VisualSettings
from train.data.sources import TrainingDataset, stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer, tokenise
from train.learning.batches import test_batches as batches_of_test
from train.learning.module import Learner
from train.learning.testing import test_matrix as matrix_of
from train.models import MODELS
from train.results.predictions import read_predictions
from train.results.store import read_curve, read_results
from train.results.tables import transfer_table
from train.run import run
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, Generator, generate_dataset
from travlr.tasks import TASKS

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited")

SMALL = Training(steps=4, check_every=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("data") / "cardinality")
    count = Count(train=200, validation=20, test_ind=20, test_ood=20)
    generate_dataset(Cardinality(count=count), GenerateArguments(out=folder, workers=1), log=lambda line: None)
    return folder


def tiny(data: str, runs: Path, **changes: Any) -> Run:
    values: dict[str, Any] = {"size": "tiny", "training": SMALL, "precision": "float32", "device": "cpu"}
    return Run(data=data, runs=str(runs), optimiser=Optimiser(batch_size=10), **(values | changes))


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        (model, setting)
        for model in MODELS
        for setting in ("caption", "mixed")
        if setting == "caption" or model not in ("bert", "roberta")
    ],
)
def test_train_every_model_in_every_setting(data: str, tmp_path: Path, model: str, setting: str) -> None:
    config = tiny(data, tmp_path, model=model, setting=setting)
    rows = run(config, log=lambda line: None)
    assert [(row["test_setting"], row["split"]) for row in rows] == [
        (test, split) for split in ("test_ind", "test_ood") for test in config.test_settings
    ]
    folder = tmp_path / rows[0]["name"]
    found = read_predictions(folder).to_pandas()
    assert len(found) == 20 * len(rows)
    for row in rows:
        part = found[(found.test_setting == row["test_setting"]) & (found.split == row["split"])]
        assert row["macro_f1"] == pytest.approx(100 * f1_score(part.answer, part.logit > 0, average="macro"))
    assert {point["step"] for point in read_curve(folder)} >= {2, 4}


@pytest.mark.parametrize("model", ["uniter", "albef"])
def test_batches_of_tests_have_no_labels(
    model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ("answer", "targets", "pair", "values", "objects", "sides")
    kind: Any = MODELS[model]
    encode, shown = kind.encode, []

    def noted(self: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if not self.training:
            shown.append([name for name in labels if getattr(inputs, name) is not None])
        return encode(self, inputs, *arguments, **options)

    monkeypatch.setattr(kind, "encode", noted)
    run(tiny(data, tmp_path, model=model, setting="image+caption"), log=lambda line: None)
    assert shown and not any(shown)


@pytest.mark.parametrize("words", [["more", "fewer", "more"], ["fewer"], []])
def test_training_leaves_out_losses_without_targets(
    words: list[str], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pairs of words have no values; pairs of one word, or of none, have no words at the objects of the query."""
    monkeypatch.setattr("train.learning.batches.check_auxiliary_words", lambda *_: None)
    monkeypatch.setattr(TASKS["cardinality"], "auxiliary_words", staticmethod(lambda pair: words))
    monkeypatch.setattr(auxiliary, "pair_values", lambda pair: [float("nan")] * len(words[1:]))
    run(tiny(data, tmp_path, setting="caption"), log=lambda line: None)
    lines = capsys.readouterr().out.splitlines()
    losses = {word for line in lines if line.startswith("step") for word in line.split() if word.endswith("_loss")}
    assert "value_loss" not in losses and {"answer_loss", "pair_loss", "object_loss"} <= losses
    assert ("word_loss" in losses) == (len(words) > 1)


def test_training_predicts_values_of_pairs() -> None:
    """The first token predicts all values, an object of the query its own; a word in a pair has none."""
    learner: Any = SimpleNamespace(values=lambda states: states[:, :2], value=lambda states: states[:, 2:3])
    states = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.full((2, 5), -100)
    targets[0, [2, 4]], targets[1, [1, 3]] = 7, 8
    values = torch.tensor([[1.0, 2.0], [float("nan"), 3.0]])
    encoded: Any = SimpleNamespace(text=states)
    loss = Learner._value_loss(learner, encoded, targets, values, ~values.isnan())
    predicted = torch.stack([states[0, 0, 0], states[0, 0, 1], states[1, 0, 1], *states[0, [2, 4], 2], states[1, 3, 2]])
    due = torch.nn.functional.smooth_l1_loss(predicted, torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]))
    torch.testing.assert_close(loss, 2 * due)


def test_intervals_are_over_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 scenes with eight queries each, right together or wrong together: a bootstrap by hand that draws scenes."""
    random = np.random.default_rng(5)
    which = random.permutation(np.repeat(np.arange(50), 8))
    scenes = random.permuted(np.tile(np.arange(9), (50, 1)), axis=1)  # all different, as numbers in cells
    answers = random.random(400) < 0.5
    logits = np.where((np.arange(50) < 35)[which] == answers, 1.0, -1.0)
    examples = SimpleNamespace(
        grid=scenes[which], answers=answers, queries=["?"] * 400, objects=np.full(400, 8), groups=np.array(["a"] * 400),
        ids=[str(row) for row in range(400)],
    )  # fmt: skip
    raw = SimpleNamespace(queries=["?"] * 2, answers=np.array([True, False]), grid=np.ones((2, 9)))
    parts: Any = SimpleNamespace(
        source=SimpleNamespace(raw=lambda _: raw, folder="none"),
        run=SimpleNamespace(test_settings=("image",)),
        examples=lambda _: examples,
    )
    monkeypatch.setattr("train.learning.testing.predict", lambda *_: {"image": logits})
    monkeypatch.setattr("train.learning.testing.dataset_baselines", lambda _: [])
    drawn = []
    for _ in range(1000):
        rows = np.concatenate([np.flatnonzero(which == scene) for scene in random.integers(0, 50, 50)])
        drawn.append(100 * f1_score(answers[rows], logits[rows] > 0, average="macro"))
    ends = pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=2.5)  # a scene is 2 points
    model: Any = torch.nn.Identity()
    for row in matrix_of(parts, model, "cpu", "float32")[0]:
        assert [row["interval_low"], row["interval_high"]] == ends
        assert row["interval_high"] - row["interval_low"] > 20  # alone, 400 examples would have about 9


def test_curve_of_less_than_an_epoch(data: str, tmp_path: Path) -> None:
    training = SMALL.changed(examples=1.0, steps=12, check_every=None)
    (row, *_) = run(tiny(data, tmp_path, training=training), log=lambda line: None)
    assert [point["step"] for point in read_curve(tmp_path / row["name"])] == [10, 12]


@pytest.mark.parametrize(("decay", "middle"), [("linear", 0.55), ("cosine", 0.55), ("constant", 1.0)])
def test_learning_rate_rises_and_falls(decay: str, middle: float) -> None:
    class Only(Learner):
        def __init__(self) -> None:
            self.recipe, self.rate, self.steps = Recipe(warmup=0.2, decay=decay, final_rate=1e-4), 1e-3, 10

    factors = [Only().factor(step) for step in (0, 1, 2, 6, 10, 11)]
    assert factors == pytest.approx([0.5, 1.0, 1.0, middle, *[1.0 if decay == "constant" else 0.1] * 2])


def test_train_seeds_differ(data: str, tmp_path: Path) -> None:
    logits = []
    for seed, folder in ((0, "a"), (0, "b"), (1, "c")):
        rows = run(tiny(data, tmp_path / folder, seed=seed), log=lambda line: None)
        logits.append(read_predictions(tmp_path / folder / rows[0]["name"])["logit"].to_numpy())
    np.testing.assert_array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


def test_setting_hides_the_other_modality(data: str) -> None:
    maker = Generator(Cardinality())
    raw = stream_examples(maker, 0, 20)
    other = stream_examples(maker, 500, 520)
    words = WordTokenizer(grammar_tokenizer())
    visual = VisualSettings("regions", RegionSettings())

    def batch(setting: str, **changes: Any) -> dict[str, Any]:
        examples = Examples(replace(raw, **changes), words, visual)
        parts = vars(next(batches_of_test(examples, setting))[1])
        return {name: value for name, value in parts.items() if value is not None}

    for setting, changes in (("caption", {"grid": other.grid}), ("image", {"captions": other.captions})):
        before, after = batch(setting), batch(setting, **changes)
        assert all(torch.equal(before[name], after[name]) for name in before)
        shown = batch("image+caption", **changes)
        assert not all(
            shown[name].shape == value.shape and torch.equal(shown[name], value)
            for name, value in batch("image+caption").items()
        )


def test_streamed_examples_stay_out_of_splits(data: str) -> None:
    source = TrainingDataset(Path(data))
    first = source.config.count.train if source.config else 0
    new = stream_examples(source.generator, first, first + 500)
    new_keys = {(row.tobytes(), query) for row, query in zip(new.grid.astype(np.int16), new.queries, strict=True)}
    for split in ("train", "validation", "test_ind", "test_ood"):
        raw = source.raw(split)
        keys = {(row.tobytes(), query) for row, query in zip(raw.grid.astype(np.int16), raw.queries, strict=True)}
        assert not keys & new_keys


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"steps": None}}, "one of training.steps"),
        ({"method": "consistency", "setting": "mixed"}, "setting=mixed has none"),
        ({"method": "consistency", "model": "bert"}, "model=bert setting=caption has none"),
        ({"method": "consistency", "training": {"auxiliary_targets": False}}, "needs training.examples=null"),
        ({"training": {"epochs": 3, "steps": None}}, "needs training.examples"),
        ({"model": "bert", "setting": "image"}, "sees text alone"),
        ({"model": "albef", "controlled": True}, "has none"),
        ({"regions": {"source": "file"}}, "give regions.file"),
    ],
)
def test_run_refuses_impossible_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run(**changes)


def test_run_refuses_data_of_another_task(data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds task=cardinality"):
        run(tiny(data, tmp_path, task="quantifiers"))


def test_run_starts_from_a_finished_one(data: str, tmp_path: Path) -> None:
    first = run(tiny(data, tmp_path), log=lambda line: None)
    training = Training(steps=None, epochs=2, examples=50, check_every=None)
    start = str(tmp_path / first[0]["name"])
    rows = run(tiny(data, tmp_path, setting="image", start=start, training=training), log=lambda line: None)
    assert rows[0]["weights"] == f"run {first[0]['name']}"
    here = Path.cwd()
    os.chdir(tmp_path)  # the same run by another name of its folder
    try:
        again = run(tiny(data, tmp_path, setting="image", start=first[0]["name"], training=training), lambda line: None)
    finally:
        os.chdir(here)
    assert again == rows
    with pytest.raises(ValueError, match="model=uniter"):
        run(tiny(data, tmp_path, model="lxmert", start=start), log=lambda line: None)
    assert len(read_results(tmp_path / rows[0]["name"])) == 6


@pytest.mark.parametrize(("model", "setting"), [("uniter", "image"), ("albef", "caption"), ("lxmert", "image")])
def test_run_learns_from_unlabelled_pairs(data: str, tmp_path: Path, model: str, setting: str) -> None:
    training = SMALL.changed(steps=10, check_every=10)
    rows = run(
        tiny(data, tmp_path, model=model, setting=setting, training=training, method="consistency"),
        log=lambda line: None,
    )
    losses = [point["consistency_loss"] for point in read_curve(tmp_path / rows[0]["name"])]
    assert sum(loss is not None and loss > 0 for loss in losses) == 1
    assert {(row["train_examples"], row["unlabelled_examples"]) for row in rows} == {(100, 100)}
    printed = transfer_table(rows)
    assert "100 labelled examples; 100 unlabelled pairs" in " ".join(printed.split()) and "!" not in printed


def test_tokenise_names_an_unknown_word() -> None:
    words = WordTokenizer(grammar_tokenizer())
    assert tokenise(words, ["There is 1 circle object."])
    with pytest.raises(ValueError, match="'zebra'") as caught:
        tokenise(words, ["There is 1 circle object.", "There is 1 zebra object."])
    assert "\n" not in str(caught.value)
