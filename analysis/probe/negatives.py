"""A checklist from annotations: `python -m analysis.probe.negatives ANNOTATIONS OUT`.

Each sentence says one thing of a picture: that an object is there, has an attribute, or is in a relation to another.
Its negative exchanges the one word that is tested (VL-CheckList, section 3.2) for a word that the annotations rule out.
As far as the annotations allow, each record has a mirror, another picture with the same two sentences the other way
round, so that neither length nor the commonness of words tells which sentence is true; the rest is balanced by length.

Annotations are JSON lines, one picture each; boxes are [x, y, w, h] in pixels, relations name objects by their places:

    {"image": "a.jpg", "width": 640, "height": 480,
     "objects": [{"name": "bear", "attributes": ["black"], "box": [10, 20, 200, 180]}, {"name": "stick"}],
     "relations": [{"subject": 0, "predicate": "holding", "object": 1}]}
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any

from analysis.probe.checklist import leaves, location_class, read_yaml, size_class, write_corpus
from analysis.probe.items import Corpus, Item
from travlr import cli

TABLES: dict[str, list[list[str]]] = {
    # Of the words of a list, one at most is true of an object, or of a subject and an object.
    "Attribute/color": [
        ["red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "gray"],
    ],
    "Attribute/material": [
        ["wooden", "metal", "plastic", "glass", "stone", "brick", "concrete", "leather", "paper", "cloth"],
    ],
    "Attribute/size": [
        ["small", "large"], ["small", "big"], ["little", "big"], ["tiny", "huge"], ["short", "tall"],
        ["short", "long"], ["narrow", "wide"], ["thin", "thick"],
    ],
    "Attribute/state": [
        ["wet", "dry"], ["open", "closed"], ["clean", "dirty"], ["empty", "full"], ["old", "new"], ["old", "young"],
        ["raw", "cooked"], ["broken", "intact"], ["lit", "unlit"], ["ripe", "unripe"], ["clear", "cloudy"],
    ],
    "Attribute/action": [
        ["standing", "sitting", "lying", "kneeling", "walking", "running", "jumping", "swimming", "flying"],
        ["sleeping", "awake"], ["parked", "moving"],
    ],
    "Relation/spatial": [
        ["on", "under"], ["on top of", "under"], ["above", "below"], ["in front of", "behind"],
        ["to the left of", "to the right of"], ["inside", "outside"], ["in", "outside"], ["near", "far from"],
        ["next to", "far from"],
    ],
    "Relation/action": [
        ["riding", "pushing", "pulling", "carrying", "washing", "painting"],
        ["eating", "throwing", "kicking", "cutting", "drawing"],
        ["chasing", "feeding", "hugging", "fighting"],
        ["opening", "closing"], ["entering", "leaving"], ["pushing", "pulling"],
    ],
    # The first word of a list may be true where any of the others is.
    "together": [
        ["gray", "grey", "silver"], ["wooden", "wood"], ["metal", "metallic", "steel", "iron"], ["cloth", "fabric"],
        ["big", "large", "huge", "giant", "tall", "long", "wide", "thick"],
        ["large", "huge", "giant", "tall", "long", "wide", "thick"],
        ["small", "little", "tiny", "short", "narrow", "thin"], ["little", "tiny", "short", "narrow", "thin"],
        ["on", "on top of", "above"], ["under", "below", "beneath"], ["in", "inside"], ["near", "next to", "beside"],
        ["person", "man", "woman", "boy", "girl", "child", "baby", "player", "rider", "guy", "lady"],
        ["man", "guy", "player", "rider", "boy"], ["woman", "lady", "player", "rider", "girl"],
        ["child", "boy", "girl", "baby"], ["people", "men", "women", "children"],
        ["animal", "dog", "cat", "horse", "cow", "sheep", "bear", "bird", "elephant", "giraffe", "zebra"],
        ["vehicle", "car", "truck", "bus", "van", "train", "motorcycle"], ["car", "van", "taxi"], ["bike", "bicycle"],
        ["sofa", "couch"], ["table", "desk"], ["plant", "tree", "bush", "flower"], ["cup", "mug"],
    ],
    # Where the first is true of two objects, the second is true of them the other way round.
    "inverse": [
        ["on", "under"], ["on top of", "under"], ["above", "below"], ["in front of", "behind"], ["near", "near"],
        ["to the left of", "to the right of"], ["next to", "next to"], ["far from", "far from"],
    ],
    # Nouns without an article.
    "mass": [
        ["water", "grass", "snow", "sand", "hair", "food", "bread", "rice", "furniture", "luggage", "dirt", "gravel"],
        ["ice", "milk", "coffee", "juice", "wine", "beer", "cheese", "meat", "smoke", "traffic", "clothing", "fruit"],
    ],
    # Nouns that take `are` though they have no final s, and nouns that take `is` though they have one.
    "plural": [["people", "men", "women", "children", "feet", "teeth", "mice", "geese", "police"]],
    "singular": [["bus", "gas", "lens", "canvas", "atlas", "circus", "cactus", "tennis", "pancreas"]],
}  # fmt: skip
IRREGULAR = {"people": "person", "men": "man", "women": "woman", "children": "child", "feet": "foot", "teeth": "tooth",
             "mice": "mouse", "geese": "goose", "knives": "knife", "leaves": "leaf", "shelves": "shelf",
             "potatoes": "potato", "tomatoes": "tomato", "buses": "bus"}  # fmt: skip
AN = re.compile(r"(?!(?:uni(?![nm])|uk|use|usu|ute|eu|one\b|once\b|ou?i))[aeiou]|(?:hour|honest|honou?r|heir)")
TRIES = 50  # words that are looked at before a record counts as one without an answer


# Words ---------------------------------------------------------------------------------------------------------------


def article(words: str) -> str:
    """`a` or `an`, as the sound asks that words begin with."""
    return "an" if AN.match(words.lower()) else "a"


@cache
def singular(noun: str) -> str:
    """The last word of a noun phrase in the singular, to compare nouns by."""
    word = noun.rpartition(" ")[2]
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if re.search(r"(ch|sh|ss|x|z)es$", word):
        return word[:-2]
    return word[:-1] if re.search(r"[^su]s$", word) and len(word) > 3 else word


class Words:
    """What the tables say of words."""

    def __init__(self, tables: Mapping[str, list[list[str]]]) -> None:
        lists = {name: [tuple(words) for words in tables[name]] for name in tables}
        self.pairs = {pair for first, *others in lists["together"] for one in others for pair in _both(first, one)}
        self.inverses: dict[str, set[str]] = defaultdict(set)
        for first, second in lists["inverse"]:
            self.inverses[first].add(second)
            self.inverses[second].add(first)
        self.forms = {word: form for form in ("mass", "plural", "singular") for words in lists[form] for word in words}
        self.lists = {name: words for name, words in lists.items() if "/" in name}
        self.excluding = {
            pair for groups in self.lists.values() for words in groups for pair in permutations(words, 2)
        } - self.pairs

    def agree(self, one: str, other: str) -> bool:
        """Whether both words may be true of the same thing."""
        return one == other or (one, other) in self.pairs

    def excluded(self, word: str, known: Iterable[str]) -> bool:
        """Whether what is known excludes a word, and nothing that is known goes with it."""
        return any((word, one) in self.excluding for one in known) and not any(self.agree(word, one) for one in known)

    def groups(self, word: str, top: str) -> dict[str, list[str]]:
        """By axis below `Attribute/` or `Relation/`, the words that a word shares a list with."""
        found = {
            axis: sorted({other for words in groups if word in words for other in words} - {word})
            for axis, groups in self.lists.items()
            if axis.startswith(top)
        }
        return {axis: words for axis, words in found.items() if words}

    def same(self, one: str, other: str) -> bool:
        """Whether both nouns may name the same thing: by their last words, in the singular."""
        return self.agree(singular(one), singular(other)) or self.agree(one, other)

    def form(self, noun: str) -> str:
        """`mass`, `plural` or `singular`."""
        word = noun.rpartition(" ")[2]
        guess = "plural" if word.endswith("s") and not word.endswith(("ss", "us", "is")) else "singular"
        return self.forms.get(word, guess)

    def phrase(self, noun: str, before: str = "") -> str:
        """A noun, a word before it, and the article that they need."""
        whole = f"{before} {noun}".strip()
        return f"{article(whole)} {whole}" if self.form(noun) == "singular" else whole

    def there(self, word: str, noun: str = "") -> str:
        """The sentence that something is there: the word, or the noun with the word before it."""
        noun, before = (noun, word) if noun else (word, "")
        return f"there {self.be(noun)} {self.phrase(noun, before)} in the picture"

    def related(self, word: str, subject: str, target: str, be: bool) -> str:
        """The sentence of a relation. be: whether the verb is `is` or `are`."""
        return f"{self.phrase(subject)} {f'{self.be(subject)} ' * be}{word} {self.phrase(target)}"

    def is_adverbial(self, axis: str, predicate: str) -> bool:
        """Whether `is` comes before a predicate: `on`, `holding`; not before `holds`."""
        return axis == "Relation/spatial" or predicate.partition(" ")[0].endswith("ing")

    def be(self, noun: str) -> str:
        return "are" if self.form(noun) == "plural" else "is"


def _both(one: str, other: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (one, other), (other, one)


def read_tables(path: Path | str | None = None) -> dict[str, list[list[str]]]:
    """The built-in tables, extended by those in a YAML file of the same shape: names of `TABLES` with lists of lists of
    words. Raises `ValueError`, one line, for another name or shape."""
    tables = {name: [list(words) for words in lists] for name, lists in TABLES.items()}
    for name, lists in read_yaml(Path(path)).items() if path else ():
        if name not in tables:
            raise ValueError(f"{path}: there is no table {name!r}; choose from {', '.join(tables)}")
        if not isinstance(lists, list) or not all(
            isinstance(words, list) and words and all(isinstance(word, str) and word.strip() for word in words)
            for words in lists
        ):
            raise ValueError(
                f"{path}: {name}: needs lists of words, such as [[red, blue]]; write on, off, yes, no in quotes"
            )
        if name == "inverse" and any(len(words) != 2 for words in lists):
            raise ValueError(f"{path}: inverse: needs lists of two words")
        tables[name] += [[_plain(word) for word in words] for words in lists]
    return tables


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


# Annotations ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    """An annotated object."""

    name: str
    attributes: tuple[str, ...]
    box: tuple[float, ...] | None


@dataclass(frozen=True)
class Picture:
    """An annotated picture. relations: subject, predicate, object, by the objects' places."""

    image: str
    width: float
    height: float
    things: tuple[Thing, ...]
    relations: tuple[tuple[int, str, int], ...]


def read_annotations(path: Path | str) -> list[Picture]:
    """Annotated pictures from JSON lines (see above). Raises `ValueError`, one line with file and line, for what cannot
    be read, values of another type, a picture that leaves its folder, and one that is there twice."""
    pictures: dict[str, Picture] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                picture = _picture(line, f"{path}: line {number}")
                if picture.image in pictures:
                    raise ValueError(f"{path}: line {number}: {picture.image} is there already; give it one line")
                pictures[picture.image] = picture
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeError:
        raise ValueError(f"{path}: is not text in UTF-8") from None
    return list(pictures.values())


def _picture(line: str, where: str) -> Picture:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{where}: not JSON or cut off") from None
    if not isinstance(value, dict) or not isinstance(value.get("image"), str) or not value["image"]:
        raise ValueError(f"{where}: needs an image, the name of a file")
    if leaves(value["image"]):
        raise ValueError(f"{where}: image {value['image']!r} leaves the folder of pictures")
    width, height = value.get("width", 0), value.get("height", 0)
    if not all(type(side) in (int, float) and math.isfinite(side) and side >= 0 for side in (width, height)):
        raise ValueError(f"{where}: width and height need to be numbers of pixels")
    lists = [value.get(name, []) for name in ("objects", "relations")]
    if not all(isinstance(one, list) and all(isinstance(part, dict) for part in one) for one in lists):
        raise ValueError(f"{where}: objects and relations need to be lists of names with values")
    things = tuple(_thing(one, f"{where}: object {place}", width, height) for place, one in enumerate(lists[0]))
    relations = tuple(_relation(one, f"{where}: relation {place}", len(things)) for place, one in enumerate(lists[1]))
    return Picture(value["image"], width, height, things, relations)


def _thing(value: Mapping[str, Any], where: str, width: float, height: float) -> Thing:
    name, attributes, box = value.get("name"), value.get("attributes", []), value.get("box")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{where}: needs a name")
    if not isinstance(attributes, list) or not all(isinstance(word, str) for word in attributes):
        raise ValueError(f"{where}: attributes need to be a list of words")
    if box is not None:
        if not isinstance(box, list) or not all(type(part) in (int, float) for part in box):
            raise ValueError(f"{where}: box needs [x, y, w, h] in pixels")
        try:
            location_class(box, width, height)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    return Thing(_plain(name), tuple(_plain(word) for word in attributes), None if box is None else tuple(box))


def _relation(value: Mapping[str, Any], where: str, things: int) -> tuple[int, str, int]:
    first, second = value.get("subject"), value.get("object")
    if type(first) is not int or type(second) is not int or not (0 <= first < things and 0 <= second < things):
        raise ValueError(f"{where}: subject and object need to be places in the list of {things} objects, from 0")
    if not isinstance(value.get("predicate"), str) or not value["predicate"].strip():
        raise ValueError(f"{where}: needs a predicate")
    return first, _plain(value["predicate"]), second


# What can be said of a picture ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """Something that is true of a picture.

    frame: equal for facts whose sentences differ in the word alone. group: the words that may take its place.
    sentence: the sentence with a word. false: whether the annotations rule a word out.
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
    picture: Picture, words: Words, nouns: Mapping[str, Sequence[str]], draw: random.Random, left: Counter[str]
) -> Iterator[Fact]:
    """That each object is there: by its location or by its size, half of them each. nouns: by form, as often as they
    are annotated. Left out: objects without a box, and those that share a noun, as either may be meant."""
    there = [thing.name for thing in picture.things]

    def false(word: str) -> bool:
        return not any(words.same(word, name) for name in there)

    for thing in picture.things:
        if thing.box is None:
            left["objects without a box"] += 1
        elif sum(words.same(thing.name, name) for name in there) > 1:
            left["objects whose noun may name another one in the picture"] += 1
        else:
            labels = {
                "location": location_class(thing.box, picture.width, picture.height),
                "size": size_class(thing.box, picture.width, picture.height),
            }
            kind = draw.choice(sorted(labels))
            axis, form = f"Object/{kind.title()}/{labels[kind]}", words.form(thing.name)
            yield Fact(axis, picture.image, (axis, form), thing.name, nouns[form], words.there, false, labels)


def attributes(picture: Picture, words: Words, left: Counter[str]) -> Iterator[Fact]:
    """That something with an attribute is there. A word is false where all that the noun may name have an attribute
    that excludes it, and none that it goes with."""
    for thing in picture.things:
        alike = [other.attributes for other in picture.things if words.same(thing.name, other.name)]

        def false(word: str, alike: list[tuple[str, ...]] = alike) -> bool:
            return all(words.excluded(word, known) for known in alike)

        for word in thing.attributes:
            groups = words.groups(word, "Attribute/")
            left["attributes that are in no table"] += not groups
            for axis, group in groups.items():
                sentence = partial(words.there, noun=thing.name)
                yield Fact(axis, picture.image, (axis, thing.name), word, group, sentence, false)


def relations(picture: Picture, words: Words, left: Counter[str]) -> Iterator[Fact]:
    """That one object stands in a relation to another. A word is false where all pairs of objects that the nouns may
    name stand in a relation that excludes it, and in none that it goes with."""
    known: dict[tuple[int, int], set[str]] = defaultdict(set)
    for first, predicate, second in picture.relations:
        known[first, second].add(predicate)
        known[second, first] |= words.inverses[predicate]
    names = [thing.name for thing in picture.things]
    for first, word, second in picture.relations:
        subject, target = names[first], names[second]
        alike = [
            known.get((a, b), set())
            for a in range(len(names)) if words.same(subject, names[a])
            for b in range(len(names)) if a != b and words.same(target, names[b])
        ]  # fmt: skip

        def false(word: str, alike: list[set[str]] = alike) -> bool:
            return bool(alike) and all(words.excluded(word, known) for known in alike)

        groups = words.groups(word, "Relation/")
        left["relations that are in no table"] += not groups
        for axis, group in groups.items():
            verb = words.is_adverbial(axis, word)
            fitting = [one for one in group if words.is_adverbial(axis, one) == verb]
            sentence = partial(words.related, subject=subject, target=target, be=verb)
            yield Fact(axis, picture.image, (axis, subject, target, str(verb)), word, fitting, sentence, false)


# Their negatives -----------------------------------------------------------------------------------------------------


def mirrored(facts: Sequence[Fact], draw: random.Random) -> dict[int, int]:
    """For each fact that has one its mirror: a fact of another picture in the same frame, such that each one's word is
    false of the other's picture. By places, both ways round."""
    found: dict[int, int] = {}
    waiting: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place in draw.sample(range(len(facts)), len(facts)):
        fact, others = facts[place], waiting[facts[place].frame]
        for number in draw.sample(range(len(others)), min(TRIES, len(others))):
            other = facts[others[number]]
            if fact.false(other.word) and other.false(fact.word):
                found[place], found[others[number]] = others[number], place
                others[number] = others[-1]
                others.pop()
                break
        else:
            others.append(place)
    return found


def balanced(fact: Fact, lean: int, used: Counter[str], draw: random.Random) -> str | None:
    """A word for a fact without a mirror: one whose sentence is as long, or else as makes up for earlier ones that were
    not (lean: longer ones less shorter ones), and among these one that is rarely a negative; None where none fits."""
    drawn = draw.sample(fact.group, min(TRIES, len(fact.group)))
    length = len(fact.sentence(fact.word))
    costs = {
        word: (abs(lean + _sign(len(fact.sentence(word)) - length)), used[word])
        for word in dict.fromkeys(drawn)
        if word != fact.word and fact.false(word)
    }
    return min(costs, key=lambda word: costs[word]) if costs else None


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def generate(
    pictures: Sequence[Picture],
    tables: Mapping[str, list[list[str]]] | None = None,
    seed: int = 0,
    source: str = "annotations",
    root: str = "images",
    only_mirrored: bool = False,
) -> Corpus:
    """A checklist from annotations; the same seed gives the same. Its notes say what was left out, how many records
    have mirrors, and how often the shorter sentence is the true one. root: a folder above the pictures' paths.
    only_mirrored: leave out records without a mirror, so that no rule which reads only the text is right more often
    than half of the time."""
    words = Words(tables or TABLES)
    draw, left = random.Random(f"{seed}/negatives"), Counter[str]()
    nouns: dict[str, list[str]] = defaultdict(list)
    for picture in pictures:
        for thing in picture.things:
            nouns[words.form(thing.name)].append(thing.name)
    found: dict[tuple[str, str, str], Fact] = {}
    for picture in pictures:
        for fact in (
            *objects(picture, words, nouns, draw, left),
            *attributes(picture, words, left),
            *relations(picture, words, left),
        ):
            found.setdefault((fact.image, fact.axis, fact.sentence(fact.word)), fact)
    facts = sorted(found.values(), key=lambda fact: fact.axis)
    mirrors = mirrored(facts, draw)
    lean: Counter[str] = Counter()  # by axis
    used: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    items, numbers = [], Counter[str]()
    for place, fact in enumerate(facts):
        mirror = mirrors.get(place)
        if mirror is None and only_mirrored:
            left["facts without a mirror"] += 1
            continue
        own = None if mirror is None else facts[mirror].word
        word = own or balanced(fact, lean[fact.axis], used[fact.frame], draw)
        if word is None:
            left["facts that no word makes false for certain"] += 1
            continue
        true, false = fact.sentence(fact.word), fact.sentence(word)
        lean[fact.axis] += _sign(len(false) - len(true))
        used[fact.frame][word] += 1
        pair = "" if mirror is None else f"{fact.axis}/{min(place, mirror)}"
        labels = {**fact.labels, "word": fact.word, "replacement": word}
        identity = f"{fact.axis}/{source}/{numbers[fact.axis]}"
        numbers[fact.axis] += 1
        items.append(Item(identity, f"{root}/{fact.image}", (true,), (false,), fact.axis, source, pair, labels))
    return Corpus(source, "checklist", tuple(items), None, tuple(_notes(items, left)))


def _notes(items: Sequence[Item], left: Counter[str]) -> Iterator[str]:
    if items:
        paired = sum(bool(item.pair) for item in items)
        yield f"{paired:,} of {len(items):,} records have a mirror: another picture, the sentences the other way round"
        signs = [_sign(len(item.negatives[0]) - len(item.positives[0])) for item in items]
        share = sum((sign + 1) / 2 for sign in signs) / len(signs)
        yield f"the shorter sentence is the true one in {share:.1%} of the records (equal lengths count half)"
    yield from (f"{number:,} {what}, left out" for what, number in left.most_common() if number)


# Command line --------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = cli.Parser(prog="python -m analysis.probe.negatives", description="Make a checklist from annotations.")
    parser.add_argument("annotations", metavar="ANNOTATIONS", type=Path, help="a file of JSON lines, one picture each")
    parser.add_argument("out", metavar="OUT", type=cli.folder, help="the folder to write the checklist to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tables", type=Path, metavar="FILE", help="a YAML file of words beside the built-in ones")
    parser.add_argument("--source", metavar="NAME", help="the name of the data (default: that of the annotations)")
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
    print(f"wrote {len(corpus.items):,} records to {options.out}; the pictures belong in {options.out / 'images'}")
    return 0


if __name__ == "__main__":
    cli.run("negatives", main)
