"""Runs from config to results at tiny size: every model and setting, resuming, and what a model cannot know."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from omegaconf import OmegaConf
from sklearn.metrics import f1_score

from scripts import make_results
from tests.helpers import train_settings
from train.config import Optimiser, Recipe, RegionSettings, Run, Training
from train.data import auxiliary
from train.data.batching import visible_modalities
from train.data.examples import Examples, RawExamples, VisualSettings
from train.data.sources import TrainingDataset, stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer, tokenise
from train.fingerprint import fingerprint
from train.learning.batches import test_batches as batches_of_test
from train.learning.module import Learner, confident_cross_entropy
from train.learning.testing import test_matrix as matrix_of
from train.models import MODELS, make_model
from train.results.predictions import read_predictions
from train.results.store import read_config, read_curve, read_results
from train.results.tables import transfer_table
from train.run import run
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, Generator, generate_dataset
from travlr.metrics import measure
from travlr.tasks import TASKS

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited")

SMALL = Training(steps=4, check_every=2)
SIGHT = VisualSettings("regions", RegionSettings())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("data") / "cardinality")
    count = Count(train=200, validation=20, test_ind=20, test_ood=20)
    generate_dataset(Cardinality(count=count), GenerateArguments(out=folder, workers=1), log=lambda line: None)
    return folder


def tiny(data: str, runs: Path, **changes: Any) -> Run:
    values: dict[str, Any] = {"size": "tiny", "training": SMALL, "precision": "float32", "device": "cpu"}
    return Run(data=data, runs=str(runs), optimiser=Optimiser(batch_size=10), **(values | changes))


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def finished(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of UNITER on captions."""
    runs = tmp_path_factory.mktemp("runs")
    return runs / run(tiny(data, runs), log=silent)[0]["name"]


def test_card_has_the_scores_and_the_command(finished: Path) -> None:
    text, record = (finished / "README.md").read_text(), read_config(finished)
    about: Any = ModelCard(text).data
    scores = [(one.dataset_config, one.dataset_split, one.metric_type, one.metric_value) for one in about.eval_results]
    assert set(scores) == {
        (row["test_setting"], row["split"], kind, row[column])
        for row in read_results(finished) for column, kind in (("macro_f1", "f1"), ("accuracy", "accuracy"))
    }  # fmt: skip
    command = next(line for line in text.splitlines() if line.startswith("$ python train.py "))
    config = train_settings(*shlex.split(command)[3:])
    assert fingerprint(config, record["config"]["dataset"]) == record["config"]


LABELS = ("answer", "targets", "pair", "unseen", "values", "objects", "nouns", "sides")


@pytest.mark.parametrize("model", MODELS)
def test_run_of_every_model(data: str, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tested in every setting, without labels; scores are those of the saved predictions."""
    kind: Any = MODELS[model]
    encode, given = kind.encode, []

    def noted(self: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if not self.training:
            given.append([name for name in LABELS if getattr(inputs, name) is not None])
        return encode(self, inputs, *arguments, **options)

    monkeypatch.setattr(kind, "encode", noted)
    text_alone = kind.architecture.sees == "nothing"
    config = tiny(data, tmp_path, model=model, setting="caption" if text_alone else "mixed")
    rows = run(config, log=silent)
    assert given and not any(given)
    tests = ["caption"] if text_alone else ["image", "caption", "image+caption"]
    assert [(row["test_setting"], row["split"]) for row in rows] == [
        (test, split) for split in ("test_ind", "test_ood") for test in tests
    ]
    folder = tmp_path / rows[0]["name"]
    predictions = read_predictions(folder).to_pandas()
    assert len(predictions) == 20 * len(rows)
    for row in rows:
        part = predictions[(predictions.test_setting == row["test_setting"]) & (predictions.split == row["split"])]
        assert row["macro_f1"] == pytest.approx(100 * f1_score(part.answer, part.logit > 0, average="macro"))
        assert row["accuracy"] == pytest.approx(100 * (part.answer == part.prediction).mean())
    assert {point["step"] for point in read_curve(folder)} >= {2, 4}


@pytest.mark.parametrize("words", [["more", "fewer", "more"], ["fewer"], []])
def test_losses_without_targets_are_left_out(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of words have no values; pairs of one word, or of none, have no words at the objects of the query."""
    monkeypatch.setattr(TASKS["cardinality"], "auxiliary_words", staticmethod(lambda pair: words))
    monkeypatch.setattr(auxiliary, "pair_values", lambda pair: [float("nan")] * len(words[1:]))
    tokenizer, rows = WordTokenizer(grammar_tokenizer()), np.arange(8)
    examples = Examples(stream_examples(Generator(Cardinality()), 0, 8), tokenizer, SIGHT)
    image, caption = visible_modalities("caption", rows, None)
    batch = examples.auxiliary(examples.inputs(rows, image, caption), rows, examples.text_rows(rows, caption))
    learner = Learner(make_model("uniter", "tiny", {}, vocabulary=tokenizer.size), Recipe(), 1e-3, steps=1, seed=0)
    losses = learner.losses(batch)
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    others = ["pair_loss", "word_loss"][: min(len(words), 2)]
    assert set(losses) == {"answer_loss", "query_loss", "object_loss", "noun_loss", *others}


def test_consistency_learns_from_sure_predictions_alone() -> None:
    probabilities = np.array([[0.97, 0.02, 0.01], [0.5, 0.3, 0.2], [0.01, 0.01, 0.98], [0.94, 0.05, 0.01]])
    logits = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0]])
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    expected = -(probabilities * logs).sum(1)[[0, 2]].sum() / 4
    loss = confident_cross_entropy(torch.tensor(logits), torch.tensor(probabilities).log())
    assert loss.item() == pytest.approx(expected)


def test_intervals_are_over_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 scenes with eight queries each, right together or wrong together."""
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
    scores, alone = (measure(answers, logits > 0, clusters) for clusters in (which, None))
    model: Any = torch.nn.Identity()
    for row in matrix_of(parts, model, "cpu", "float32")[0]:
        assert [row["interval_low"], row["interval_high"]] == [scores.interval_low, scores.interval_high]
        assert row["interval_high"] - row["interval_low"] > 2 * (alone.interval_high - alone.interval_low)


def test_curve_of_less_than_an_epoch(data: str, tmp_path: Path) -> None:
    training = SMALL.changed(examples=1.0, steps=12, check_every=None)
    (row, *_) = run(tiny(data, tmp_path, training=training), log=silent)
    assert [point["step"] for point in read_curve(tmp_path / row["name"])] == [10, 12]


@pytest.mark.parametrize(
    ("decay", "hold", "middle"), [("linear", 0.0, 0.55), ("cosine", 0.0, 0.55), ("linear", 0.5, 0.82)]
)
def test_learning_rate_rises_and_falls(decay: str, hold: float, middle: float) -> None:
    class Only(Learner):
        def __init__(self) -> None:
            self.recipe, self.rate, self.steps = Recipe(warmup=0.2, hold=hold, decay=decay, final_rate=1e-4), 1e-3, 10

    factors = [Only().factor(step) for step in (0, 1, 2, 6, 10, 11)]
    assert factors == pytest.approx([0.5, 1.0, 1.0, middle, 0.1, 0.1])


def test_run_ends_early_after_a_good_validation(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [93.0, 94.9375, 95.0]  # the fourth validation fails
    monkeypatch.setattr("train.learning.module.macro_f1", lambda *_: scores.pop(0))
    config = tiny(data, tmp_path, training=Training(steps=50, check_every=2))
    with pytest.raises(IndexError):
        run(config, log=silent)
    monkeypatch.setattr("train.learning.module.macro_f1", lambda *_: 0.0)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):  # interrupted after the last step
        patch.setattr("train.run.test_matrix", lambda *_: 1 // 0)
        run(config, log=silent)
    (row, *_) = run(config, log=silent)
    assert row["steps"] == 10  # 6 are 0.7 of 8.6, and a run ends with a validation
    curve = read_curve(tmp_path / row["name"])
    validations = [(point["step"], point["validation_f1"]) for point in curve if point["validation_f1"] is not None]
    assert validations == [(2, 93.0), (4, 94.9375), (6, 95.0), (8, 0.0), (10, 0.0)]


def test_results_page_has_the_command_of_each_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(make_results.DOCS / "results.md.j2", tmp_path)
    shutil.copytree(finished, tmp_path / "results" / finished.name)
    monkeypatch.setattr(make_results, "DOCS", tmp_path)
    make_results.main()
    page = (tmp_path / "results.md").read_text()
    (line,) = re.findall(r"`python train.py (.*)`", page)
    config = Run.model_validate(OmegaConf.to_container(OmegaConf.from_dotlist(line.split())))
    expected = read_config(finished)["config"]
    assert fingerprint(config, expected["dataset"]) == expected
    own = {row["split"]: row["macro_f1"] for row in read_results(finished) if row["test_setting"] == "caption"}
    assert f"{own['test_ind']:.2f} / {own['test_ood']:.2f}" in page


def test_train_seeds_differ(data: str, finished: Path, tmp_path: Path) -> None:
    other = tmp_path / run(tiny(data, tmp_path, seed=1), log=silent)[0]["name"]
    one, two = (read_predictions(folder)["logit"].to_numpy() for folder in (finished, other))
    assert not np.array_equal(one, two)


def test_setting_hides_the_other_modality() -> None:
    maker = Generator(Cardinality())
    raw, other = stream_examples(maker, 0, 20), stream_examples(maker, 500, 520)
    words = WordTokenizer(grammar_tokenizer())

    def batch(setting: str, **changes: Any) -> dict[str, Any]:
        _, inputs = next(batches_of_test(Examples(replace(raw, **changes), words, SIGHT), setting))
        parts = vars(inputs.looked_up())
        return {name: value for name, value in parts.items() if value is not None}

    def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
        return all(torch.equal(one[name], two[name]) for name in one)

    for setting, changes in (("caption", {"grid": other.grid}), ("image", {"captions": other.captions})):
        assert same(batch(setting), batch(setting, **changes))
        assert not same(batch("image+caption"), batch("image+caption", **changes))


def test_streamed_examples_stay_out_of_splits(data: str) -> None:
    source = TrainingDataset(Path(data))
    first = source.config.count.train if source.config else 0

    def keys(raw: RawExamples) -> set[tuple[bytes, str]]:
        return {(row.tobytes(), query) for row, query in zip(raw.grid.astype(np.int16), raw.queries, strict=True)}

    new = keys(stream_examples(source.generator, first, first + 500))
    for split in ("train", "validation", "test_ind", "test_ood"):
        assert not keys(source.raw(split)) & new


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"steps": None}}, "training.steps"),
        ({"method": "consistency", "setting": "mixed"}, "setting=mixed"),
        ({"method": "consistency", "model": "bert"}, "model=bert setting=caption"),
        ({"method": "consistency", "training": {"auxiliary_targets": False}}, "training.examples=null"),
        ({"training": {"epochs": 3, "steps": None}}, "training.examples"),
        ({"model": "bert", "setting": "image"}, "setting=image: model=bert"),
        ({"model": "albef", "controlled": True}, "controlled=true: model=albef"),
        ({"regions": {"source": "secne"}}, "regions.source=secne: .*training.examples"),
    ],
)
def test_run_refuses_impossible_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run(**changes)


def test_run_starts_from_a_finished_one(
    data: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(steps=None, epochs=2, examples=50, check_every=None)
    rows = run(tiny(data, tmp_path, setting="image", start=str(finished), training=training), log=silent)
    assert rows[0]["weights"] == f"run {finished.name}"
    monkeypatch.chdir(finished.parent)  # the same run by another name of its folder
    again = run(tiny(data, tmp_path, setting="image", start=finished.name, training=training), silent)
    assert again == rows == read_results(tmp_path / rows[0]["name"]) and len(rows) == 6
    with pytest.raises(ValueError, match="model=uniter"):
        run(tiny(data, tmp_path, model="lxmert", start=str(finished)), log=silent)


@pytest.mark.parametrize(("model", "setting"), [("albef", "caption"), ("lxmert", "image")])
def test_run_learns_from_unlabelled_pairs(data: str, tmp_path: Path, model: str, setting: str) -> None:
    training = SMALL.changed(steps=10, check_every=10)
    rows = run(tiny(data, tmp_path, model=model, setting=setting, training=training, method="consistency"), log=silent)
    losses = [point["consistency_loss"] for point in read_curve(tmp_path / rows[0]["name"])]
    assert sum(loss is not None and loss > 0 for loss in losses) == 1
    assert {(row["train_examples"], row["unlabelled_examples"]) for row in rows} == {(100, 100)}
    table = " ".join(transfer_table(rows).split())
    assert "100 labelled" in table and "100 unlabelled" in table


def test_tokenise_names_an_unknown_word() -> None:
    words = WordTokenizer(grammar_tokenizer())
    assert tokenise(words, ["There is 1 circle object."])
    with pytest.raises(ValueError, match="'zebra'") as caught:
        tokenise(words, ["There is 1 circle object.", "There is 1 zebra object."])
    assert "\n" not in str(caught.value)
