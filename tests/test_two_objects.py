"""Tasks whose couples exchange words between two objects: what the scenes of a couple share, and what tells nothing."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import oracle
from tests.helpers import config_of
from train.data.auxiliary import check_auxiliary_words
from travlr import Example, GenerateArguments, generate_dataset, iterate
from travlr.audit.checks import audit
from travlr.generate import generator
from travlr.questions import make_question, messages, parse
from travlr.scene import COLOURS, IN_DISTRIBUTION, SHAPES, SPLITS
from travlr.tasks import PAPER, TASKS, parse_query, query_text

NAMES = [name for name in TASKS if name not in PAPER]
FORMS = {"existence": ("true_false", "choice")}  # the others have all three
LOOK_ALIKE = {"circle", "octagon", "hexagon"}
NUMBER = 240
Thing = dict[str, Any]


@functools.cache
def examples(name: str, split: str) -> list[Example]:
    config = config_of(f"task={name}", "style.image=plain", "image.cell=48")  # pictures are not looked at
    return list(iterate(config, split, 0, NUMBER))


def read_caption(caption: str) -> list[Thing]:
    pattern = r"an? (?P<size>\w+) (?P<colour>\w+) (?P<shape>\w+) at (?P<column>\w) (?P<row>\d+)"
    return [match.groupdict() for match in re.finditer(pattern, caption)]


def zone(thing: Thing) -> str:
    """VL-CheckList's class of location, from the distance to the centre of a grid of 6 x 6 cells."""
    distance = math.hypot("ABCDEF".index(thing["column"]) - 2.5, int(thing["row"]) - 3.5) / math.hypot(3, 3)
    return "center" if distance <= 1 / 3 else "mid" if distance <= 2 / 3 else "margin"


def described(things: list[Thing], *words: str) -> list[Thing]:
    return [thing for thing in things if set(words) <= set(thing.values())]


def answer_and_pair(things: list[Thing], query: str) -> tuple[bool, tuple[str, ...]]:
    """Answer and pair by a second reading of the query's text."""
    if match := re.fullmatch(r"There is an? (\w+) (\w+)\.", query):
        numbers = [str(len(described(things, word))) for word in match.groups()]
        return bool(described(things, *match.groups())), tuple(numbers)
    if match := re.fullmatch(r"The (\w+) is (\w+) and the (\w+) is (\w+)\.", query):
        (one,), (other,) = described(things, match[1]), described(things, match[3])
        shown = one["colour"], other["colour"]
        return shown == (match[2], match[4]), shown
    if match := re.fullmatch(r"The (\w+) is (\w+)\.", query):
        (one,) = described(things, match[1])
        kind = "size" if match[2] in ("small", "large") else "colour"
        return one[kind] == match[2], (match[1], one[kind])
    match = re.fullmatch(r"An? (\w+) is (to the left of|to the right of|above|below) an? (\w+)\.", query)
    assert match, query
    axis, kind = ("horizontal", "column") if "to the" in match[2] else ("vertical", "row")
    (one,), (other,) = described(things, match[1]), described(things, match[3])
    answer = one[kind] < other[kind] if match[2] in ("to the left of", "above") else one[kind] > other[kind]
    return answer, (axis, one[kind], other[kind])


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_answers_and_pairs_follow_from_texts(name: str) -> None:
    for example in (one for split in SPLITS for one in examples(name, split)):
        assert answer_and_pair(read_caption(example.caption), example.query) == (example.answer, tuple(example.pair))


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_couples_keep_words_by_size_and_zone(name: str) -> None:
    some = [example for split in SPLITS for example in examples(name, split)]
    for one, other in zip(some[::2], some[1::2], strict=True):
        assert (one.query, one.answer) == (other.query, not other.answer)
        first, second = (read_caption(example.caption) for example in (one, other))
        assert [(t["column"], t["row"]) for t in first] == [(t["column"], t["row"]) for t in second]
        changed = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        assert len(changed) == 2
        shapes = {thing["shape"] for thing, _ in changed}
        assert len(shapes) == 2 and not shapes <= LOOK_ALIKE
        words = {kind for a, b in changed for kind in a if a[kind] != b[kind]}
        for kind in ("shape", "colour"):
            if words != {"size"} or kind == "colour":  # which shape is large is asked there
                assert in_sizes_and_zones(first, kind, name) == in_sizes_and_zones(second, kind, name)


def in_sizes_and_zones(things: list[Thing], kind: str, name: str) -> Counter[tuple[str, ...]]:
    """How often each word occurs in each size and zone; relations alone ask about places."""
    return Counter((thing[kind], thing["size"], "" if name == "relation" else zone(thing)) for thing in things)


def salient(things: list[Thing], measure: Callable[[Thing], float], word: str) -> float:
    return max((measure(thing) for thing in described(things, word)), default=-math.inf)


MEASURES: dict[str, Callable[[Thing], float]] = {
    "size": lambda thing: ("small", "medium", "large").index(thing["size"]),
    "centre": lambda thing: -math.hypot("ABCDEF".index(thing["column"]) - 2.5, int(thing["row"]) - 3.5),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("name", NAMES)
def test_two_objects_salience_predicts_nothing(name: str, measure: Any) -> None:
    """Whether the first shape or colour of a query is shown larger, or nearer to the centre, than the second one."""
    leads: dict[bool, list[int]] = {True: [], False: []}
    for example in (e for split in SPLITS for e in examples(name, split)):
        words = [word for word in re.findall(r"\w+", example.query) if word in {*COLOURS, *SHAPES}]
        if len(words) > 1:
            things = read_caption(example.caption)
            first, last = (salient(things, measure, word) for word in (words[0], words[1]))
            leads[example.answer].append((first > last) - (first < last))
    for sign in (-1, 1):
        rates = [np.mean([lead == sign for lead in of]) for of in leads.values()]
        assert abs(rates[0] - rates[1]) < 0.12  # some 400 examples each


def test_attribute_shows_held_out_colours_of_the_queried_shape_only() -> None:
    out = {tuple(pair) for pair in generator(config_of("task=attribute")).sampler.held_out()["pairs"]}
    assert len({shape for shape, _ in out}) == 7
    for split in SPLITS:
        for example in examples("attribute", split):
            shape_of_query = parse_query(example.query).args[0]
            shown = {(t["shape"], t["colour"]) for t in read_caption(example.caption)} & out
            assert {shape for shape, _ in shown} <= ({shape_of_query} if split == "test_ood" else set())


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_hold_queries_and_pairs_apart(name: str) -> None:
    sampler = generator(config_of(f"task={name}")).sampler
    batches = {split: sampler.examples(split, 0, 600) for split in SPLITS}
    queries = {s: {query_text(b.queries[q]) for q in b.query.tolist()} for s, b in batches.items()}
    pairs = {split: {batch.pairs[pair] for pair in batch.pair.tolist()} for split, batch in batches.items()}
    for split in IN_DISTRIBUTION:
        assert not queries[split] & queries["test_ood"] and not pairs[split] & pairs["test_ood"]
    words = [{word for text in queries[side] for word in text.split()} for side in ("train", "test_ood")]
    assert words[1] <= words[0]  # training asks about each word, in other company
    grids = [(grid.tobytes(), q) for b in batches.values() for grid, q in zip(b.grid, b.query.tolist(), strict=True)]
    assert len(set(grids)) == len(grids) == 2400


@pytest.mark.parametrize("name", NAMES)
def test_oracle_answers_every_form_of_two_objects(name: str) -> None:
    for example in (e for split in ("test_ind", "test_ood") for e in examples(name, split)[:60]):
        for form in FORMS.get(name, ("true_false", "choice", "open")):
            question = make_question(example, form)
            (message,) = messages(question, example, "caption")
            text = "\n\n".join(part["text"] for part in message["content"])
            assert parse(oracle.answer(text, None), question) == question.answer, text


@pytest.mark.parametrize("name", ["attribute", "binding"])
def test_open_question_parses_every_wording(name: str) -> None:
    requests: dict[str, set[str]] = {}
    for example in examples(name, "test_ind"):
        question = make_question(example, "open")
        right, wrong = question.answer, next(word for word in question.wordings if word != question.answer)
        for frame in ("{}", "It is {}.", "Answer: {}", "**{}**", "The {}."):
            assert parse(frame.format(right), question) == right and parse(frame.format(wrong), question) == wrong
        for wording in question.wordings[right]:
            assert parse(f"The {wording}.", question) == right
        assert parse(f"{right} or {wrong}", question) is None and parse("I see a picture.", question) is None
        (message,) = messages(question, example, "image")
        requests.setdefault(example.query, set()).add(message["content"][-1]["text"])
    assert all(len(texts) == 1 for texts in requests.values())


@pytest.mark.parametrize("name", ["attribute", "relation", "binding"])
def test_auxiliary_words_begin_with_that_of_true_queries(name: str) -> None:
    some = examples(name, "train")
    check_auxiliary_words([e.query for e in some], [e.pair for e in some], np.array([e.answer for e in some]))


@pytest.mark.parametrize("name", NAMES)
def test_audit_passes_two_objects(name: str, tmp_path: Path) -> None:
    counts = [f"count.{split}=60" for split in SPLITS]
    config = config_of(f"task={name}", *counts)
    generate_dataset(config, GenerateArguments(out=str(tmp_path / "d"), workers=1), log=lambda _: None)
    checks = {check.name: check for check in audit(tmp_path / "d", workers=1)}
    assert [check for check in checks.values() if check.status == "FAIL"] == []
    assert "no recount" not in checks["answer"].detail


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [(["task=existence", "world.colours=[red]"], "world"), (["task=binding", "world.shapes=[circle,octagon]"], "world"),
     (["task=existence", "distractors=[3,8]"], "distractors"), (["task=relation", "distractors=[2,4]"], "distractors"),
     (["task=attribute", "distractors=[4,40]"], "distractors"), (["task=relation", "world.columns=7"], "distractors"),
     (["task=binding", "preset=strict"], "preset")],
)  # fmt: skip
def test_two_objects_name_the_impossible_setting(arguments: list[str], setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        generator(config_of(*arguments))


@pytest.mark.parametrize("name", NAMES)
def test_two_objects_take_other_worlds(name: str) -> None:
    for world in (["world.columns=8", "world.rows=8"], ["world.sizes=[medium]", "world.colours=[red,blue,pink,black]"]):
        further = ["distractors=[6,6]"] if name == "relation" and "world.rows=8" in world else []
        sampler = generator(config_of(f"task={name}", *world, *further)).sampler
        assert all(len(sampler.examples(split, 0, 40).answer) == 40 for split in SPLITS)
