"""Scoring a corpus: what a scorer is given, what of its failures is kept, and what is left after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from analysis.probe.corpora.items import Answer, Corpus, Item, Unreadable, open_picture
from analysis.probe.report.outcomes import outcomes
from analysis.probe.scorers.scoring import (
    ANSWERS,
    CONFIG,
    ScoredItem,
    _parse,
    delete_answers,
    read_item_answers,
    score_items,
)
from tests.helpers import one_line

QUIET: dict[str, Any] = {"log": lambda _: None}
COLOURS = ("red", "blue", "green", "black", "white")


def corpus_of(folder: Path, pictures: int = 10, each: int = 2) -> Corpus:
    """Pictures of one colour; items of each say which of two it is."""
    folder.mkdir(parents=True, exist_ok=True)
    items = []
    for n in range(pictures):
        colour, other = COLOURS[n % 5], COLOURS[(n + 1) % 5]
        Image.new("RGB", (4, 4), colour).save(folder / f"{n}.png")
        for k in range(each):
            sentences = (f"it is {colour}, {k}",), (f"it is {other}, {k}",)
            items.append(Item(f"{n}-{k}", f"{n}.png", *sentences, "colour", pair=""))
    return Corpus("colours", "checklist", tuple(items), folder)


def looks(image: Image.Image) -> str:
    pixel = image.getpixel((0, 0))
    return next(name for name in COLOURS if Image.new("RGB", (1, 1), name).getpixel((0, 0)) == pixel)


class Seer:
    """Knows colours. `trouble` is called before with the pictures' colours and the sentences."""

    name = "seer"

    def __init__(self, trouble: Any = None) -> None:
        self.trouble = trouble
        self.calls: list[tuple[list[int], list[str]]] = []

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> Any:
        self.calls.append(([id(image) for image in images], list(texts)))
        scores = np.array([float(looks(image) in text) for image, text in zip(images, texts, strict=True)])
        return self.trouble(scores, images, texts) if self.trouble else scores

    @property
    def sizes(self) -> list[int]:
        return [len(texts) for _, texts in self.calls]


def right(answers: Sequence[Answer]) -> list[bool]:
    return [answer.status == "scored" and answer.positives > answer.negatives for answer in answers]


def test_a_picture_is_one_object_and_comes_in_one_call(tmp_path: Path) -> None:
    corpus, seer = corpus_of(tmp_path / "pictures", 10, 3), Seer()
    mixed = replace(corpus, items=corpus.items[::2] + corpus.items[1::2])
    answers = score_items(mixed, seer, tmp_path / "run", batch_size=15, **QUIET)
    assert [answer.id for answer in answers] == [item.id for item in mixed.items]
    assert all(right(answers))
    assert seer.sizes == [12] * 5  # two pictures with six sentences each; a third would be too many
    assert [len(set(pictures)) for pictures, _ in seer.calls] == [2] * 5
    assert sum(seer.sizes) == 60


def test_equal_sentences_of_a_picture_are_scored_once(tmp_path: Path) -> None:
    corpus, seer = corpus_of(tmp_path / "pictures", 1, 1), Seer()
    same = replace(corpus.items[0], id="same", negatives=corpus.items[0].positives)
    answers = score_items(replace(corpus, items=(*corpus.items, same)), seer, tmp_path / "run", **QUIET)
    assert seer.sizes == [2]
    assert answers[1].positives == answers[1].negatives == answers[0].positives


# Failures ------------------------------------------------------------------------------------------------------------


CULPRIT = "it is red, 1"
Spoil = Callable[[np.ndarray, Sequence[str]], Any]


def _raise(error: BaseException) -> Spoil:
    def spoil(scores: np.ndarray, texts: Sequence[str]) -> Any:
        raise error

    return spoil


def _only_culprit(value: float) -> Spoil:
    return lambda scores, texts: np.where([text == CULPRIT for text in texts], value, scores)


TROUBLES: dict[str, tuple[Spoil, str]] = {
    "raises": (_raise(RuntimeError("boom\nover two lines")), "RuntimeError: boom over two lines"),
    "NaN": (_only_culprit(np.nan), "returned nan"),
    "too short": (lambda scores, texts: scores[:-1], "returned scores (1,)"),
    "in words": (lambda scores, texts: [str(score) for score in scores], "needs numbers"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("batch_size", [7, 64])
def test_only_culprits_fail(trouble: str, batch_size: int, tmp_path: Path) -> None:
    spoil, told = TROUBLES[trouble]

    def spoilt(scores: np.ndarray, images: Any, texts: Any) -> Any:
        return spoil(scores, texts) if CULPRIT in texts else scores

    corpus = corpus_of(tmp_path / "pictures", 9, 3)
    answers = score_items(corpus, Seer(spoilt), tmp_path / "run", batch_size=batch_size, **QUIET)
    culprits = [i.id for i in corpus.items if CULPRIT in (*i.positives, *i.negatives)]
    assert 0 < len(culprits) < len(corpus.items)
    assert [answer.id for answer in answers if answer.status == "failed"] == culprits
    assert all(told in one_line(answer.why) for answer in answers if answer.status == "failed")
    assert [answer.id for answer in answers if answer.status == "scored"] == [
        item.id for item in corpus.items if item.id not in culprits
    ]
    assert sum(right(answers)) == len(corpus.items) - len(culprits)


def test_score_names_a_scorer_that_runs_out_of_memory(tmp_path: Path) -> None:
    spoil = _raise(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    seer = Seer(lambda scores, images, texts: spoil(scores, texts))
    with pytest.raises(ValueError, match="use a smaller batch_size"):
        score_items(corpus_of(tmp_path / "pictures"), seer, tmp_path / "run", **QUIET)


def test_pictures_are_counted_as_missing_and_unreadable(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 10, 1)
    folder = tmp_path / "pictures"
    (folder / "0.png").unlink()
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:40])
    (folder / "2.png").write_text("no picture")
    Image.new("L", (4, 4), 0).save(folder / "3.png")  # black, as item 3 says
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(folder / "4.png")  # transparent: white
    (tmp_path / "secret.png").write_bytes((folder / "5.png").read_bytes())
    items = (*corpus.items[:9], replace(corpus.items[9], image="../secret.png"))
    answers = score_items(replace(corpus, items=items), Seer(), tmp_path / "run", **QUIET)
    assert [answer.status for answer in answers] == [
        "missing", "unreadable", "unreadable", *["scored"] * 6, "unreadable"
    ]  # fmt: skip
    assert all(right(answers[3:9]))
    assert "leaves" in answers[9].why and all(one_line(a.why) for a in answers if a.status != "scored")
    without = score_items(replace(corpus, pictures=None), Seer(), tmp_path / "other", **QUIET)
    assert {answer.status for answer in without} == {"missing"}


def test_folders_of_pictures_may_be_links_and_pictures_may_not(tmp_path: Path) -> None:
    folder, disk = tmp_path / "pictures", tmp_path / "disk"
    (disk / "vg").mkdir(parents=True)
    folder.mkdir()
    for place in ("vg/in.png", "out.png"):
        Image.new("RGB", (4, 4)).save(disk / place)
    (folder / "vg").symlink_to(disk / "vg")
    (folder / "file.png").symlink_to(disk / "out.png")
    (disk / "vg/link.png").symlink_to(disk / "out.png")
    assert open_picture(folder, "vg/in.png").size == (4, 4)
    for path in ("vg/../out.png", "file.png", "vg/link.png", "../disk/out.png", str(disk / "out.png")):
        with pytest.raises(Unreadable, match="leaves the folder of pictures"):
            open_picture(folder, path)


# Stopped, and gone on ------------------------------------------------------------------------------------------------


def test_what_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 12, 2)
    whole = score_items(corpus, Seer(), tmp_path / "whole", batch_size=8, **QUIET)

    def stop(scores: np.ndarray, images: Any, texts: Any) -> Any:
        if len(seer.calls) > 3:
            raise KeyboardInterrupt
        return scores

    seer, rest = Seer(stop), Seer()
    with pytest.raises(KeyboardInterrupt):
        score_items(corpus, seer, tmp_path / "run", batch_size=8, **QUIET)
    assert len(read_item_answers(tmp_path / "run" / ANSWERS)) == 12
    assert score_items(corpus, rest, tmp_path / "run", batch_size=8, **QUIET) == whole
    assert sum(rest.sizes) == 24
    assert (tmp_path / "run" / ANSWERS).read_bytes() == (tmp_path / "whole" / ANSWERS).read_bytes()
    again = Seer()
    assert score_items(corpus, again, tmp_path / "run", **QUIET) == whole
    assert again.calls == []


def test_a_line_torn_anywhere_is_asked_again(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 3, 1)
    whole = score_items(corpus, Seer(), tmp_path / "run", **QUIET)
    data = (tmp_path / "run" / ANSWERS).read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for cut in range(last, len(data) - 1, 23):
        (tmp_path / "run" / ANSWERS).write_bytes(data[:cut])
        seer = Seer()
        assert score_items(corpus, seer, tmp_path / "run", **QUIET) == whole
        assert seer.sizes == [2]
    (tmp_path / "run" / ANSWERS).write_bytes(data[:-1])  # whole but for the end of the line
    assert score_items(corpus, Seer(), tmp_path / "run", **QUIET) == whole


def test_what_was_not_scored_is_asked_again_and_what_is_unchanged_is_not_written_again(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 4, 1)
    (tmp_path / "pictures" / "2.png").rename(tmp_path / "2.png")
    assert score_items(corpus, Seer(), tmp_path / "run", **QUIET)[2].status == "missing"
    before = (tmp_path / "run" / ANSWERS).read_bytes()
    assert score_items(corpus, Seer(), tmp_path / "run", **QUIET)[2].status == "missing"
    assert (tmp_path / "run" / ANSWERS).read_bytes() == before
    (tmp_path / "2.png").rename(tmp_path / "pictures" / "2.png")
    seer = Seer()
    assert all(right(score_items(corpus, seer, tmp_path / "run", **QUIET)))
    assert seer.sizes == [2]
    assert all(right([record.answer for record in read_item_answers(tmp_path / "run" / ANSWERS)]))


def test_another_run_is_refused_and_what_is_forgotten_is_asked_again(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 4, 1)
    score_items(corpus, Seer(), tmp_path / "run", fingerprint={"model": "a", "corpus": 1}, **QUIET)
    kept = (tmp_path / "run" / ANSWERS).read_bytes()
    with pytest.raises(ValueError, match="another model") as error:
        score_items(corpus, Seer(), tmp_path / "run", fingerprint={"model": "b", "corpus": 1}, **QUIET)
    one_line(str(error.value))
    assert (tmp_path / "run" / ANSWERS).read_bytes() == kept
    seer = Seer()
    delete_answers(tmp_path / "run")
    score_items(corpus, seer, tmp_path / "run", fingerprint={"model": "a", "corpus": 1}, **QUIET)
    assert seer.sizes == [8]
    assert (tmp_path / "run" / ANSWERS).read_bytes() == kept
    (tmp_path / "run" / CONFIG).write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        score_items(corpus, Seer(), tmp_path / "run", fingerprint={"model": "a", "corpus": 1}, **QUIET)


TEXTS = st.text(st.characters(), max_size=8)
SCORES = st.floats(-1e6, 1e6)


@given(TEXTS, TEXTS, st.lists(st.tuples(TEXTS, SCORES), min_size=1, max_size=3), st.dictionaries(TEXTS, TEXTS))
def test_records_are_read_as_they_were_written(name: str, axis: str, sentences: Any, labels: dict[str, str]) -> None:
    texts, scores = (tuple(part) for part in zip(*sentences, strict=True))
    item = Item(name, f"{name}.png", texts, texts, axis, axis, name, labels)
    for answer in (Answer(name, "scored", scores, scores), Answer(name, "failed", why=axis)):
        record = ScoredItem(item, answer)
        assert record.line.count(b"\n") == 1
        assert _parse(record.line) == record


def test_read_answers_leaves_out_lines_that_are_no_records(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 2, 1)
    score_items(corpus, Seer(), tmp_path / "run", **QUIET)
    lines = (tmp_path / "run" / ANSWERS).read_bytes().splitlines()
    values = json.loads(lines[0])
    changes: list[dict[str, Any]] = [{"status": "guessed"}, {"positive_scores": []}]
    bad = [json.dumps({**values, **change}).encode() for change in changes]
    (tmp_path / "run" / ANSWERS).write_bytes(b"\n".join([*bad, b"null", b"\xff\xfe", lines[1]]) + b"\n")
    assert [record.item.id for record in read_item_answers(tmp_path / "run" / ANSWERS)] == ["1-0"]


# What must not matter ------------------------------------------------------------------------------------------------


class Noisy:
    """Scores with rounding noise that depends on what else is in the batch; some differ by nothing else."""

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        random = np.random.default_rng([len(texts), *map(len, texts)])
        base = np.array([20 + float(looks(i) in t) * (int(t[-1]) % 3) for i, t in zip(images, texts, strict=True)])
        return (base * (1 + 1e-6 * random.uniform(-1, 1, len(texts)))).astype(np.float32)


def test_size_of_batches_and_order_of_items_change_no_decision(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pictures", 10, 6)
    turned = replace(corpus, items=corpus.items[::-1])
    found = {}
    for number, (asked, batch_size) in enumerate([(corpus, 1), (corpus, 64), (corpus, 1000), (turned, 64)]):
        answers = score_items(asked, Noisy(), tmp_path / str(number), batch_size=batch_size, **QUIET)
        one = outcomes(asked.items, answers)
        found[number] = {item.id: (r, t) for item, r, t in zip(asked.items, one.right, one.tie, strict=True)}
        raw = {answer.id: answer.positives > answer.negatives for answer in answers}
        ties = [name for name, (_, tie) in found[number].items() if tie]
        assert len(ties) == 20 and len({raw[name] for name in ties}) == 2  # by noise alone, either could have won
    assert found[0] == found[1] == found[2] == found[3]
