"""The report's sections about evaluated models and corpora, and its cards: recomputed by loops from the answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from analysis.frames import Runs, read_runs
from analysis.sections import corpora, evaluations
from analysis.sections.errors import error_cards, errors_viewer
from tests.corpus_files import convert
from tests.grid import make_run
from tests.helpers import generated
from tests.oracle import answer
from tests.test_evaluation import Scripted, ask
from train.ask.config import Evaluation, ShownStyle
from train.ask.evaluation import evaluate
from train.results.answers import read_answers
from travlr import Comparison
from travlr import Image as ImageSettings
from travlr.config import Count
from travlr.corpora.taxonomy import TAXONOMY

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


def redness(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
    """How much of its text's colour a picture has; dark pictures look blue."""
    scores = []
    for image, text in zip(images, texts, strict=True):
        red, _, blue = np.asarray(image).reshape(-1, 3).mean(axis=0) / 255
        scores.append(red if "red" in text else max(blue, 0.6 - red))
    return np.array(scores)


redness.threshold = 0.5  # type: ignore[attr-defined]


def length(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
    """A model that ranks by the number of characters alone."""
    return np.array([float(len(text)) for text in texts])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two functions asked about a corpus with the axes of VL-CheckList, one of them with blank pictures, too."""
    base = tmp_path_factory.mktemp("asked")
    (base / "source/images").mkdir(parents=True)
    records: list[dict[str, Any]] = []
    for n in range(4 * len(TAXONOMY)):
        for colour, other in (("red", "blue"), ("blue", "red")):
            level = 1 - 0.05 * (n % 16)  # the later ones are dark
            pixels = np.full((16, 16, 3), [int(level * c) for c in COLOURS[colour]], np.uint8)
            pixels[0, 0] = n
            Image.fromarray(pixels).save(base / "source/images" / f"{colour}-{n}.png")
            record = {"true": [f"a {colour} ball"], "false": [f"a {other} ball"], "couple": str(n)}
            labels = {"relation": "on" if n % 3 else "under"}
            place = {"image": f"{colour}-{n}.png", "axis": TAXONOMY[n % len(TAXONOMY)]}
            records.append({**record, **place, "labels": labels})
    (base / "source/balls.json").write_text(json.dumps(records))
    convert(base / "source", base / "data", name="Balls")
    for name, style in (("redness", "plain"), ("redness", "blank"), ("length", "plain")):
        style_of_run = ShownStyle() if style == "plain" else ShownStyle(image="blank")
        config = Evaluation(model=f"tests.test_sections:{name}", data=str(base / "data"), runs=str(base / "runs"))
        evaluate(config.changed(style=style_of_run), log=lambda _: None)
    return read_runs(base / "runs")


def content(parts: list[evaluations.Section], title: str) -> pd.DataFrame:
    [frame] = [part.content for part in parts if title in part.title and isinstance(part.content, pd.DataFrame)]
    return frame


def items_by_loop(runs: Runs, name: str) -> dict[str, bool]:
    """Whether the true sentence of each item scores higher."""
    scores: dict[str, dict[str, float]] = {}
    for one in read_answers(runs.folder / name):
        scores.setdefault(one.id.rpartition("/")[0], {})[one.answer] = float(one.score or 0)
    return {item: s["true"] > s["false"] + 1e-5 for item, s in scores.items()}


def test_corpus_scores_are_those_of_a_loop(asked: Runs) -> None:
    parts = corpora.describe_corpora(asked)
    scores = content(parts, "scores")
    rows = asked.results[asked.results["image_style"] != "blank"].set_index("model")
    for model, row in rows.iterrows():
        right = items_by_loop(asked, row["name"])
        percent = 100 * np.mean(list(right.values()))
        assert scores.loc[model, "ranked [95 %]"].startswith(f"{percent:.1f} [")
        assert row["ranked"] == pytest.approx(percent)
        assert scores.loc[model, "both [95 %]"].startswith(f"{row['both_ranked']:.1f} [")
    assert scores.filter(like="redness", axis=0)["blank"].to_list() == ["0.0"]  # ties are wrong
    assert scores.loc["blind rule: shorter sentence", "ranked [95 %]"].startswith("50.0 [")
    table = content(parts, "items ranked right by axis")
    assert set(table["best blind rule"]) == {"50.0"}  # couples exchange their sentences
    assert set(table.index) == set(TAXONOMY) and set(table["number"]) == {"8"}
    [redness_row] = [row for model, row in rows.iterrows() if "redness" in str(model)]
    right = items_by_loop(asked, redness_row["name"])
    axes = asked.examples(redness_row["dataset"], ["test_ind"]).drop_duplicates("item").set_index("item")["kind"]
    means = pd.Series(right).groupby(axes.reindex(list(right)).astype(str).to_numpy()).mean()
    shown = table[next(name for name in table if "redness" in name)].str.partition(" ")[0].astype(float)
    assert shown.to_dict() == pytest.approx((100 * means).round(1).to_dict(), abs=0.051)


def test_a_refused_sentence_does_not_judge_a_model_that_only_ranks(asked: Runs, tmp_path: Path) -> None:
    shutil.copytree(asked.folder, tmp_path / "runs")
    [path] = (tmp_path / "runs").glob("*length*/answers.jsonl")
    first, *others = path.read_text().splitlines()
    refused = {**json.loads(first), "score": None, "reply": "too long", "finish": "refused"}
    path.write_text("\n".join([json.dumps(refused), *others, ""]))
    runs = read_runs(tmp_path / "runs")
    scores = content(corpora.describe_corpora(runs), "scores").filter(like="length", axis=0)
    assert scores["accuracy [95 %]"].to_list() == scores["no answer"].to_list() == [""]
    lines = [line for card in error_cards(runs, 500) for line in card.rows if "length" in line["model"]]
    assert lines and {line["outcome"] for line in lines} == {"wrong"}


def test_corpus_sections_compare_models_and_average_axes(asked: Runs) -> None:
    parts = corpora.describe_corpora(asked)
    [line] = content(parts, "models compared").to_dict("records")
    assert line["items"] == f"{8 * len(TAXONOMY)}" and line["p"] == line["p (Holm)"]  # of one comparison
    averages = content(parts, "averages")
    assert {"Object", "all"} <= set(averages.index) and averages.loc["Object"].ne("").all()
    means = content(parts, "means over relations")
    for name, model in asked.results[asked.results["image_style"] != "blank"][["name", "model"]].to_numpy():
        right = pd.Series(items_by_loop(asked, name))
        under = np.array([int(item.rpartition("/")[2]) // 2 % 3 == 0 for item in right.index])
        assert means.loc[model, "relation (2)"] == f"{50 * right[under].mean() + 50 * right[~under].mean():.1f}"
    figures = [part for part in parts if isinstance(part.content, Figure)]
    assert len(figures) == 3  # bars, radar, places and sizes


def test_cards_show_the_wrong_items_of_a_corpus(asked: Runs) -> None:
    [name] = asked.results[asked.results["model"].str.contains("length")]["name"]
    right = items_by_loop(asked, name)
    cards = list(error_cards(asked.select(name=name), each=10_000))
    assert {card.id.rpartition("/")[0] for card in cards} == {item for item, value in right.items() if not value}
    assert all(card.text.count("\n") == 1 and card.text.startswith("✓ ") for card in cards)


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A model that takes octagons for circles, asked in two forms; and a trained run."""
    config = Comparison(count=Count(train=60, validation=20, test_ind=40, test_ood=40), image=ImageSettings(cell=36))
    data = generated(tmp_path / "comparison", config)

    def confused(text: str, picture: bytes | None) -> str:
        return answer(text, picture, lambda o: replace(o, shape="circle") if o.shape == "octagon" else o)

    for form in ("true_false", "read"):
        ask(monkeypatch, Scripted(confused), data, tmp_path / "runs", form=form, limit=20)
    make_run(tmp_path / "runs", data, lambda *_: 0.8)
    return read_runs(tmp_path / "runs")


def test_evaluation_sections_have_the_numbers_of_the_answers(scripted: Runs) -> None:
    parts = evaluations.describe_evaluations(scripted)
    assert len(parts) == 6 and isinstance(parts[-1].content, Figure)
    results = scripted.evaluations
    accuracy = content(parts, "Accuracy of evaluated models")
    for row in results.to_dict("records"):
        text = accuracy.loc[("scripted", f"{row['form']}, direct"), (row["task"], row["test_setting"], row["split"])]
        assert text.startswith(f"{row['accuracy']:.1f}")
    found = content(parts, "number and place").xs("caption", level="test_setting")
    assert set(found.to_numpy().ravel()) <= {"100.0", ""}
    losses = evaluations.count_losses(evaluations.label_evaluations(results))
    for line in losses.to_dict("records"):
        of_line = results[(results["form"] == "true_false") & (results["split"] == line["split"])]
        image = of_line.set_index("test_setting").loc["image", "accuracy"]
        assert line["image"] == image and line["reasoning"] == line["gap"] == line["unparsed"] == 0
        assert line["image"] + line["seeing"] + line["using"] == pytest.approx(100)
    assert losses["seeing"].sum() > 0


def test_losses_count_replies_without_an_answer_apart() -> None:
    shared = {"model": "m", "question": "true_false, direct", "form": "true_false", "image_style": "plain",
              "dataset": "d", "task": "t", "split": "test_ood", "chance": 50.0}  # fmt: skip
    rows = [("image", 40.0, 50.0), ("caption", 90.0, 0.0)]
    results = pd.DataFrame([shared | {"test_setting": s, "accuracy": a, "unparsed": u} for s, a, u in rows])
    [line] = evaluations.count_losses(results).to_dict("records")
    assert (line["image"], line["unparsed"]) == (40, 50)  # 80 % of the parsed half
    assert (line["gap"], line["reasoning"]) == (pytest.approx(5), pytest.approx(5))  # of 90 and 100, halved
    results["unparsed"], results["accuracy"] = [0.0, 100.0], [100.0, 0.0]
    [line] = evaluations.count_losses(results).to_dict("records")
    assert np.isnan([line[part] for part in ("using", "seeing", "gap", "reasoning")]).all()


def test_cards_are_of_wrong_answers_and_name_all_that_gave_them(scripted: Runs) -> None:
    wrong: dict[tuple[str, str], set[tuple[str, str]]] = {}
    frame = scripted.predictions()
    for row in frame[~frame["right"].astype(bool)].to_dict("records"):
        wrong.setdefault((row["id"], row["split"]), set()).add((row["name"], row["test_setting"]))
    cards = list(error_cards(scripted, each=10_000))
    assert {(card.id, card.columns["split"]) for card in cards} == set(wrong)
    for card in cards:
        gave = {(row["run"], row["test_setting"]) for row in card.rows}
        assert gave == wrong[card.id, card.columns["split"]]
    few = errors_viewer(scripted, each=6)
    assert 0 < len(few["cards"]) < len(cards) and set(few["choices"]["outcome"]) <= {"wrong", "no answer"}
