"""A lexicon of English words: which exclude or imply each other, their articles and numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import permutations
from pathlib import Path

from analysis.probe.folders import read_yaml

TABLES: dict[str, list[list[str]]] = {
    # At most one word of each list is true of an object, or of a subject and an object.
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
    # The first word of a list may be true wherever another one is.
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
    # If the first is true of (a, b), the second is true of (b, a).
    "inverse": [
        ["on", "under"], ["on top of", "under"], ["above", "below"], ["in front of", "behind"], ["near", "near"],
        ["to the left of", "to the right of"], ["next to", "next to"], ["far from", "far from"],
    ],
    # Nouns without an article.
    "mass": [
        ["water", "grass", "snow", "sand", "hair", "food", "bread", "rice", "furniture", "luggage", "dirt", "gravel"],
        ["ice", "milk", "coffee", "juice", "wine", "beer", "cheese", "meat", "smoke", "traffic", "clothing", "fruit"],
    ],
    # Plural nouns without a final s, and singular nouns with one.
    "plural": [["people", "men", "women", "children", "feet", "teeth", "mice", "geese", "police"]],
    "singular": [["bus", "gas", "lens", "canvas", "atlas", "circus", "cactus", "tennis", "pancreas"]],
}  # fmt: skip
IRREGULAR = {"people": "person", "men": "man", "women": "woman", "children": "child", "feet": "foot", "teeth": "tooth",
             "mice": "mouse", "geese": "goose", "knives": "knife", "leaves": "leaf", "shelves": "shelf",
             "potatoes": "potato", "tomatoes": "tomato", "buses": "bus"}  # fmt: skip
# Initial vowels except those that sound like `you` or `won`, a silent h, and abbreviations and numbers pronounced with
# an initial vowel.
AN = re.compile(
    r"(?!u\b|u[fk]|ups\b|ur[aiu]|us(?!h)|ut[eio]|uv|uni(?![mnr]|de)|eu|ewe|one(?:s|\b)|once\b|oui)[aeiou]"
    r"|hour|honest|honou?r|heir|[fhlmnrsx]\b|(?:hd|lcd|mp3|rv|suv)s?\b|hdtv|xbox|8|1[18]\b"
)


def article(words: str) -> str:
    """`a` or `an`, by the first sound of the words."""
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


class Lexicon:
    """Look-ups in the tables of words."""

    def __init__(self, tables: Mapping[str, list[list[str]]]) -> None:
        self.pairs: set[tuple[str, str]] = set()
        for first, *others in tables["together"]:
            self.pairs |= {pair for other in others for pair in ((first, other), (other, first))}
        self.inverses: dict[str, set[str]] = defaultdict(set)
        for first, second in tables["inverse"]:
            self.inverses[first].add(second)
            self.inverses[second].add(first)
        self.forms = {word: form for form in ("mass", "plural", "singular") for words in tables[form] for word in words}
        self.lists = {name: words for name, words in tables.items() if "/" in name}
        self.excluding = {
            pair for groups in self.lists.values() for words in groups for pair in permutations(words, 2)
        } - self.pairs

    def agree(self, one: str, other: str) -> bool:
        """Whether both words may be true of the same thing."""
        return one == other or (one, other) in self.pairs

    def excluded(self, word: str, true: Iterable[str]) -> bool:
        """Whether some of the true words exclude a word, and none agrees with it."""
        return any((word, one) in self.excluding for one in true) and not any(self.agree(word, one) for one in true)

    def groups(self, word: str, top: str) -> dict[str, list[str]]:
        """By axis (in `Attribute/` or `Relation/`), the words that share a list with a word."""
        groups = {
            axis: sorted({other for words in lists if word in words for other in words} - {word})
            for axis, lists in self.lists.items()
            if axis.startswith(top)
        }
        return {axis: words for axis, words in groups.items() if words}

    def same(self, one: str, other: str) -> bool:
        """Whether two nouns may name the same object, by the singular of their last words."""
        return self.agree(singular(one), singular(other)) or self.agree(one, other)

    def form(self, noun: str) -> str:
        """`mass`, `plural` or `singular`."""
        word = noun.rpartition(" ")[2]
        guess = "plural" if word.endswith("s") and not word.endswith(("ss", "us", "is")) else "singular"
        return self.forms.get(word, guess)

    def phrase(self, noun: str, before: str = "") -> str:
        """A noun phrase with its article. before: a word before the noun."""
        whole = f"{before} {noun}".strip()
        return f"{article(whole)} {whole}" if self.form(noun) == "singular" else whole

    def there(self, word: str, noun: str = "") -> str:
        """An existential sentence: about the word, or about the noun with the word before it."""
        noun, before = (noun, word) if noun else (word, "")
        return f"there {self.be(noun)} {self.phrase(noun, before)} in the picture"

    def related(self, word: str, subject: str, target: str, be: bool) -> str:
        """A sentence that states a relation. be: put `is` or `are` before the word."""
        return f"{self.phrase(subject)} {f'{self.be(subject)} ' * be}{word} {self.phrase(target)}"

    def is_adverbial(self, axis: str, predicate: str) -> bool:
        """Whether a predicate needs `is`: `on` and `holding` do, `holds` does not."""
        return axis == "Relation/spatial" or predicate.partition(" ")[0].endswith("ing")

    def be(self, noun: str) -> str:
        return "are" if self.form(noun) == "plural" else "is"


def read_tables(path: Path | str | None = None) -> dict[str, list[list[str]]]:
    """The built-in tables, extended by a YAML file of the same form (names of `TABLES` with lists of lists of words).
    Raises `ValueError`, one line, for another name or shape."""
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
        tables[name] += [[normalize(word) for word in words] for words in lists]
    return tables


def normalize(text: str) -> str:
    """Lower case, with single blanks."""
    return " ".join(text.lower().split())
