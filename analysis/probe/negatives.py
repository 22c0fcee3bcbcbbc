"""A checklist from annotations: `python -m analysis.probe.negatives ANNOTATIONS OUT`.

Each sentence states one fact about a picture: that an object exists, has an attribute, or has a relation to another.
Its negative replaces the tested word (VL-CheckList, section 3.2) by a word that the annotations rule out. Where the
annotations allow it, each record has a mirror, another picture with the two sentences exchanged, so that neither length
nor word frequency tells which sentence is true; the other records are balanced by length.

Annotations are JSON lines, one line per picture (wrapped below); boxes are [x, y, w, h] in pixels, relations refer to
objects by index. Attributes, boxes and relations are optional:

    {"image": "a.jpg", "width": 640, "height": 480,
     "objects": [{"name": "bear", "attributes": ["black"], "box": [10, 20, 200, 180]}, {"name": "stick"}],
     "relations": [{"subject": 0, "predicate": "holding", "object": 1}]}
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("negatives", "analysis.probe.negatives")

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from analysis.probe.corpora.checklist import IMAGES, write_corpus
from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.corpora.lexicon import TABLES, Lexicon, normalize, read_tables
from analysis.probe.corpora.taxonomy import MAX_PIXELS, brief, is_length, location_class, size_class
from analysis.probe.folders import leaves_folder, reading
from travlr import cli

TRIES = 50  # candidate words per record


# Annotations ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnotatedObject:
    """An annotated object."""

    name: str
    attributes: tuple[str, ...]
    box: tuple[float, ...] | None


@dataclass(frozen=True)
class AnnotatedPicture:
    """An annotated picture. relations: subject, predicate, object, as indices of objects."""

    image: str
    width: float
    height: float
    objects: tuple[AnnotatedObject, ...]
    relations: tuple[tuple[int, str, int], ...]


def read_annotations(path: Path | str) -> list[AnnotatedPicture]:
    """Annotated pictures from JSON lines (see above). Raises `ValueError`, one line with file and line, for an
    unreadable file, values of another type, a picture that leaves its folder, and a repeated picture."""
    pictures: dict[str, AnnotatedPicture] = {}
    with reading(path), open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            picture = _picture(line, f"{path}: line {number}")
            if picture.image in pictures:
                raise ValueError(f"{path}: line {number}: {picture.image} is there already; give it one line")
            pictures[picture.image] = picture
    return list(pictures.values())


def _picture(line: str, where: str) -> AnnotatedPicture:
    try:
        value = json.loads(line)
        if "\\ud" in line.lower():  # an unpaired surrogate cannot be written as UTF-8
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise ValueError(f"{where}: has an unpaired surrogate, which UTF-8 cannot hold") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{where}: not JSON or cut off") from None
    if not isinstance(value, dict) or not isinstance(value.get("image"), str) or not value["image"]:
        raise ValueError(f"{where}: needs an image, the name of a file")
    if leaves_folder(value["image"]):
        raise ValueError(f"{where}: image {value['image']!r} leaves the folder of pictures")
    width, height = value.get("width", 0), value.get("height", 0)
    if not all(is_length(side) and side >= 0 for side in (width, height)):
        raise ValueError(f"{where}: width and height need to be numbers of pixels, up to {MAX_PIXELS:.0e}")
    lists = [value.get(name, []) for name in ("objects", "relations")]
    if not all(isinstance(one, list) and all(isinstance(part, dict) for part in one) for one in lists):
        raise ValueError(f"{where}: objects and relations need to be lists of objects")
    objects = tuple(_thing(one, f"{where}: object {place}", width, height) for place, one in enumerate(lists[0]))
    relations = tuple(_relation(one, f"{where}: relation {place}", len(objects)) for place, one in enumerate(lists[1]))
    return AnnotatedPicture(value["image"], width, height, objects, relations)


def _thing(value: Mapping[str, Any], where: str, width: float, height: float) -> AnnotatedObject:
    name, attributes, box = value.get("name"), value.get("attributes", []), value.get("box")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{where}: needs a name")
    if not isinstance(attributes, list) or not all(isinstance(word, str) for word in attributes):
        raise ValueError(f"{where}: attributes need to be a list of words")
    if box is not None:
        if not isinstance(box, list) or not all(type(part) in (int, float) for part in box):
            raise ValueError(f"{where}: box needs [x, y, w, h] in pixels")
        if not (width and height):
            raise ValueError(f"{where}: its box needs the width and height of the picture, which are not there")
        try:
            location_class(box, width, height)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if box[0] >= width or box[1] >= height or box[0] + box[2] <= 0 or box[1] + box[3] <= 0:
            raise ValueError(f"{where}: box {brief(box)} is outside of the picture of {width} x {height} pixels")
    return AnnotatedObject(
        normalize(name), tuple(normalize(word) for word in attributes), None if box is None else tuple(box)
    )


def _relation(value: Mapping[str, Any], where: str, objects: int) -> tuple[int, str, int]:
    first, second = value.get("subject"), value.get("object")
    if type(first) is not int or type(second) is not int or not (0 <= first < objects and 0 <= second < objects):
        raise ValueError(f"{where}: subject and object need to be places in the list of {objects} objects, from 0")
    if not isinstance(value.get("predicate"), str) or not value["predicate"].strip():
        raise ValueError(f"{where}: needs a predicate")
    return first, normalize(value["predicate"]), second


# Facts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """A fact about a picture.

    frame: equal for facts whose sentences differ only in the tested word. group: candidates to replace the word.
    sentence: makes the sentence with a word. false: whether the annotations rule out a word.
    """

    axis: str
    image: str
    frame: tuple[str, ...]
    word: str
    group: Sequence[str]
    sentence: Callable[[str], str]
    false: Callable[[str], bool]
    labels: Mapping[str, str] = field(default_factory=dict)


def objects(
    picture: AnnotatedPicture,
    words: Lexicon,
    nouns: Mapping[str, Sequence[str]],
    draw: random.Random,
    omitted: Counter[str],
) -> Iterator[Fact]:
    """Existence of objects, with a random choice of location or size as the axis. nouns: by form, with the frequencies
    of the annotations. Objects without a box and ambiguous nouns are left out, and counted in `omitted`."""
    names = [one.name for one in picture.objects]

    def false(word: str) -> bool:
        return not any(words.same(word, name) for name in names)

    for one in picture.objects:
        if one.box is None:
            omitted["objects without a box"] += 1
        elif sum(words.same(one.name, name) for name in names) > 1:
            omitted["objects whose noun may name another one in the picture"] += 1
        else:
            labels = {
                "location": location_class(one.box, picture.width, picture.height),
                "size": size_class(one.box, picture.width, picture.height),
            }
            kind = draw.choice(sorted(labels))
            axis, form = f"Object/{kind.title()}/{labels[kind]}", words.form(one.name)
            yield Fact(axis, picture.image, (axis, form), one.name, nouns[form], words.there, false, labels)


def attributes(picture: AnnotatedPicture, words: Lexicon, omitted: Counter[str]) -> Iterator[Fact]:
    """Existence of objects with an attribute. A word is false if each object that the noun may name has an attribute
    that excludes it, and none that agrees with it."""
    for one in picture.objects:
        alike = [other.attributes for other in picture.objects if words.same(one.name, other.name)]

        def false(word: str, alike: list[tuple[str, ...]] = alike) -> bool:
            return all(words.excluded(word, true) for true in alike)

        for word in one.attributes:
            groups = words.groups(word, "Attribute/")
            omitted["attributes that are in no table"] += not groups
            for axis, group in groups.items():
                sentence = partial(words.there, noun=one.name)
                yield Fact(axis, picture.image, (axis, one.name), word, group, sentence, false)


def relations(picture: AnnotatedPicture, words: Lexicon, omitted: Counter[str]) -> Iterator[Fact]:
    """Relations between objects. A word is false if each pair of objects that the nouns may name has a relation that
    excludes it, and none that agrees with it."""
    predicates: dict[tuple[int, int], set[str]] = defaultdict(set)
    for first, predicate, second in picture.relations:
        predicates[first, second].add(predicate)
        predicates[second, first] |= words.inverses[predicate]
    names = [one.name for one in picture.objects]
    for first, word, second in picture.relations:
        subject, target = names[first], names[second]
        alike = [
            predicates.get((a, b), set())
            for a in range(len(names)) if words.same(subject, names[a])
            for b in range(len(names)) if a != b and words.same(target, names[b])
        ]  # fmt: skip

        def false(word: str, alike: list[set[str]] = alike) -> bool:
            return bool(alike) and all(words.excluded(word, true) for true in alike)

        groups = words.groups(word, "Relation/")
        omitted["relations that are in no table"] += not groups
        for axis, group in groups.items():
            verb = words.is_adverbial(axis, word)
            candidates = [other for other in group if words.is_adverbial(axis, other) == verb]
            sentence = partial(words.related, subject=subject, target=target, be=verb)
            yield Fact(axis, picture.image, (axis, subject, target, str(verb)), word, candidates, sentence, false)


# Negatives -----------------------------------------------------------------------------------------------------------


def mirrored(facts: Sequence[Fact], draw: random.Random) -> dict[int, int]:
    """Mirrors of facts, by index in both directions. The mirror of a fact has the same frame and is about another
    picture, and the word of each is false of the picture of the other."""
    mirrors: dict[int, int] = {}
    unmatched: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place in draw.sample(range(len(facts)), len(facts)):
        fact, others = facts[place], unmatched[facts[place].frame]
        for number in draw.sample(range(len(others)), min(TRIES, len(others))):
            other = facts[others[number]]
            if fact.false(other.word) and other.false(fact.word):
                mirrors[place], mirrors[others[number]] = others[number], place
                others[number] = others[-1]
                others.pop()
                break
        else:
            others.append(place)
    return mirrors


def balanced(fact: Fact, lean: int, uses: Counter[str], draw: random.Random) -> str | None:
    """A negative word for a fact without a mirror; None if no candidate is false.

    The choice balances first the lengths of sentences (lean: number of longer minus shorter negatives), then how often
    each word is used (uses).
    """
    candidates = draw.sample(fact.group, min(TRIES, len(fact.group)))
    length = len(fact.sentence(fact.word))
    costs = {
        word: (abs(lean + _sign(len(fact.sentence(word)) - length)), uses[word])
        for word in dict.fromkeys(candidates)
        if word != fact.word and fact.false(word)
    }
    return min(costs, key=lambda word: costs[word]) if costs else None


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def generate(
    pictures: Sequence[AnnotatedPicture],
    tables: Mapping[str, list[list[str]]] | None = None,
    seed: int = 0,
    source: str = "annotations",
    only_mirrored: bool = False,
) -> Corpus:
    """A checklist from annotations, a function of the seed.

    Its notes count the facts that were left out, the records with mirrors, and how often the shorter sentence is true.
    only_mirrored: leave out records without a mirror, so that no rule that reads only
    the text is right in more than half of the items.
    """
    words = Lexicon(tables or TABLES)
    draw, omitted = random.Random(f"{seed}/negatives"), Counter[str]()
    nouns: dict[str, list[str]] = defaultdict(list)
    for picture in pictures:
        for one in picture.objects:
            nouns[words.form(one.name)].append(one.name)
    distinct: dict[tuple[str, str, str], Fact] = {}
    for picture in pictures:
        for fact in (
            *objects(picture, words, nouns, draw, omitted),
            *attributes(picture, words, omitted),
            *relations(picture, words, omitted),
        ):
            distinct.setdefault((fact.image, fact.axis, fact.sentence(fact.word)), fact)
    facts = sorted(distinct.values(), key=lambda fact: fact.axis)
    mirrors = mirrored(facts, draw)
    lean: Counter[str] = Counter()  # by axis
    uses: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    items, numbers = [], Counter[str]()
    for place, fact in enumerate(facts):
        mirror = mirrors.get(place)
        if mirror is None and only_mirrored:
            omitted["facts without a mirror"] += 1
            continue
        mirror_word = None if mirror is None else facts[mirror].word
        word = mirror_word or balanced(fact, lean[fact.axis], uses[fact.frame], draw)
        if word is None:
            omitted["facts without a word that is certainly false"] += 1
            continue
        true, false = fact.sentence(fact.word), fact.sentence(word)
        lean[fact.axis] += _sign(len(false) - len(true))
        uses[fact.frame][word] += 1
        pair = "" if mirror is None else f"{fact.axis}/{min(place, mirror)}"
        labels = {**fact.labels, "word": fact.word, "replacement": word}
        item_id = f"{fact.axis}/{source}/{numbers[fact.axis]}"
        numbers[fact.axis] += 1
        items.append(Item(item_id, f"{IMAGES}/{fact.image}", (true,), (false,), fact.axis, source, pair, labels))
    return Corpus(source, "checklist", tuple(items), None, tuple(_notes(items, omitted)))


def _notes(items: Sequence[Item], omitted: Counter[str]) -> Iterator[str]:
    if items:
        paired = sum(bool(item.pair) for item in items)
        yield f"records with a mirror, another picture with the sentences exchanged: {paired:,} of {len(items):,}"
        signs = [_sign(len(item.negatives[0]) - len(item.positives[0])) for item in items]
        share = sum((sign + 1) / 2 for sign in signs) / len(signs)
        yield f"the shorter sentence is the true one in {share:.1%} of the records (equal lengths count half)"
    yield from (f"{noun}, left out: {number:,}" for noun, number in omitted.most_common() if number)


# Command line --------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    how = argparse.RawDescriptionHelpFormatter
    parser = cli.Parser(prog="python -m analysis.probe.negatives", description=__doc__, formatter_class=how)
    parser.add_argument("annotations", metavar="ANNOTATIONS", type=Path, help="a file of JSON lines, one picture each")
    parser.add_argument("out", metavar="OUT", type=cli.folder, help="the folder to write the checklist to")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument(
        "--tables",
        type=Path,
        metavar="FILE",
        help="a YAML file of words beside the built-in ones, such as\nAttribute/state: [[frozen, melted]]",
    )
    parser.add_argument("--source", metavar="NAME", help="name of the data set (default: that of the annotations)")
    parser.add_argument("--mirrored", action="store_true", help="leave out records without a mirror")
    options = parser.parse_args(arguments)
    source = options.source or options.annotations.stem
    pictures, tables = read_annotations(options.annotations), read_tables(options.tables)
    corpus = generate(pictures, tables, options.seed, source, only_mirrored=options.mirrored)
    if not corpus.items:
        raise ValueError(f"{options.annotations}: no record can be made; {'; '.join(corpus.notes) or 'it is empty'}")
    write_corpus(options.out, corpus.items)
    for axis, number in sorted(Counter(item.axis for item in corpus.items).items()):
        print(f"{axis:<24} {number:>9,}")
    print("\n".join(corpus.notes))
    print(f"records: {len(corpus.items):,}, in {options.out}; the pictures belong in {options.out / 'images'}")
    print(f"To probe a model with it: python -m analysis.probe corpus={options.out} images=PICTURES model=MODEL")
    return 0
