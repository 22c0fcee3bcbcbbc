"""Other people's questions, asked of any model by the same command: a function, CLIP, a chat model, a server, and a
finished run of ours, which is refused."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests import tiny_chat
from tests.chat_server import ChatServer, text_and_picture
from tests.corpus_files import convert
from tests.helpers import ROOT, config_of, generated
from tests.tiny import saved
from train.ask.config import Evaluation, ShownStyle
from train.ask.evaluation import evaluate
from train.ask.examples import ShownExamples
from train.results.answers import AnswerRecord, read_answers
from train.results.store import ANSWERS
from travlr.dataset import open_dataset

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}
SHAPES = ("circle", "star")


def brightness(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
    """How much of the first colour of its text a picture has, as a part from 0 to 1."""
    colours = [0 if "red" in text else 2 for text in texts]
    return np.array([np.asarray(image)[..., c].mean() / 255 for image, c in zip(images, colours, strict=True)])


brightness.threshold = 0.5  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve couples of a red and a blue picture that exchange their sentences, on two axes."""
    folder = tmp_path_factory.mktemp("corpus") / "source"
    (folder / "images").mkdir(parents=True)
    records: list[dict[str, Any]] = []
    for n in range(12):
        for colour, other in (("red", "blue"), ("blue", "red")):
            image, shape = f"{colour}-{n}.png", SHAPES[n % 2]
            pixels = np.full((24 + n, 30, 3), COLOURS[colour], np.uint8)
            pixels[:n] = n
            Image.fromarray(pixels).save(folder / "images" / image)
            texts = {"true": [f"a {colour} {shape}"], "false": [f"a {other} {shape}", f"the {other} {shape}"]}
            records.append({"image": image, **texts, "axis": shape, "couple": str(n)})
    (folder / "colours.json").write_text(json.dumps(records))
    convert(folder, folder.parent / "data", name="Colours")
    return folder.parent / "data"


def ask_about(model: str, corpus: Path, runs: Path, **changes: Any) -> tuple[dict[str, Any], list[AnswerRecord]]:
    """The row of an evaluation, and its answers."""
    (row,) = evaluate(Evaluation(model=model, data=str(corpus), runs=str(runs), **changes), log=lambda _: None)
    return row, read_answers(runs / row["name"])


def ranked_right(answers: Sequence[AnswerRecord]) -> float:
    """Percent of items whose true sentence has a higher score than the mean of the false ones, by a loop."""
    items: dict[str, list[AnswerRecord]] = {}
    for answer in answers:
        items.setdefault(answer.id.rpartition("/")[0], []).append(answer)
    right = []
    for of_item in items.values():
        true, false = ([a.score or 0.0 for a in of_item if a.answer == value] for value in ("true", "false"))
        right.append(np.mean(true) > np.mean(false) + 1e-5)
    return 100 * float(np.mean(right))


def test_evaluate_asks_a_function_about_a_corpus(corpus: Path, tmp_path: Path) -> None:
    row, answers = ask_about("tests.test_ask_corpora:brightness", corpus, tmp_path)
    assert (row["task"], row["test_setting"], row["split"], row["examples"]) == ("match", "image", "test_ind", 72)
    assert row["ranked"] == ranked_right(answers) == 100 and row["both_ranked"] == 100
    assert row["image_score"] == row["group_score"] == 100
    right = [(a.score is not None and a.score > 0.5) == (a.answer == "true") for a in answers]
    assert [a.right for a in answers] == right and row["accuracy"] == pytest.approx(100 * np.mean(right))
    assert set(json.loads(row["groups"])) == {"circle", "star"} and "Colours" in row["name"]


def test_evaluate_shows_blank_and_shuffled_pictures(corpus: Path, tmp_path: Path) -> None:
    name = "tests.test_ask_corpora:brightness"
    row, answers = ask_about(name, corpus, tmp_path, style=ShownStyle(image="blank"))
    assert {a.score for a in answers} == {1.0} and (row["ranked"], row["both_ranked"]) == (0, 0)  # ties are wrong
    whole, shuffled = ask_about(name, corpus, tmp_path, style=ShownStyle(image="shuffled"))
    assert 0 < whole["ranked"] < 100
    few = Evaluation(model=name, data=str(corpus), runs=str(tmp_path / "few"), limit=20, style={"image": "shuffled"})
    (row,) = evaluate(few, log=lambda _: None)
    assert row["examples"] == 18  # whole couples of six sentences
    scores = {a.id: a.score for a in shuffled}
    assert all(scores[a.id] == a.score for a in read_answers(tmp_path / "few" / row["name"]))  # of any limit


def test_shuffled_pictures_are_those_of_other_items(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.ask.examples.BLOCK", 15)
    dataset = open_dataset(corpus)
    config = Evaluation(model="none", data=str(corpus), limit=None, style={"image": "shuffled"})
    own = {row["id"]: row["image"] for row in dataset["test_ind"].columns("id", "image").to_pylist()}
    of_path = {image["path"]: image["bytes"] for image in own.values()}
    shown = list(ShownExamples(config, dataset).shown("test_ind"))
    assert [example.id for example, _ in shown] == list(own)
    for example, path in shown:
        assert example.image == of_path[path] != own[example.id]["bytes"]
    assert {path for _, path in shown} == set(of_path)  # an exchange: every picture is shown


def test_evaluate_asks_clip_about_a_corpus(corpus: Path, tmp_path: Path) -> None:
    library: Any = transformers
    folder = saved("clip", tmp_path / "clip")
    row, answers = ask_about(str(folder), corpus, tmp_path / "runs")
    assert row["accuracy"] is row["macro_f1"] is row["unparsed"] is None and row["model"] == "clip"
    assert row["ranked"] == pytest.approx(ranked_right(answers)) and row["ranked_low"] <= row["ranked"]
    model, tokenizer = library.CLIPModel.from_pretrained(folder).eval(), library.CLIPTokenizer.from_pretrained(folder)
    picture = Image.open(corpus.parent / "source/images" / "red-3.png").convert("RGB")
    processor = library.CLIPImageProcessorPil.from_pretrained(folder)
    pixels = processor(images=picture, return_tensors="pt")["pixel_values"]
    words = tokenizer("a red star", return_tensors="pt")
    with torch.no_grad():
        out = model(pixel_values=pixels, input_ids=words["input_ids"], attention_mask=words["attention_mask"])
        expected = float(out.logits_per_image / model.logit_scale.exp())
    (answer,) = [a for a in answers if a.score is not None and a.id == answer_id(corpus, "red-3.png", "a red star")]
    assert answer.score == pytest.approx(expected, abs=1e-6) and (answer.parsed, answer.right) == (None, None)


def test_evaluate_counts_a_long_text_as_no_answer(tmp_path: Path) -> None:
    (tmp_path / "source/images").mkdir(parents=True)
    for n in range(2):
        Image.new("RGB", (9, 9), (90 * n, 9, 9)).save(tmp_path / f"source/images/{n}.png")
    texts = ["a star", "a circle", "a star is above the circle and " * 9]
    records = [
        {"image": "0.png", "true": texts[:1], "false": texts[2:]},
        {"image": "1.png", "true": texts[1:2], "false": texts[2:]},
    ]
    (tmp_path / "source/long.json").write_text(json.dumps(records))
    convert(tmp_path / "source", tmp_path / "data")
    row, answers = ask_about(str(saved("clip", tmp_path / "clip")), tmp_path / "data", tmp_path / "runs")
    assert (row["examples"], row["ranked"], row["accuracy"]) == (4, 0, None)
    assert [answer.finish for answer in answers if answer.score is None] == ["refused"] * 2
    assert all("takes 40 tokens" in answer.reply for answer in answers if answer.finish)


def ink(images: Sequence[Image.Image], texts: Sequence[str]) -> list[float]:
    return [float((np.asarray(image) < 255).any(-1).sum()) for image in images]


@pytest.mark.usefixtures("rules_not_fitted")
def test_evaluate_asks_a_matcher_about_scenes(tmp_path: Path) -> None:
    config = config_of(
        "task=cardinality", "count.train=40", "count.validation=2", "count.test_ind=20", "count.test_ood=20"
    )
    folder = generated(tmp_path / "data", config)
    values = {"model": "tests.test_ask_corpora:ink", "data": str(folder), "runs": str(tmp_path)}
    rows = evaluate(Evaluation(**values), log=lambda _: None)
    assert [(row["task"], row["test_setting"], row["split"]) for row in rows] == [
        ("cardinality", "image", "test_ind"), ("cardinality", "image", "test_ood"),
    ]  # fmt: skip
    for row in rows:
        examples = open_dataset(folder)[row["split"]][:]
        scores = ink([example.picture() for example in examples], [])
        true = [score for score, example in zip(scores, examples, strict=True) if example.answer]
        false = [score for score, example in zip(scores, examples, strict=True) if not example.answer]
        assert row["ranked"] == pytest.approx(100 * np.mean(np.array(true) > np.array(false)))
        assert row["accuracy"] is None and row["both_ranked"] is None


def answer_id(corpus: Path, picture: str, sentence: str) -> str:
    table = open_dataset(corpus)["test_ind"].columns()
    return next(r["id"] for r in table.to_pylist() if (r["image"]["path"], r["query"]) == (picture, sentence))


@pytest.mark.parametrize("answers", ["generate", "likelihood"])
def test_evaluate_asks_a_chat_model_about_a_corpus(answers: str, corpus: Path, tmp_path: Path) -> None:
    tiny_chat.saved("gemma3", tmp_path / "gemma3")
    row, replies = ask_about(
        str(tmp_path / "gemma3"), corpus, tmp_path / "runs", limit=12, answers=answers, max_tokens=4, batch_size=4
    )  # fmt: skip
    assert row["examples"] == 12 and row["unparsed"] is not None
    assert all((reply.score is None) == (answers == "generate") for reply in replies)
    if answers == "likelihood":
        for reply in replies:
            assert reply.log_probabilities is not None
            assert reply.score == reply.log_probabilities["true"] - reply.log_probabilities["false"]
        assert row["ranked"] == pytest.approx(ranked_right(replies))


@pytest.mark.parametrize("answers", ["generate", "likelihood"])
def test_evaluate_asks_a_server_about_a_corpus(answers: str, corpus: Path, tmp_path: Path) -> None:
    def respond(body: dict[str, Any]) -> str:
        text, picture = text_and_picture(body)
        assert picture is not None and "grid" not in text
        red, _, blue = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).mean((0, 1))
        return "true" if ("red" in text) == (red > blue) else "false"

    with ChatServer(respond) as server:
        row, _ = ask_about(f"{server.url}#tiny", corpus, tmp_path, answers=answers)
    assert (row["accuracy"], row["ranked"], row["both_ranked"], row["couples_right"]) == (100, 100, 100, 100)


def test_evaluate_goes_on_after_a_kill(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules_not_fitted: None
) -> None:
    """The process kills itself in its second call of the function; the same evaluation scores the rest alone."""
    monkeypatch.chdir(tmp_path)
    Path("mortal.py").write_text(
        "import os, pathlib, signal\n"
        "def score(images, texts):\n"
        "    pathlib.Path('calls').open('a').write(f'{len(texts)}\\n')\n"
        "    if pathlib.Path('calls').read_text().count('\\n') == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return [len(text) for text in texts]\n"
    )
    program = [sys.executable, str(ROOT / "evaluate.py"), "model=mortal:score", f"data={corpus}", "batch_size=24"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    (answers,) = Path("runs").glob(f"*/{ANSWERS}")
    with answers.open("a") as file:
        file.write('{"id": "cut o')  # a line that the kill cut off
    row, _ = ask_about("mortal:score", corpus, Path("runs"), batch_size=24)
    calls = [int(line) for line in Path("calls").read_text().split()]
    assert calls[0] + sum(calls[2:]) == 72 == len(answers.read_text().splitlines())
    whole, _ = ask_about("mortal:score", corpus, Path("whole"))
    assert {**row, "created": ""} == {**whole, "created": ""}


@pytest.mark.parametrize(
    ("changes", "setting"),
    [({"setting": ["caption"]}, "setting=caption"), ({"form": "choice"}, "form=choice"),
     ({"style": {"image": "labelled"}}, "style"), ({"split": ["test_ood"]}, "test_ood"),
     ({"prompt": "reason"}, "prompt=reason"), ({"regions": "features"}, "regions"),
     ({"task": "cardinality"}, "task=match")],
)  # fmt: skip
def test_evaluate_names_what_a_corpus_or_a_matcher_lacks(
    changes: dict[str, Any], setting: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=setting) as error:
        ask_about("tests.test_ask_corpora:brightness", corpus, tmp_path, **changes)
    assert "\n" not in str(error.value)
