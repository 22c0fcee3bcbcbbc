"""What models are asked, and how their replies are read and scored: all tasks, answer forms, settings and prompts."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import random
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from travlr import Image
from travlr.dataset import Example
from travlr.formats.columns import parse_query_form, query_form
from travlr.generate import iterate
from travlr.questions import FORMS, PROMPTS, WORDING_VERSION, make_question, measure_replies, messages, parse, score
from travlr.questions.forms import SETTINGS, Question
from travlr.questions.objects import ObjectErrors, compare_objects
from travlr.scene import COLOURS, SHAPES, Object, Query, Scene
from travlr.tasks import PAPER, TASKS, query_text, task_class, use_task

NAMES = (*PAPER, OWN := "tests.words:Majority")
FEW = 24
LAX = settings(max_examples=25, suppress_health_check=list(HealthCheck))
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@functools.cache
def examples(name: str, number: int = FEW, split: str = "test_ind") -> list[Example]:
    return list(iterate(use_task(name).Config(task=name, image=Image(cell=8)), split, 0, number))


def request(example: Example, setting: str, form: str = "true_false", *others: Any, **more: Any) -> list[Any]:
    return messages(make_question(example, form), example, setting, *others, **more)


def text_of(message: list[dict[str, Any]]) -> str:
    (text,) = (part["text"] for part in message[0]["content"] if part["type"] == "text")
    return str(text)


# Requests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_messages_show_what_the_setting_allows(name: str, form: str) -> None:
    for example, setting, prompt in itertools.product(examples(name, 4), SETTINGS, PROMPTS):
        message = request(example, setting, form, prompt)
        assert len(message) == 1 and message[0]["role"] == "user"
        content = message[0]["content"]
        assert [part["type"] for part in content] == (["text"] if setting == "caption" else ["image", "text"])
        if setting != "caption":
            assert content[0] == {"type": "image", "image": example.image}
        text = text_of(message)
        assert (example.caption in text) == (setting != "image")
        objects = example.caption.partition("There is ")[2]
        assert (objects in text) == (setting != "image")
        assert make_question(example, form).text in text
        assert "{" not in text and "}" not in text
        assert ("Answer:" in text) == (form != "read" and prompt != "direct")
        cells = form == "read" or prompt == "describe"
        assert ("ordered A to F" in text) == (setting != "image" or cells)
        assert example.id not in text and repr(example.pair) not in text
        if form == "true_false":
            assert example.query in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_messages_hide_the_answer(name: str, form: str) -> None:
    for example in examples(name):
        other = dataclasses.replace(example, answer=not example.answer, pair=("?",))
        for setting, prompt in itertools.product(SETTINGS, PROMPTS):
            assert request(example, setting, form, prompt) == request(other, setting, form, prompt)
        if form in ("true_false", "open"):  # nor, with a picture alone, on the scene
            for one in examples(name, 100):
                if one.query_form == example.query_form:
                    texts = {text_of(request(e, "image", form, "reason")) for e in (one, example)}
                    assert len(texts) == 1


def test_messages_keep_the_wording_of_their_version() -> None:
    """Whoever changes a text raises `version` in wording.toml, and both values here."""
    digest = hashlib.sha256()
    for name in ("spatiality", "cardinality", "quantifiers", "comparison"):
        for form, setting, prompt in itertools.product(FORMS, SETTINGS, PROMPTS):
            for example in examples(name, 4):
                digest.update(text_of(request(example, setting, form, prompt)).encode())
    assert (WORDING_VERSION, digest.hexdigest()[:16]) == ("3", "021a7c9267810718")


def test_messages_refuse_unknown_names() -> None:
    example = examples("cardinality")[0]
    for wrong in ({"setting": "both"}, {"form": "essay"}, {"prompt": "shout"}):
        with pytest.raises(ValueError, match=next(iter(wrong.values()))):
            request(example, **{"setting": "image", **wrong})
    bare = dataclasses.replace(example, caption="A grid.")
    with pytest.raises(ValueError, match="grid="):
        request(bare, "image", "read")
    assert "A to C" in text_of(request(bare, "image", "read", grid=(3, 4)))


def test_make_question_refuses_a_query_about_another_scene() -> None:
    red, blue = Object("red", "circle", "medium", 0, 0), Object("blue", "square", "medium", 3, 0)
    for args, task in (
        (("red circle", "to the left of", "blue square"), "spatiality"),
        (("more", "circle", "square"), "comparison"),
    ):
        example = dataclasses.replace(
            examples(task)[0],
            scene=(red, blue),
            query_form=query_form(Query(task, args)),
            query=query_text(Query(task, args)),
        )
        for form in ("choice", "open"):
            with pytest.raises(ValueError):
                make_question(example, form)


# Answers -------------------------------------------------------------------------------------------------------------


def counted(scene: Scene, words: str) -> int:
    return sum(all(word in (o.colour, o.shape) for word in words.split()) for o in scene)


def implied(task: str, args: tuple[Any, ...], answer: str) -> bool:
    """Whether the query is true, from the answer to the open question alone."""
    if task == "cardinality":
        return int(answer) == args[0]
    if task == OWN:
        return bool(answer == args[0])
    if task == "comparison":
        return answer == (args[1] if args[0] == "more" else args[2])
    if task == "spatiality":
        return answer in args[1].split()
    return (int(answer) == 0) is (args[0] in ("all", "none", "only"))


@pytest.mark.parametrize("split", ["test_ind", "test_ood"])
@pytest.mark.parametrize("name", NAMES)
def test_make_question_agrees_with_the_query_in_every_form(name: str, split: str) -> None:
    for example in examples(name, 100, split):
        query = parse_query_form(example.query_form)
        assert make_question(example).answer == str(example.answer).lower()
        question = make_question(example, "open")
        assert implied(name, query.args, question.answer) == example.answer
        assert not question.wordings or question.answer in question.wordings
        task = task_class(name)
        listed = task.alternatives(example.scene, **task.by_name(query.args))
        alternatives = [tuple(arguments.values()) for arguments in listed]
        cells: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for o in example.scene:
            for words in (o.colour, o.shape, f"{o.colour} {o.shape}"):
                cells[words].add((o.row, o.column))
        true = [args for args in alternatives if (task.recount(cells, **task.by_name(args)) or [False])[0]]
        assert len(true) == 1 and len(set(alternatives)) == len(alternatives) >= 2
        chosen = make_question(example, "choice")
        assert chosen.wordings[chosen.answer][0] + "." == query_text(Query(name, true[0]))
        assert make_question(example, "read").scene == example.scene
        if name == "cardinality":
            assert question.answer == str(counted(example.scene, query.args[1]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != OWN])
def test_make_question_spreads_the_right_letter(name: str) -> None:
    questions = [make_question(example, "choice") for example in examples(name, 400)]
    letters = Counter(question.answer for question in questions)
    expected = len(questions) / len(questions[0].wordings)
    statistic = sum((letters[letter] - expected) ** 2 / expected for letter in questions[0].wordings)
    assert set(letters) == set(questions[0].wordings) and statistic < 20  # p < 0.0002 for up to 4 letters


def test_cardinality_alternatives_do_not_give_the_number_away() -> None:
    """Of uniform numbers, each option of a list is right as often as the others."""
    generator = random.Random(7)
    right: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    cells = list(itertools.product(range(6), range(6)))
    for _ in range(6000):
        places = generator.sample(cells, generator.randint(1, 6))
        scene = tuple(Object("red", "circle", "medium", row, column) for row, column in places)
        listed = TASKS["cardinality"].alternatives(scene, generator.randint(1, 6), "circle")
        right[tuple(args["number"] for args in listed)][len(scene)] += 1
    assert len(right) == 15
    for numbers, times in right.items():
        expected = times.total() / 4
        assert sum((times[n] - expected) ** 2 / expected for n in numbers) < 24


# Replies that give an answer ------------------------------------------------------------------------------------------

UNUSUAL_SPACES = ("X\u00a0", "Answer:\u00a0X", "Answer:\u202fX", "Answer:\tX", "\ufeffX", "X\u200b", "\r\nX\r\n")


def lines_of(text: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in text.splitlines() if line]


REPLIES = tomllib.loads((Path(__file__).parent / "data" / "replies.toml").read_text(encoding="utf-8"))
FRAMES = [*lines_of(REPLIES["frames"]), *UNUSUAL_SPACES]
REFUSALS = lines_of(REPLIES["none"])
TRICKS = {form: lines_of(text) for form, text in REPLIES["tricks"].items()}


def opposite(question: Question) -> list[str]:
    """Valid answers that are wrong."""
    if question.form == "true_false":
        return ["false" if question.answer == "true" else "true"]
    if question.wordings:
        return [answer for answer in question.wordings if answer != question.answer]
    return [str(n) for n in range(13) if str(n) != question.answer]


def sayings(example: Example, question: Question, answer: str, kinds: str = "sayings") -> list[str]:
    """Replies of tests/data/replies.toml that are about this question and answer."""
    query = parse_query_form(example.query_form)
    words = {"answer": answer, "query": example.query, "lower_query": lower_first(example.query), "text": question.text}
    words["other"] = opposite(question)[0] if answer == question.answer else question.answer
    if question.form == "true_false":
        tables, more = ["true_false", answer], truth_words(answer)
    elif question.form == "choice":
        statement = question.wordings[answer][0]
        tables, more = ["letter"], {"statement": statement, "lower_statement": statement.lower()}
    elif query.task == "spatiality":
        tables, more = ["relation"], relation_words(answer, query.args)
    elif question.wordings:
        tables, more = ["comparison"], {"most": plural(answer), "least": plural(words["other"])}
    elif query.task == "quantifiers":
        tables, more = ["subset", f"subset_{answer}"], number_words(answer, question.text) | subset_words(question.text)
        tables += ["subset_not"] if more["negated"] else []
        more["more"] = str(int(answer) + 3)
    else:
        tables, more = ["number", f"number_{answer}"], number_words(answer, question.text)
    words |= more
    for name in ("answer", "yes", "word", "short", "to", "back", "most"):
        word = words.get(name, "")
        words |= {name.capitalize(): word.capitalize(), name.upper(): word.upper(), f"{name}_lower": word.lower()}
    return [line.format_map(words) for table in tables for line in lines_of(REPLIES[kinds].get(table, ""))]


def lower_first(text: str) -> str:
    return text[0].lower() + text[1:]


def plural(words: str) -> str:
    return f"{words}s" if words.split()[-1] in SHAPES else f"{words} objects"


def truth_words(answer: str) -> dict[str, str]:
    true = answer == "true"
    yes, correct = ("yes", "correct") if true else ("no", "incorrect")
    return {"yes": yes, "correct": correct, "initial": answer[0].upper()}


def number_words(answer: str, text: str) -> dict[str, str]:
    kind = next(word for word in text.split() if word in (*SHAPES, *COLOURS))
    verb, s = ("is", "") if answer == "1" else ("are", "s")
    others = next(shape for shape in SHAPES if shape not in text)
    return {"kind": kind, "word": NUMBERS[int(answer)], "verb": verb, "s": s, "others": others}


def subset_words(text: str) -> dict[str, str]:
    """Of a question how many of the X objects are (not) Y objects."""
    match = re.fullmatch(r"How many of the (\w+) objects are (not )?(\w+) objects\?", text)
    assert match
    return {"x": match[1], "negated": match[2] or "", "unlike": "" if match[2] else "not ", "y": match[3]}


def relation_words(answer: str, args: tuple[Any, ...]) -> dict[str, str]:
    first, second = (w if w.split()[-1] in SHAPES else f"{w} object" for w in (args[0], args[2]))
    converse = {"left": "right", "right": "left", "above": "below", "below": "above"}[answer]
    to, back = (f"to the {w} of" if w in ("left", "right") else w for w in (answer, converse))
    short = to.removesuffix(" of")
    synonym = {"above": "over", "below": "under"}.get(answer, answer)
    return {"first": first, "second": second, "to": to, "back": back, "short": short, "synonym": synonym}


ASKING = ("true_false", "choice", "open")


@pytest.mark.parametrize("form", ASKING)
@pytest.mark.parametrize("name", PAPER)
def test_parse_reads_an_answer_in_every_wording(name: str, form: str) -> None:
    assert len(set(FRAMES)) > 100
    wrong = []
    for example in examples(name, 4):
        question = make_question(example, form)
        other = opposite(question)[0]
        for answer in (question.answer, *opposite(question)):
            lines = sayings(example, question, answer)
            replies = [frame.replace("OTHER", other).replace("X", answer) for frame in FRAMES]
            replies += [*lines, *(f"Let me see.\n\nAnswer: {saying}" for saying in lines if "\n" not in saying)]
            replies += [f"<think>\n{other}\n</think>\n\n**{saying}**" for saying in lines if "\n" not in saying]
            wrong += [(question.text, r, answer, parse(r, question)) for r in replies if parse(r, question) != answer]
    assert wrong == []


@LAX
@given(st.data())
def test_parse_reads_a_wrong_answer_as_wrong(data: st.DataObject) -> None:
    """A frame around a wording, in a random case, after a random line that names the right answer."""
    name, form = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(ASKING))
    example = data.draw(st.sampled_from(examples(name)))
    question = make_question(example, form)
    wrong = data.draw(st.sampled_from(opposite(question)))
    saying = data.draw(st.sampled_from(sayings(example, question, wrong)))
    frame = data.draw(st.sampled_from(FRAMES))
    case = data.draw(st.sampled_from(["strip", "upper", "lower", "title"]))
    reply = frame.replace("OTHER", question.answer).replace("X", getattr(saying, case)())
    assert parse(reply, question) in (wrong, None), reply


@LAX
@given(st.data())
def test_parse_rejects_two_answers(data: st.DataObject) -> None:
    name, form = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(ASKING))
    example = data.draw(st.sampled_from(examples(name)))
    question = make_question(example, form)
    both = data.draw(st.permutations([question.answer, data.draw(st.sampled_from(opposite(question)))]))
    first, second = (data.draw(st.sampled_from([a, a.capitalize(), f"**{a}**"])) for a in both)
    for separator in REPLIES["separators"]:
        assert parse(f"{first}{separator}{second}", question) is None, separator
        assert parse(f"Answer: {first}{separator}{second}".replace("\n", " "), question) is None, separator
    assert parse(f"Answer: {first}\nAnswer: {second}", question) is None
    assert parse(f"\\boxed{{{first}}} \\boxed{{{second}}}", question) is None
    assert parse(f"Either {first} or {second}.", question) is None
    assert parse(f"The answer is {first}. The answer is {second}.", question) is None


# Replies that give none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ASKING)
@pytest.mark.parametrize("name", NAMES)
def test_parse_rejects_refusals_and_other_languages(name: str, form: str) -> None:
    question = make_question(examples(name)[0], form)
    assert [(line, parse(line, question)) for line in REFUSALS if parse(line, question) is not None] == []


@pytest.mark.parametrize(("before", "text", "times", "after"), REPLIES["long"])
def test_parse_rejects_empty_and_long_replies(before: str, text: str, times: int, after: str) -> None:
    """A pattern that takes quadratic time would take minutes here."""
    for name, form in (
        ("cardinality", "open"), ("spatiality", "true_false"), ("spatiality", "open"), ("comparison", "choice"),
        ("comparison", "read"),
    ):  # fmt: skip
        question = make_question(examples(name)[0], form)
        reply = (before + text * times + after).replace("{0}", question.answer)
        assert parse(reply, question) in (None, "9" * 99_000)


@LAX
@given(st.text(max_size=300), st.sampled_from(NAMES), st.sampled_from(FORMS))
def test_parse_survives_any_text(text: str, name: str, form: str) -> None:
    example = examples(name)[0]
    question = make_question(example, form)
    for reply in (text, f"Answer: {text}", f"\\boxed{{{text}}}", f"<think>{text}", f"</think>{text}", text * 50):
        score(parse(reply, question), question)


@pytest.mark.parametrize("form", TRICKS)
@pytest.mark.parametrize("name", PAPER)
def test_parse_rejects_what_resembles_an_answer(name: str, form: str) -> None:
    for example in examples(name, 6):
        question = make_question(example, form)
        if form == "open" and question.wordings:
            continue
        assert [(line, parse(line, question)) for line in TRICKS[form] if parse(line, question)] == []


@pytest.mark.parametrize("name", PAPER)
def test_parse_rejects_unclear_replies(name: str) -> None:
    for example in examples(name, 40):
        question = make_question(example, "open")
        replies = sayings(example, question, question.answer, "unclear")
        assert replies and [(reply, parse(reply, question)) for reply in replies if parse(reply, question)] == []


@pytest.mark.parametrize("name", ["spatiality", "comparison"])
def test_parse_reads_relations_turned_around(name: str) -> None:
    for example in examples(name):
        question = make_question(example, "open")
        replies, other = sayings(example, question, question.answer, "opposite"), opposite(question)[0]
        assert replies and [reply for reply in replies if parse(reply, question) != other] == []


# Objects -------------------------------------------------------------------------------------------------------------

SHAPED = ["circle", "square", "star", "hexagon", "pentagon", "octagon", "triangle"]
CELLS = list(itertools.product(range(6), range(6)))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    cells = draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=14, unique=True))
    kinds = [(draw(st.sampled_from(list(COLOURS)[:5])), draw(st.sampled_from(SHAPED))) for _ in cells]
    return tuple(Object(*kind, "medium", *cell) for kind, cell in zip(kinds, cells, strict=True))


def cell(o: Object) -> str:
    return f"{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[o.column]} {o.row + 1}"


LINES, AROUND = (lines_of(REPLIES["objects"][name]) for name in ("line", "around"))


def listing(objects: Scene, line: str, around: str = "{}") -> str:
    lines = []
    for n, o in enumerate(objects, 1):
        x, y = cell(o).split()
        words = {"l": x.lower(), "c": o.colour, "s": o.shape, "C": o.colour.capitalize(), "S": o.shape.capitalize()}
        lines.append(line.format(n=n, a=cell(o), x=x, y=y, **words))
    return around.format("\n".join(lines))


def read(scene: Scene) -> Question:
    return Question("read", "List every object.", "", scene=scene)


@LAX
@given(scenes(), st.sampled_from(AROUND), st.randoms(use_true_random=False))
def test_parse_objects_reads_any_layout_and_order(scene: Scene, around: str, generator: random.Random) -> None:
    question = read(scene)
    for line in LINES:
        shuffled = tuple(generator.sample(scene, len(scene)))
        reply = listing(shuffled, line, around)
        outcome = score(parse(reply, question), question)
        assert outcome.right and outcome.objects == ObjectErrors(len(scene), 0, 0, 0, 0, 0), reply
        one_line = " ".join(listing(shuffled, line).split())
        assert score(parse(one_line, question), question).right, one_line


def listed(text: str) -> Scene | None:
    """The objects of a line such as `red circle A1, blue square C1`."""
    kinds = [re.fullmatch(r"(\w+) (\w+) ([A-Z])(\d+)", one) for one in text.split(", ")]
    return tuple(Object(m[1], m[2], "", int(m[4]) - 1, ord(m[3]) - ord("A")) for m in kinds if m) or None


@pytest.mark.parametrize("line", lines_of(REPLIES["objects"]["read"]))
def test_parse_objects_reads_what_is_listed_and_no_more(line: str) -> None:
    reply, _, objects = line.partition(" ==> ")
    parsed, expected = parse(reply, read(())), listed(objects)
    assert (parsed is None) == (expected is None) and set(parsed or ()) == set(expected or ())
    if expected is None:
        outcome = score(parsed, read((Object("red", "star", "medium", 5, 5),)))
        assert (outcome.right, outcome.parsed, outcome.objects) == (False, None, ObjectErrors(0, 1, 0, 0, 0, 0))


def test_parse_objects_tells_no_objects_from_no_answer() -> None:
    refusals = [reply for reply in REFUSALS if reply != "[]"]
    assert [reply for reply in refusals if parse(reply, read(())) is not None] == []
    assert [reply for reply in REPLIES["objects"]["empty"] if parse(reply, read(())) != ()] == []


@LAX
@given(scenes(), st.sampled_from(REPLIES["objects"]["groups"]))
def test_parse_objects_reads_headings(scene: Scene, group: list[str]) -> None:
    heading, line, shared = group
    lines: list[str] = []
    for o in sorted(scene, key=lambda o: [str(getattr(o, name)) for name in shared.split()]):
        if (over := listing((o,), heading)) not in lines:
            lines.append(over)
        lines.append(listing((o,), line))
    reply = "\n".join(lines)
    assert score(parse(reply, read(scene)), read(scene)).right, reply


def recounted(scene: Scene, objects: Scene) -> dict[str, int]:
    """A second count of the errors, for scenes and replies that name a cell once each."""
    truth = {(o.row, o.column): (o.colour, o.shape) for o in scene}
    reply = {(o.row, o.column): (o.colour, o.shape) for o in objects}
    errors = dict.fromkeys(("found", "missed", "invented", "misplaced", "miscoloured", "misshaped"), 0)
    lost, odd = [], []
    for at in truth.keys() | reply.keys():
        a, b = truth.get(at), reply.get(at)
        if a == b:
            errors["found"] += 1
        elif a and b and a[1] == b[1]:
            errors["miscoloured"] += 1
        elif a and b and a[0] == b[0]:
            errors["misshaped"] += 1
        else:
            lost += [a] if a else []
            odd += [b] if b else []
    for kind in list(odd):
        if kind in lost:
            lost.remove(kind)
            odd.remove(kind)
            errors["misplaced"] += 1
    return errors | {"missed": len(lost), "invented": len(odd)}


@LAX
@given(scenes(), scenes())
def test_compare_objects_agrees_with_a_second_count(scene: Scene, other: Scene) -> None:
    half = scene[: len(scene) // 2]
    taken = {(o.row, o.column) for o in half}
    mixed = (*half, *(o for o in other if (o.row, o.column) not in taken))
    one, rest = scene[0], scene[1:]
    changed = [dataclasses.replace(one, **change) for change in (
        {"row": 98, "column": 25}, {"colour": "purple"}, {"shape": "parallelogram"})]  # fmt: skip
    for objects in (scene, other, mixed, rest, *((*rest, o) for o in changed), (*scene, changed[0]), (*scene, one)):
        parsed = parse(listing(objects, LINES[0]), read(scene)) or ()
        assert not isinstance(parsed, str)
        errors = compare_objects(scene, parsed)
        assert dataclasses.asdict(errors) == recounted(scene, objects)
        assert errors.exact == (recounted(scene, objects)["found"] == len(scene) == len(set(objects)))
        assert not parsed or score(parsed, read(scene)).right == errors.exact


# Scores --------------------------------------------------------------------------------------------------------------


@LAX
@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from([*"ABCDE", None])), min_size=1, max_size=40))
def test_measure_replies_agrees_with_scikit_learn(pairs: list[tuple[str, str | None]]) -> None:
    outcomes = [score(given, Question("choice", "?", answer, dict.fromkeys("ABCDE", ("",)))) for answer, given in pairs]
    answers, replies = [answer for answer, _ in pairs], [given or "none" for _, given in pairs]
    result = measure_replies(outcomes)
    assert result.examples == len(pairs)
    assert result.accuracy == pytest.approx(100 * accuracy_score(answers, replies))
    f1 = f1_score(answers, replies, labels=sorted(set(answers)), average="macro", zero_division=0)
    assert result.macro_f1 == pytest.approx(100 * f1)
    assert result.unparsed == pytest.approx(100 * replies.count("none") / len(pairs))
    assert result.chance == pytest.approx(100 * max(accuracy_score(answers, [a] * len(pairs)) for a in answers))
    parsed = [(answer, given) for answer, given in pairs if given]
    excess = {a: sum(given == a for _, given in parsed) - sum(answer == a for answer, _ in parsed) for a in "ABCDE"}
    if not parsed or max(excess.values()) == 0:
        assert (result.bias, result.bias_answer) == (0, None)
    else:
        assert result.bias == pytest.approx(100 * max(excess.values()) / len(parsed))
        assert result.bias_answer is not None and excess[result.bias_answer] == max(excess.values())


def test_measure_replies_of_lists_is_the_f1_of_objects() -> None:
    scene = tuple(Object("red", "circle", "medium", row, 0) for row in range(4))
    replies = (
        "a red circle at A 1\na red circle at A 2\na blue circle at A 3",
        "no idea",
        "a red circle at A 1\na red star at F 6",
    )
    outcomes = [score(parse(reply, read(scene)), read(scene)) for reply in replies]
    result = measure_replies(outcomes)
    assert result.macro_f1 == pytest.approx(100 * 2 * 3 / (12 + 5))  # 3 found, of 12 in the scenes and 5 in the replies
    assert (result.accuracy, result.chance, result.bias_answer) == (0, 0, None)
    assert result.unparsed == pytest.approx(100 / 3)
    with pytest.raises(ValueError):
        measure_replies([])
