"""Corpora from scenes, checked from their files alone: sentences are parsed, and objects read back from the pixels."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from scipy import ndimage

from analysis.probe.corpora import predicate_noun
from analysis.probe.corpora.items import Corpus, Item, open_picture
from analysis.probe.scenes import corpus as scenes
from analysis.probe.scenes import drawing
from analysis.probe.scenes.corpus import build_corpus, read_corpus, truths
from analysis.probe.scenes.records import make_item
from analysis.probe.scenes.salience import from_pixels
from analysis.probe.scenes.scene_pairs import FORMAT_VERSION, PAIR_KINDS, PairKind, ScenePair
from tests.helpers import hashes
from travlr.corpora.taxonomy import TAXONOMY
from travlr.scene import COLOURS

COUNTS = {"checklist": 144, "predicate_noun": 60}
PAPER = ("red", "blue", "green", "yellow", "orange")


@dataclass(frozen=True)
class Seen:
    """An object as it is read from pixels."""

    colour: str
    shape: str
    box: tuple[int, int, int, int]

    @property
    def size(self) -> str:
        area = self.box[2] * self.box[3]
        return "small" if area <= 32 * 32 else "medium" if area <= 96 * 96 else "large"

    @property
    def words(self) -> set[str]:
        return {self.colour, self.shape, self.size}

    @property
    def centre(self) -> tuple[float, float]:
        return self.box[0] + self.box[2] / 2, self.box[1] + self.box[3] / 2


def ring(corners: int, start: float, inner: float = 1.0) -> list[tuple[float, float]]:
    """A regular polygon; angles in degrees clockwise from straight up."""
    angles = [math.radians(start + 360 * n / corners) for n in range(corners)]
    radii = [inner if n % 2 else 1.0 for n in range(corners)]
    return [(r * math.sin(a), -r * math.cos(a)) for a, r in zip(angles, radii, strict=True)]


CORNERS = {
    "square": ring(4, 45),
    "triangle": [(0.0, 0.0), (1.0, 1.8), (-1.0, 1.8)],
    "star": ring(10, 0, 0.4),
    "hexagon": ring(6, 0),
    "octagon": ring(8, 22.5),
    "pentagon": ring(5, 0),
    "circle": ring(180, 0),
}


@cache
def templates(shape: str, width: int, height: int) -> list[np.ndarray]:
    """How much of each pixel of its box a shape covers, by Pillow at eight times the size; its edges are in the first
    and last pixels, where in them is not known."""
    points = np.array(CORNERS[shape])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    found = []
    for less in (0.0, 0.5, 1.0):
        corners = (points * [width - less, height - less] + less / 2) * 8
        picture = Image.new("L", (width * 8, height * 8))
        ImageDraw.Draw(picture).polygon([(float(x), float(y)) for x, y in corners], fill=255)
        found.append(np.asarray(picture.reduce(8)) / 255)
    return found


def ratio(shape: str) -> float:
    width, height = np.ptp(np.array(CORNERS[shape]), axis=0)
    return float(width / height)


def look(path: Path) -> list[Seen]:
    """The objects of a picture: what hangs together, its strongest colour, and the shape that covers it best."""
    picture = Image.open(path)
    entries, palette = np.asarray(picture), np.array(picture.getpalette()).reshape(-1, 3)
    shown = (palette.min(axis=1) < 255)[entries]
    labels, number = ndimage.label(shown, np.ones((3, 3)))
    found = []
    for part in ndimage.find_objects(labels):
        top, left = part[0].start, part[1].start
        height, width = part[0].stop - top, part[1].stop - left
        pixels = palette[entries[part]]
        inside = pixels[shown[part]]
        strongest = inside[inside.min(axis=1) == inside.min()][0]
        colour = next(c for c in PAPER if tuple(strongest) == COLOURS[c])
        # The strength of a pixel is how far it is from white to the colour, along the colour's darkest part.
        channel = int(np.argmin(COLOURS[colour]))
        strength = (255.0 - pixels[..., channel]) / (255 - COLOURS[colour][channel])
        near = [s for s in CORNERS if abs(width / height - ratio(s)) < 3.1 / height]
        errors = {s: min(float(np.abs(strength - t).mean()) for t in templates(s, width, height)) for s in near}
        found.append(Seen(colour, min(errors, key=lambda s: errors[s]), (left, top, width, height)))
    assert len(found) == number
    return found


def is_true(sentence: str, objects: list[Seen]) -> bool:
    """Whether a sentence is true of what is seen; what it calls "the" must be there exactly once."""
    words = rf"(?:({'|'.join(PAPER)}) )?({'|'.join(CORNERS)})"
    relation = "(above|below|to the left of|to the right of)"

    def fitting(colour: str | None, shape: str) -> list[Seen]:
        return [o for o in objects if o.words >= {w for w in (colour, shape) if w}]

    for article, word in re.findall(r"\b(a|an) (\w+)", sentence):
        assert (article == "an") == (word in ("orange", "octagon")), sentence
    if match := re.fullmatch(rf"(?:there is an? {words} in the picture|the picture shows an? {words})", sentence):
        parts = [part for part in match.groups() if part]
        return bool(fitting(parts[0], parts[1]))
    if match := re.fullmatch(rf"(?:the|an?) {words} is {relation} (?:the|an?) {words}", sentence):
        (one,), (other,) = fitting(*match.groups()[:2]), fitting(*match.groups()[3:])
        (x, y), (u, v) = one.centre, other.centre
        return {"above": y < v, "below": y > v, "to the left of": x < u, "to the right of": x > u}[match[3]]
    match = re.fullmatch(rf"(?:the|an?) {words}(?: in the picture)? (?:is|looks) (\w+)", sentence)
    assert match, sentence
    (one,) = fitting(match[1], match[2])
    return match[3] in one.words


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for kind, count in COUNTS.items():
        made[kind] = tmp_path_factory.mktemp("scenes") / kind
        build_corpus(made[kind], count=count, kind=kind, workers=2, log=lambda _: None)
    return made


@pytest.fixture(scope="module")
def corpora(folders: dict[str, Path]) -> dict[str, Corpus]:
    return {kind: read_corpus(folder, kind) for kind, folder in folders.items()}


@pytest.fixture(scope="module")
def seen(corpora: dict[str, Corpus]) -> dict[str, dict[str, list[Seen]]]:
    return {
        kind: {i.id: look(corpus.pictures / i.image) for i in corpus.items if corpus.pictures}
        for kind, corpus in corpora.items()
    }


@pytest.mark.parametrize("kind", COUNTS)
def test_pictures_make_the_sentences_true_and_false(
    kind: str, corpora: dict[str, Corpus], seen: dict[str, dict[str, list[Seen]]]
) -> None:
    assert len(corpora[kind].items) == COUNTS[kind]
    for item in corpora[kind].items:
        assert is_true(item.positives[0], seen[kind][item.id]), item
        assert not is_true(item.negatives[0], seen[kind][item.id]), item


@pytest.mark.parametrize("kind", COUNTS)
def test_every_item_has_its_partner_and_its_own_picture(kind: str, corpora: dict[str, Corpus]) -> None:
    pairs: dict[str, list[Item]] = {}
    for item in corpora[kind].items:
        pairs.setdefault(item.pair, []).append(item)
    for one, other in pairs.values():
        assert (one.positives, one.negatives) == (other.negatives, other.positives)
        assert one.positives != one.negatives
        assert (one.axis, one.source) == (other.axis, other.source)
    assert len({item.id for item in corpora[kind].items}) == COUNTS[kind]
    assert len({Path(item.image).stem for item in corpora[kind].items}) == COUNTS[kind]  # features are known by it
    pictures = corpora[kind].pictures
    assert pictures
    contents = {hashlib.sha256((pictures / item.image).read_bytes()).digest() for item in corpora[kind].items}
    assert len(contents) == COUNTS[kind]


def visible(objects: list[Seen]) -> set[str]:
    return {word for o in objects for word in o.words}


def test_grades_are_what_they_say(corpora: dict[str, Corpus], seen: dict[str, dict[str, list[Seen]]]) -> None:
    known = {*COLOURS, *CORNERS, "small", "medium", "large"}
    grades = Counter(item.labels["grade"] for item in corpora["checklist"].items)
    assert set(grades) == {"N1", "N2", "N3"}
    for item in corpora["checklist"].items:
        true, false = item.positives[0].split(), item.negatives[0].split()
        shown = visible(seen["checklist"][item.id])
        assert set(true) & known <= shown
        absent = (set(false) & known) - shown
        assert bool(absent) == (item.labels["grade"] == "N1"), item
        assert (sorted(true) == sorted(false)) == (item.labels["grade"] == "N3"), item
    for item in corpora["predicate_noun"].items:
        named = set(" ".join((*item.positives, *item.negatives)).split()) & known
        assert named <= visible(seen["predicate_noun"][item.id])


def test_what_is_tested_is_where_and_as_large_as_it_says(
    corpora: dict[str, Corpus], seen: dict[str, dict[str, list[Seen]]]
) -> None:
    """By the paper's formulas, of the object that the true sentence names, in the pixels."""
    table: Counter[tuple[str, str]] = Counter()
    for item in corpora["checklist"].items:
        _, kind, value, *_ = (*item.axis.split("/"), "")
        if not item.axis.startswith("Object"):
            continue
        assert item.labels[kind.lower()] == value
        colour, shape = re.findall(r"(\w+) (\w+)(?: in the picture)?$", item.positives[0])[0]
        (target,) = [o for o in seen["checklist"][item.id] if (o.colour, o.shape) == (colour, shape)]
        location = _location(target.centre)
        assert (location, target.size) == (item.labels["location"], item.labels["size"])
        table[location, target.size] += 1
    assert len(table) == 9 and len(set(table.values())) == 1


@pytest.mark.parametrize("kind", COUNTS)
def test_objects_are_read_from_pixels(
    kind: str, corpora: dict[str, Corpus], seen: dict[str, dict[str, list[Seen]]]
) -> None:
    pictures = corpora[kind].pictures
    for item in corpora[kind].items:
        picture = open_picture(pictures, item.image)
        found = from_pixels(picture)
        wanted = [(frozenset(o.words), o.box[2] * o.box[3], round(4 * math.dist(o.centre, (336, 336)) ** 2))
                  for o in seen[kind][item.id]]  # fmt: skip
        assert sorted((sorted(o.words), o.area, o.off_centre) for o in found) == sorted(
            (sorted(words), area, off) for words, area, off in wanted
        )
        white = np.asarray(picture).min(axis=2) == 255
        assert sum(o.ink for o in found) == np.count_nonzero(~white)


def preferences(sentences: tuple[str, str], objects: list[Seen], picture: np.ndarray) -> list[str]:
    """By box, ink and nearness to the centre: the sentence of whose own words one is shown by the foremost object."""
    own = [set(one.split()) - set(other.split()) for one, other in (sentences, sentences[::-1])]

    def ink(o: Seen) -> int:
        x, y, width, height = o.box
        return int(np.count_nonzero(picture[y : y + height, x : x + width]))

    found = []
    for measure in (lambda o: o.box[2] * o.box[3], ink, lambda o: -math.dist(o.centre, (336, 336))):
        best = [max((measure(o) for o in objects if o.words & words), default=-math.inf) for words in own]
        found.append("neither" if best[0] == best[1] else sentences[best[0] < best[1]])
    return found


@pytest.mark.parametrize("kind", COUNTS)
def test_salience_prefers_one_sentence_for_both_pictures(
    kind: str, corpora: dict[str, Corpus], seen: dict[str, dict[str, list[Seen]]]
) -> None:
    """So that a rule that sees sizes or places, and binds nothing, has half of the items right and no pair."""
    pictures = corpora[kind].pictures
    items = corpora[kind].items
    assert pictures
    for one, other in zip(items[::2], items[1::2], strict=True):
        sentences = one.positives[0], one.negatives[0]
        first, second = (
            preferences(sentences, seen[kind][item.id], np.asarray(Image.open(pictures / item.image)))
            for item in (one, other)
        )
        if one.labels["grade"] == "N1":  # nothing shows the false word, so that its absence alone tells
            assert (first, second) == ([one.positives[0]] * 3, [other.positives[0]] * 3)
        else:
            assert first == second, (one, first, second)


def test_the_published_files_hold_the_same_items(folders: dict[str, Path], corpora: dict[str, Corpus]) -> None:
    folder = folders["checklist"]
    found = []
    for path in sorted((folder / "corpus" / "v1").rglob("*.yaml")):
        pointer = yaml.safe_load(path.read_text())
        assert set(pointer) == {"ANNO_PATH", "IMG_ROOT", "TYPE"} and pointer["TYPE"] == "TUPLE_JSON"
        axis = path.parent.relative_to(folder / "corpus" / "v1").as_posix()
        for image, texts in json.loads((folder / pointer["ANNO_PATH"]).read_text()):
            assert list(texts) == ["POS", "NEG"] and (folder / pointer["IMG_ROOT"] / image).is_file()
            found.append((axis, path.stem, pointer["IMG_ROOT"] + image, tuple(texts["POS"]), tuple(texts["NEG"])))
    assert sorted(found) == sorted(
        (i.axis, i.source, i.image, i.positives, i.negatives) for i in corpora["checklist"].items
    )
    assert all((folder / "corpus" / "v1" / axis / "grid.yaml").is_file() for axis, *_ in found)


def test_readers_of_the_published_corpora_read_them(folders: dict[str, Path], corpora: dict[str, Corpus]) -> None:
    for kind, corpus in corpora.items():
        lines = (folders[kind] / "items.jsonl").read_text().splitlines()
        assert corpus.items == tuple(make_item(json.loads(line)) for line in lines)
        assert corpus.digest == json.loads((folders[kind] / "manifest.json").read_text())["digest"]
    ours = corpora["predicate_noun"]
    for template in ("normal", "alt"):
        for cropped in (False, True):
            assert predicate_noun.read_set(folders["predicate_noun"], template, cropped).notes == ()
            triplets = read_corpus(folders["predicate_noun"], "predicate_noun", template=template, cropped=cropped)
            assert triplets.pictures == ours.pictures
            for one, other in zip(triplets.items, ours.items, strict=True):
                assert (one.id, one.pair, one.axis) == (other.id, other.pair, other.axis)
                assert open_picture(triplets.pictures, one.image).mode == "RGB"
                assert cropped or one.image == other.image
                labels = {**one.labels, "template": "normal", "cropped": "false"}
                assert labels.pop("whole", None) == (other.image if cropped else None)
                assert labels == other.labels
                same = (one.positives, one.negatives) == (other.positives, other.negatives)
                assert same == (template == "normal")
            assert set(truths(triplets)) == {item.id for item in triplets.items}


def test_what_is_left_out_is_what_the_notes_say() -> None:
    made = {unit.axis for unit in PAIR_KINDS["checklist"]}
    assert made < set(TAXONOMY)
    (note,) = [note for note in scenes.NOTES["checklist"] if "left out" in note]
    assert set(re.findall(r"(?:Attribute|Relation)/\w+", note)) == set(TAXONOMY) - made
    assert {axis.split("/")[1] for axis in set(TAXONOMY) - made} == {"action", "material", "state"}


def test_triplets_have_the_published_keys(folders: dict[str, Path], seen: dict[str, dict[str, list[Seen]]]) -> None:
    records = json.loads((folders["predicate_noun"] / "eval_set.json").read_text())
    assert [len(record) for record in records] == [15] * COUNTS["predicate_noun"]
    kinds = Counter(record["pos"] for record in records)
    assert kinds == {"object": 2 * round(30 * 743 / 1292), "subject": 60 - 2 * round(30 * 743 / 1292)}
    for number, record in enumerate(records):
        partner = records[number ^ 1]
        assert record["id"] == number and record["open_images_split"] == "synthetic"
        for template in ("", "_alt"):
            assert record[f"sentence_target{template}"] == partner[f"sentence_distractor{template}"]
        assert record["word_target"] == partner["word_distractor"] and record["pos"] == partner["pos"]
        assert record["img_filename"] != partner["img_filename"]
        objects = seen["predicate_noun"][str(number)]
        assert is_true(record["sentence_target_alt"], objects) and not is_true(
            record["sentence_distractor_alt"], objects
        )
        for name, noun, predicate in (("target", "subject", "object"), ("distractor", "", "")):
            related = record[f"relationship_{name}"]
            box = [round(672 * part) for part in related["bounding_box"]]
            (shown,) = [o for o in objects if list(o.box) == box]
            assert (shown.shape.capitalize(), shown.colour.capitalize()) == (related["Label1"], related["Label2"])
            if noun:
                assert (related["Label1"], related["Label2"]) == (record[noun], record[predicate])


def test_pixels_of_a_scene_stay_as_they_are() -> None:
    """Changes with `FORMAT_VERSION` alone, which is in every manifest and every random choice."""
    found = hashlib.sha256()
    for unit in ALL:
        for side in unit.pair(0, 0).sides:
            found.update(drawing.PALETTE[drawing.draw_scene(side.scene)].tobytes())
    assert FORMAT_VERSION == 3 and found.hexdigest()[:16] == "a155c31e5657e353"


# Any pair ------------------------------------------------------------------------------------------------------------

ALL = [unit for units in PAIR_KINDS.values() for unit in units]


@settings(max_examples=300)
@given(unit=st.sampled_from(ALL), seed=st.integers(0, 2**63), index=st.integers(0, 10**6))
def test_any_pair_is_true_of_its_objects(unit: PairKind, seed: int, index: int) -> None:
    pair = unit.pair(seed, index)
    for side in pair.sides:
        objects = [Seen(o.colour, o.shape, o.box) for o in side.scene]
        assert is_true(side.positive.sentence(pair.template), objects)
        assert not is_true(side.negative.sentence(pair.template), objects)
        cells = {(o.row, o.column) for o in side.scene}
        assert len(cells) == len(side.scene)
        for o in side.scene:  # white all around, inside its cell
            x, y, width, height = o.box
            assert o.column * 112 < x and x + width < (o.column + 1) * 112
            assert o.row * 112 < y and y + height < (o.row + 1) * 112
        round_ones = {"circle", "octagon", "hexagon"}
        named = {w for w in (*side.positive.args, *side.negative.args) for w in w.split()} & round_ones
        assert not named or len({o.shape for o in side.scene} & round_ones) <= 1


@pytest.mark.parametrize("unit", [u for u in ALL if "spatial" not in u.axis], ids=lambda u: f"{u.axis}/{u.source}")
def test_the_tempting_object_is_of_the_classes_of_the_target(unit: PairKind) -> None:
    for index in range(90):
        pair = unit.pair(5, index)
        for side in pair.sides:
            target, distractor = side.scene[side.subject], side.scene[1 - side.subject]
            assert target.words >= set(" ".join(side.positive.args).split())
            assert _location(target.centre) == _location(distractor.centre) == pair.labels["location"]
            if unit.axis != "Attribute/size":  # which asks for the size
                assert target.size == distractor.size == pair.labels["size"]


@settings(max_examples=200)
@given(unit=st.sampled_from([u for u in ALL if u.grade != "N1"]), seed=st.integers(0, 2**63), index=st.integers(0, 999))
def test_salience_tells_the_pictures_of_no_pair_apart(unit: PairKind, seed: int, index: int) -> None:
    pair: ScenePair = unit.pair(seed, index)
    sentences = (pair.sides[0].positive.sentence(0), pair.sides[0].negative.sentence(0))
    found = [
        preferences(sentences, [Seen(o.colour, o.shape, o.box) for o in side.scene], drawing.draw_scene(side.scene))
        for side in pair.sides
    ]
    assert found[0] == found[1]


def _location(centre: tuple[float, float]) -> str:
    away = math.dist(centre, (336, 336)) / math.hypot(336, 336)
    return "center" if away <= 1 / 3 else "mid" if away <= 2 / 3 else "margin"


# Making --------------------------------------------------------------------------------------------------------------


def test_build_leaves_a_finished_corpus_and_finishes_a_begun_one(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    shutil.copytree(folders["predicate_noun"], folder)
    before = hashes(folder)
    (folder / "manifest.json").unlink()
    (folder / "eval_set.json").write_text("{")
    for _ in range(2):
        build_corpus(folder, count=COUNTS["predicate_noun"], kind="predicate_noun", workers=1, log=lambda _: None)
        assert hashes(folder) == before
    with pytest.raises(ValueError, match="another probe corpus"):
        build_corpus(folder, seed=1, count=COUNTS["predicate_noun"], kind="predicate_noun", log=lambda _: None)


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(folders: dict[str, Path], tmp_path: Path) -> None:
    build_corpus(tmp_path / "one", count=COUNTS["checklist"], workers=1, log=lambda _: None)
    assert hashes(tmp_path / "one") == hashes(folders["checklist"])


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"count": 145}, "count=145: must be even"),
        ({"count": 4, "kind": "predicate_noun"}, "6 to"),
    ],
)
def test_what_cannot_be_made_is_refused(setting: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        build_corpus(tmp_path / "made", **setting)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("count", [144, 146, 500, 1000, 3600, 12_000])
def test_counts_are_kept(count: int) -> None:
    config = scenes.ScenesConfig(count=count)
    pairs = config.pairs()
    assert 2 * sum(number for _, number in pairs) == count and all(number > 0 for _, number in pairs)
    objects = {number for unit, number in pairs if unit.axis.startswith("Object")}
    assert len(objects) == 1 and objects.pop() % 3 == 0
    others = [number for unit, number in pairs if not unit.axis.startswith("Object")]
    assert max(others) - min(others) <= 1
    of_nouns = scenes.ScenesConfig("predicate_noun", count=2584).pairs()
    assert [number for _, number in of_nouns] == [743, 549]
