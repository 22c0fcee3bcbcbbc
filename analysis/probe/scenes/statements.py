"""Statements about scenes: logical form, sentence, and truth value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.probe.scenes.drawing import PlacedObject
from travlr.tasks.spatiality import RELATIONS

# By kind of statement; `a` before a number stands for "a" or "an".
TEMPLATES = {
    "exists": ("there is a {0} in the picture", "the picture shows a {0}"),
    "is": ("the {0} is {1}", "the {0} in the picture is {1}"),
    "stands": ("the {0} is {1} the {2}", "a {0} is {1} a {2}"),
    "binds": ("a {0} is {1}", "the {0} looks {1}"),
}


@dataclass(frozen=True)
class Statement:
    """A statement. says: its kind, with its arguments: exists (attributes), is and binds (attributes, attribute),
    stands (attributes, relation, attributes). Attributes are words with blanks between them, such as `red circle`.

    All but `exists` need objects that are unique in the scene, so that "the" is correct. `is` and `binds` have the same
    truth conditions and other templates.
    """

    says: str
    args: tuple[str, ...]

    def sentence(self, template: int) -> str:
        text = TEMPLATES[self.says][template]
        for number, words in enumerate(self.args):
            article = "an" if words[0] in "aeiou" else "a"
            text = text.replace(f"a {{{number}}}", f"{article} {words}").replace(f"{{{number}}}", words)
        return text

    def holds(self, scene: Sequence[PlacedObject]) -> bool:
        """Whether it is true of a scene. Raises `ValueError` where an object does not exist or is not unique."""
        if self.says == "exists":
            return any(o.words.issuperset(self.args[0].split()) for o in scene)
        if self.says == "stands":
            first, relation, second = self.args
            axis, sign = RELATIONS[relation]
            one, other = _the(scene, first).centre, _the(scene, second).centre
            dimension = 0 if axis == "horizontal" else 1
            return (other[dimension] - one[dimension]) * sign > 0
        return self.args[1] in _the(scene, self.args[0]).words


def _the(scene: Sequence[PlacedObject], attributes: str) -> PlacedObject:
    objects = [o for o in scene if o.words.issuperset(attributes.split())]
    if len(objects) != 1:
        raise ValueError(f"'the {attributes}' of a scene with {len(objects)}")
    return objects[0]


def visible_words(scene: Sequence[PlacedObject]) -> frozenset[str]:
    """All attributes and relations that are true of some objects in the scene."""
    words = {word for o in scene for word in o.words}
    for axis, dimension in (("horizontal", 0), ("vertical", 1)):
        if len({o.centre[dimension] for o in scene}) > 1:  # then both relations of this axis are true of some objects
            words |= {relation for relation, (its, _) in RELATIONS.items() if its == axis}
    return frozenset(words)


def content_words(form: Statement) -> frozenset[str]:
    """The content words of a statement; a relation counts as one word."""
    return frozenset(word for part in form.args for word in ([part] if part in RELATIONS else part.split()))
