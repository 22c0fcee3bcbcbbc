"""Quantifiers: `Not all the circle objects are red objects.`

X and Y are the sets of objects that the query describes first and second. The pair is the quantifier that is true of
the scene and the two numbers that Table 1 of the paper gives for it (section 3 and appendix A).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

import splits
from render.text import plural
from travlr.config import STRICT, Config, RangeFrom0, RangeFrom1
from travlr.sampling import streams
from travlr.scene import COLOURS, Object, Scene, described
from travlr.settings import Settings
from travlr.tasks.base import Arguments, Cells, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.exchange import check_exchange, mentioned_between, rank_among
from travlr.tasks.language import say_places
from travlr.tasks.vectorised import MATCHINGS, SIDES, Draw, Task, Template, choose_from, numbers_of

# Table 1 by regions of X and Y. A quantifier and its complement share the first part of their pairs; the second part of
# the *vacant* one (all, none, only) is `spare`, that of the other is `decides`, which is empty exactly when the vacant
# quantifier is true.
REGIONS = ("objects in both sets", "objects in the first set only", "objects in the second set only", "other objects")
FAMILIES: dict[tuple[str, str], dict[str, int]] = {
    ("all", "not all"): {"shared": 0, "decides": 1, "spare": 2},
    ("none", "some"): {"shared": 1, "decides": 0, "spare": 2},
    ("only", "not only"): {"shared": 0, "decides": 2, "spare": 1},
}
QUANTIFIERS = tuple(quantifier for family in FAMILIES for quantifier in family)
WORDS = {q: f"{q}{' of' if q in ('some', 'none') else ''} the" for q in QUANTIFIERS}


def family_of(quantifier: str) -> tuple[str, str]:
    """The family of a quantifier: the vacant one and its complement. Raises `ValueError` for an unknown one."""
    for family in FAMILIES:
        if quantifier in family:
            return family
    raise ValueError(f"unknown quantifier {quantifier!r}: choose one of {', '.join(QUANTIFIERS)}")


def table_1(quantifier: str) -> tuple[int, int]:
    """The two regions (indices into `REGIONS`) that Table 1 counts for a quantifier, in its order."""
    family = family_of(quantifier)
    regions = FAMILIES[family]
    return regions["shared"], regions["spare" if quantifier == family[0] else "decides"]


def region_counts(scene: Scene, first: str, second: str) -> list[int]:
    """Numbers of objects in each of `REGIONS`."""
    regions = [region_of(o, first, second) for o in scene]
    return [regions.count(region) for region in range(len(REGIONS))]


def region_of(o: Object, first: str, second: str) -> int:
    """Which of `REGIONS` an object is in."""
    return 3 - 2 * o.matches(first) - o.matches(second)


def _exchanged_pair(vacant: str, shared: int, decides: int, numbers: Sequence[int]) -> tuple[int, int]:
    """The pair of the scene in which `decides` exchanges have emptied the deciding region (preset=strict).

    Its first number is the sum of the two. The second is drawn from `numbers`, different for all pairs of equal sums;
    for *none* the exchange adds to it.
    """
    total = shared + decides
    if vacant == "none":
        return total, numbers[total % len(numbers)] + decides
    return total, numbers[(total + decides) % len(numbers)]


# For the recount: what each quantifier says of the sets X and Y, and the two sets that Table 1 counts for it.
TRUE_WHEN: dict[str, Callable[[Cells, Cells], bool]] = {
    "all": lambda x, y: x <= y,
    "not all": lambda x, y: not x <= y,
    "some": lambda x, y: not x.isdisjoint(y),
    "none": lambda x, y: x.isdisjoint(y),
    "only": lambda x, y: y <= x,
    "not only": lambda x, y: not y <= x,
}
COUNTED: dict[str, Callable[[Cells, Cells], tuple[Cells, Cells]]] = {
    "all": lambda x, y: (x & y, y - x),
    "not all": lambda x, y: (x & y, x - y),
    "some": lambda x, y: (x - y, x & y),
    "none": lambda x, y: (x - y, y - x),
    "only": lambda x, y: (x & y, x - y),
    "not only": lambda x, y: (x & y, y - x),
}
OPPOSITE = {"all": "not all", "some": "none", "only": "not only", "not all": "all", "none": "some", "not only": "only"}


class HeldOutQuantified(Settings):
    """Which pairs and queries only test_ood shows."""

    numbers: tuple[tuple[int, int], ...] | None = Field(
        None, description="<a, b> in the order of the paper's Table 1 (reversed for some); null for the paper's"
    )
    attributes: tuple[tuple[str, str], ...] | None = Field(
        None, description="[shape, colour]; null for one colour of each shape"
    )


class Quantifiers(Config):
    presets = {
        "released": {},
        "strict": STRICT
        | {
            "numbers": [2, 5],
            "distractors": [3, 21],
            "held_out": {"numbers": [[2, 4], [3, 5], [4, 2], [5, 3]]},  # each number once in each place
        },
    }

    task: str = "quantifiers"
    query_by: Literal["shape", "colour", "both"] = Field(
        "shape", description="shape: of circles that they are red; colour: of red objects that they are circles; both"
    )
    numbers: RangeFrom1 = Field((1, 5), description="both parts of the pair: lowest, highest")
    distractors: RangeFrom0 = Field((2, 8), description="how many objects with neither attribute: lowest, highest")
    held_out: HeldOutQuantified = HeldOutQuantified()

    @model_validator(mode="after")
    def _check(self) -> Quantifiers:
        check_exchange(self, self.numbers, one_word=False)
        return self


class QuantifiersTask(Task):
    """All, not all, some, none, only, not only.

    Groups: `REGIONS`. The two scenes of a couple have equal numbers of objects in all and in the third region, and,
    as far as the held-out pairs allow, in the region that both their pairs count.

    With `preset=strict`, as many objects of the query's shape as the deciding region holds exchange colours with as
    many objects of other shapes. This empties the deciding region, and changes the other regions by the same number.
    The groups are the objects of the query's shape and the others; `exchange` adds colours. The held-out numbers are
    those of *not all*, *some* and *not only*.
    """

    Config = Quantifiers
    query = "{quantifier} {first} objects are {second} objects."
    arguments = {"quantifier": WORDS, "first": "nouns", "second": "nouns"}
    decided_by = "binding"
    axes = {q: (REGIONS[table_1(q)[0]], REGIONS[table_1(q)[1]]) for q in QUANTIFIERS}

    @staticmethod
    def truth(scene: Scene, quantifier: str, first: str, second: str) -> bool:
        return QuantifiersTask.pair(scene, quantifier, first, second)[0] == quantifier

    @staticmethod
    def pair(scene: Scene, quantifier: str, first: str, second: str) -> Pair:
        """The quantifier of the query's family that is true, and the numbers of Table 1 for it."""
        counts = region_counts(scene, first, second)
        vacant, other = family_of(quantifier)
        true = vacant if counts[FAMILIES[vacant, other]["decides"]] == 0 else other
        return true, *(str(counts[region]) for region in table_1(true))

    @staticmethod
    def recount(cells: CellsOf, quantifier: str, first: str, second: str) -> tuple[bool, Pair]:
        x, y = cells[first], cells[second]
        answer = TRUE_WHEN[quantifier](x, y)
        true = quantifier if answer else OPPOSITE[quantifier]
        return answer, (true, *(str(len(part)) for part in COUNTED[true](x, y)))

    @staticmethod
    def alternatives(scene: Scene, quantifier: str, first: str, second: str) -> list[Arguments]:
        return [{"quantifier": word, "first": first, "second": second} for word in family_of(quantifier)]

    @staticmethod
    def open_question(scene: Scene, quantifier: str, first: str, second: str) -> OpenQuestion:
        """How many objects are in the region that decides. There are none exactly where all, none or only is true."""
        decides = FAMILIES[family_of(quantifier)]["decides"]
        question = (
            f"How many of the {first} objects are {second} objects?",
            f"How many of the {first} objects are not {second} objects?",
            f"How many of the {second} objects are not {first} objects?",
        )[decides]
        return OpenQuestion(question, str(region_counts(scene, first, second)[decides]))

    @staticmethod
    def steps(scene: Scene, quantifier: str, first: str, second: str) -> Steps:
        """The objects in the region that decides, and the quantifier that is true."""
        region = FAMILIES[family_of(quantifier)]["decides"]
        of, other = (second, first) if region == 2 else (first, second)
        name = f"{plural(of)} that are {'not ' if region else ''}{other if other in COLOURS else plural(other)}"
        objects = [o for o in scene if region_of(o, first, second) == region]
        return Steps(
            f"{say_places(name, objects)} So {QuantifiersTask.pair(scene, quantifier, first, second)[0]}.", quantifier
        )

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[0].partition(" ")[0], *pair[1:]]

    # Scenes -------------------------------------------------------------------------------------------------------

    config: Quantifiers

    def build(self) -> None:
        config, numbers = self.config, numbers_of(self.config.numbers)
        if self.exchanged and config.distractors[1] - config.distractors[0] < numbers[-1]:
            raise ValueError(
                f"preset=strict: distractors={config.distractors} must span at least {numbers[-1]}, as an "
                "exchange changes their number by up to so many"
            )
        names = [(s, c) for s in self.world.shapes for c in self.world.colours]
        self._held_out_numbers, self._held_out_attributes = self._read_numbers(numbers), self._read_attributes(names)
        orders = {"shape": slice(1), "colour": slice(1, 2), "both": slice(2)}[config.query_by]
        for side in SIDES:
            of_side = [words for words in names if (words in self._held_out_attributes) == (side == "out")]
            nouns_of_side = [nouns for words in of_side for nouns in (words, words[::-1])[orders]]
            for vacant, other in FAMILIES:
                self._add_family(side, vacant, other, numbers, nouns_of_side)
        nouns, colours = [query.args[1:] for query in self.queries], self.world.colours
        # Without exchanges a couple's smaller scene has as many objects: with the most distractors.
        most = (3 if self.exchanged else 2) * numbers[-1] + config.distractors[1]
        self.set_groups([self._groups_of(*words) for words in nouns], most)
        self._colour_first = np.array([first in colours for first, _ in nouns], bool)
        shape_and_colour = [words[::-1] if words[0] in colours else words for words in nouns]
        self._of_shape = described(self.world, [shape for shape, _ in shape_and_colour])
        self._colour = np.array([colours.index(colour) for _, colour in shape_and_colour], np.intp)
        # Of each pair: whether its quantifier is vacant, its two numbers, its family's shared and deciding region.
        self._pair_table = np.array([self._row_of(*pair) for pair in self.pairs]).reshape(-1, 5)

    def _add_family(self, side: str, vacant: str, other: str, numbers: list[int], nouns: list[tuple[str, str]]) -> None:
        """Add the templates of a quantifier and its complement on one side. nouns: first and second of each query."""
        pairs = {}
        for quantifier in (vacant, other):
            held_out = self._held_out_of(quantifier)
            pairs[quantifier] = [p for p in itertools.product(numbers, numbers) if (p in held_out) == (side == "out")]
        if self.exchanged:
            pairs[vacant] = [_exchanged_pair(vacant, *p, numbers) for p in pairs[other]]
        ids = {quantifier: [self.pair_number((quantifier, *p)) for p in pairs[quantifier]] for quantifier in pairs}
        if not ids[vacant]:
            return
        if self.exchanged:
            matchings = np.arange(len(ids[vacant]))[None]
        else:
            matchings = self._matchings(side, vacant, pairs[vacant], pairs[other])
        for quantifier, opposite, matching in ((vacant, other, matchings), (other, vacant, matchings.argsort(axis=1))):
            texts = [self.query_number(quantifier, *words) for words in nouns]
            self.add_template(side, ids[quantifier], ids[opposite], texts, matching)

    def _held_out_of(self, quantifier: str) -> list[tuple[int, int]]:
        """Held-out numbers in Table 1's order, which is the reverse for *some*."""
        return [(b, a) if quantifier == "some" else (a, b) for a, b in self._held_out_numbers]

    def _read_attributes(self, names: list[tuple[str, str]]) -> list[tuple[str, str]]:
        held_out = self.config.held_out.attributes
        if held_out is None:
            return splits.held_out_attributes(self.world.shapes, self.world.colours)
        for item in held_out:
            if tuple(item) not in names:
                raise ValueError(f"held_out.attributes: {item} is not [shape, colour] of this world")
        return [(s, c) for s, c in held_out]

    def _read_numbers(self, numbers: list[int]) -> list[tuple[int, int]]:
        held_out = self.config.held_out.numbers
        if held_out is None:
            return [(a, b) for a, b in splits.QUANTIFIERS if a in numbers and b in numbers]
        for item in held_out:
            if len(item) != 2 or any(n not in numbers for n in item):
                raise ValueError(f"held_out.numbers: {item} is not two numbers from {numbers[0]} to {numbers[-1]}")
        return [(a, b) for a, b in held_out]

    @staticmethod
    def _row_of(quantifier: str, first: str, second: str) -> tuple[bool, int, int, int, int]:
        """The row of `_pair_table` of a pair."""
        family = family_of(quantifier)
        regions = FAMILIES[family]
        return quantifier == family[0], int(first), int(second), regions["shared"], regions["decides"]

    def _groups_of(self, first: str, second: str) -> list[int]:
        x, y = set(self.world.matching(first)), set(self.world.matching(second))
        rest = self.others(first, second)
        if not x - y or not y - x or (self.config.distractors[1] and not rest):
            raise ValueError("world: quantifiers need at least two colours and two shapes")
        if self.exchanged:  # the shapes alone; the colour is that of kind number 1
            shape = first if first in self.world.shapes else second
            plain = self.world.matching(self.world.colours[0])
            of_shape = set(self.world.matching(shape))
            return [self.kind_list(k for k in plain if (k in of_shape) == queried) for queried in (True, False)]
        return [self.kind_list(sorted(kinds)) for kinds in (x & y, x - y, y - x, rest)]

    def _matchings(
        self, side: str, vacant: str, vacant_pairs: list[tuple[int, int]], other_pairs: list[tuple[int, int]]
    ) -> np.ndarray:
        """(R, L): for each pair of the vacant quantifier one of the other, with the same shared number where it can.

        So the size of the shared region says as little about the truth as the held-out pairs allow.
        """

        def equal_totals(vacant_pair: tuple[int, int], other_pair: tuple[int, int]) -> bool:
            """Whether the two scenes of a couple can have the same total number of objects."""
            spare = vacant_pair[1] if not self.config.released else 0
            low, high = self.config.distractors
            return abs(sum(vacant_pair) - sum(other_pair) - spare) <= high - low

        words = streams.words(self.key(side, "matchings", vacant), 0, 1 << 15, 2 * len(vacant_pairs))
        matchings = []
        for word in words:
            v_word, o_word = word[: len(vacant_pairs)], word[len(vacant_pairs) :]
            matching = np.full(len(vacant_pairs), -1)
            without_partner: list[int] = []
            rows: dict[int, list[int]] = {}
            for o in np.argsort(o_word):
                rows.setdefault(other_pairs[o][0], []).append(int(o))
            for v in np.argsort(v_word):
                row = rows.get(vacant_pairs[v][0])
                if row:
                    matching[v] = row.pop()
                else:
                    without_partner.append(int(v))
            matching[without_partner] = [o for row in rows.values() for o in row]
            are_equal = (equal_totals(vacant_pairs[v], other_pairs[o]) for v, o in enumerate(matching))
            if self.config.released or all(are_equal):
                matchings.append(matching)
                if len(matchings) == MATCHINGS:
                    return np.array(matchings)
        raise ValueError(
            f"distractors={self.config.distractors}: too narrow a range to give {vacant} and its complement the same "
            "total number of objects; widen it by the highest of numbers"
        )

    def _vacant_and_other(self, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """(N, 5) each: the rows of `_pair_table` of each couple's vacant quantifier, and of its complement."""
        pair, partner = self._pair_table[draw.pair], self._pair_table[draw.partner]
        is_vacant = pair[:, :1] == 1
        return np.where(is_vacant, pair, partner), np.where(is_vacant, partner, pair)

    def _colour_counts(self, draw: Draw) -> np.ndarray:
        """(N, 5): numbers of objects in the true scene of a couple.

        The first is how many objects of the query's shape exchange colours with as many others. The rest is how many
        objects keep theirs: of the query's shape and colour, of its shape only, of its colour only, of neither.
        """
        vacant, other = self._vacant_and_other(draw)
        _, shared, decides, shared_region, deciding_region = other.T
        low, high = self.config.distractors
        rest = choose_from((low, high - decides), draw.words[:, 1])  # in both scenes neither set holds these
        others = np.zeros((len(rest), 4), np.intp)
        rows = np.arange(len(rest))
        others[rows, shared_region] = shared
        # Where both sets share no object in the vacant scene (none), the exchange adds to its spare region.
        spare = np.where(deciding_region == 0, vacant[:, 2] - decides, vacant[:, 2])
        others[rows, 3 - shared_region - deciding_region] = spare
        others[:, 3] = rest
        swap = self._colour_first[draw.query]  # region 1 is that of the first set
        others[swap] = others[swap][:, [0, 2, 1, 3]]
        return np.concatenate([decides[:, None], others], axis=1)

    def exchange(
        self, draw: Draw, grid: np.ndarray, keys: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Some objects of the query's shape exchange colours with as many others; one of each two has its colour."""
        number, both, _, colour_only, _ = self._colour_counts(draw).T[..., None]
        occupied, of_shape = grid > 0, np.take_along_axis(self._of_shape[draw.query], grid.astype(np.intp), axis=1)
        rank = np.where(of_shape, rank_among(occupied & of_shape, words), rank_among(occupied & ~of_shape, words))
        changes = occupied & (rank < number)
        keeps = occupied & ~changes & (rank < number + np.where(of_shape, both, colour_only))
        colours = len(self.world.colours)
        random, shared = (streams.mix(words + np.uint64(i)) % np.uint64(colours - 1) for i in (1, 2))
        offset = 1 + np.where(changes, np.take_along_axis(shared, rank, axis=1), random).astype(np.intp)
        queried = self._colour[draw.query][:, None]
        scenes = np.empty((2, *grid.shape), grid.dtype)
        for answer in (0, 1):
            # Where no object is in the deciding region, all objects of the shape that change have the colour, or none.
            vacant = (self._pair_table[draw.pair, 0] == 1) == answer
            shape_has_colour = (vacant == (self._pair_table[draw.pair, 4] != 0))[:, None]
            coloured = keeps | (changes & (of_shape == shape_has_colour))
            scenes[answer] = np.where(occupied, grid + (queried + np.where(coloured, 0, offset)) % colours, 0)
        return scenes, np.broadcast_to(mentioned_between(keys, changes, [keeps]), scenes.shape)

    def group_counts(self, draw: Draw) -> np.ndarray:
        if self.exchanged:
            number, both, shape_only, colour_only, neither = self._colour_counts(draw).T
            return np.stack([number + both + shape_only, number + colour_only + neither], axis=1)
        vacant, other = self._vacant_and_other(draw)
        is_vacant, shared, _, shared_region, deciding_region = self._pair_table[draw.pair].T
        rows, zeros = np.arange(len(shared)), np.zeros_like(shared)
        spare_of_other = vacant[:, 2] if not self.config.released else zeros
        counts = np.zeros((len(shared), 4), np.intp)
        counts[rows, shared_region] = shared
        counts[rows, deciding_region] = np.where(is_vacant, 0, other[:, 2])
        counts[rows, 3 - shared_region - deciding_region] = np.where(is_vacant, vacant[:, 2], spare_of_other)
        low, high = self.config.distractors
        if self.config.released:
            counts[:, 3] = choose_from((low, high), draw.words[:, 1] ^ streams.mix(draw.pair.astype(np.uint64)))
        else:
            sizes = np.stack([vacant[:, 1:3].sum(axis=1), other[:, 1:3].sum(axis=1) + spare_of_other])
            total = choose_from((sizes.max(axis=0) + low, sizes.min(axis=0) + high), draw.words[:, 1])
            counts[:, 3] = total - counts.sum(axis=1)
        return counts

    def capacity(self, template: Template) -> int:
        if self.exchanged:  # at least so many objects are of other shapes than the query's
            others = self.config.distractors[0] + self.config.numbers[0]
            kinds = self.kinds_in_group(int(template.texts[0]), 1) ** others
            totals = range(3 * self.config.numbers[0] + self.config.distractors[0], self.most_objects + 1)
            return kinds * min(self.placements(self.world.cells, total) for total in totals)
        least = []
        for number in {*template.true_pairs.tolist(), *template.false_pairs.tolist()}:
            vacant, a, b, shared, decides = self._pair_table[number].tolist()
            region = 3 - shared - decides if vacant else decides
            counts = {shared: a, region: b, 3: self.config.distractors[0]}
            least += [self.fewest_scenes(int(query), counts) for query in (template.texts[0], template.texts[-1])]
        return min(least)
