"""What is named beside an answer: the steps that lead to it, which the answer alone rewards too late.

"The red circle is to the left of the blue square" is judged by reading objects, finding two of them, comparing their
places, and comparing what is found with what is said. A model that starts from random weights learns none of these from
the answer (spatiality stays at chance for thousands of steps). So three kinds of token say what they should know:

- the last of each object in the caption: the object, "red circle A 1";
- the last of each thing that the query asks about: the thing, "red circle", and its value of the pair, "A";
- the first, whose state is classified: the pair, and what the query says of it, "right E A" and "left".

The pair's values are told as numbers, too, 5 and 1, by the things and by the first token: what tells two numbers apart
along a line does so for pairs that were never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from train.data.inputs import IGNORED, NAME_TOKENS, PAIR_TOKENS, Inputs
from train.data.text import WordTokenizer, phrases_of
from travlr.scene import COLOURS, SHAPES, SIZES
from travlr.tasks import TASKS, parse_query

SINGULAR = {word: word for word in (*COLOURS, *SHAPES, *SIZES)} | {f"{shape}s": shape for shape in SHAPES}


@dataclass(frozen=True)
class ObjectTargets:
    """Objects that T texts list, those of text t from starts[t] to starts[t + 1]. places: (objects,), the last token of
    each in its text. names: (objects, 5), tokens of its words, `IGNORED` where there are fewer."""

    starts: np.ndarray
    places: np.ndarray
    names: np.ndarray

    def targets(self, texts: np.ndarray, length: int) -> np.ndarray:
        """(B, length, 5) for texts (B,)."""
        found = np.full((len(texts), length, NAME_TOKENS), IGNORED)
        counts = self.starts[texts + 1] - self.starts[texts]
        example = np.repeat(np.arange(len(texts)), counts)
        objects = np.arange(len(example)) + np.repeat(self.starts[texts] - (counts.cumsum() - counts), counts)
        found[example, self.places[objects]] = self.names[objects]
        return found


@dataclass(frozen=True)
class AuxiliaryTargets:
    """What N examples name. pairs: (N, 4) tokens: what makes the query true (relation, number, quantifier, comparison),
    the pair's two values, and what the query says; `IGNORED` where there is no second value. values: (N, 2) float32,
    the two values, columns and rows counted from 1; NaN where there is no second. ends: (N, 2), how far from the end of
    the text the last tokens of the two things lie that the query asks about, 0 where there is no second. things:
    (N, 2, 5), tokens of their words, `IGNORED` where there are fewer. objects: of the texts of `Examples`."""

    pairs: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    query_objects: np.ndarray
    objects: ObjectTargets

    def __call__(self, inputs: Inputs, rows: np.ndarray, texts: np.ndarray) -> Inputs:
        """A batch of examples `rows`, shown `texts`, with its targets."""
        pairs, ends = self.pairs[rows], self.ends[rows]
        targets = np.full(inputs.tokens.shape, IGNORED)
        objects = self.objects.targets(texts, targets.shape[1])
        lengths = inputs.token_mask.numpy().sum(axis=1)
        for thing in range(2):
            asked = np.flatnonzero(ends[:, thing])
            places = lengths[asked] - ends[asked, thing]
            targets[asked, places] = pairs[asked, 1 + thing]
            objects[asked, places] = self.query_objects[rows[asked], thing]
        return replace(
            inputs,
            pair=torch.from_numpy(pairs),
            values=torch.from_numpy(self.values[rows]),
            targets=torch.from_numpy(targets),
            objects=torch.from_numpy(objects),
        )

    def shuffled(self, order: np.ndarray) -> AuxiliaryTargets:
        """With the truth about other examples; what the text itself says stays."""
        pairs = np.concatenate([self.pairs[order, :3], self.pairs[:, 3:]], axis=1)
        return replace(self, pairs=pairs, values=self.values[order])


def auxiliary_targets(
    words: WordTokenizer, queries: Sequence[str], pairs: Sequence[Sequence[str]], captions: Sequence[str]
) -> AuxiliaryTargets:
    """What N examples name, of their query texts and pairs. captions: of each text, "" where there is none."""
    parsed = {query: parse_query(query) for query in set(queries)}
    tasks = [TASKS[parsed[query].task] for query in queries]
    shown = {
        (task, pair): ([words.ids(f" {word}")[0] for word in task.auxiliary_words(pair)], pair_values(pair))
        for task, pair in set(zip(tasks, map(tuple, pairs), strict=True))
    }
    asked = {
        text: (words.ids(f" {TASKS[query.task].predicate(query.args)}")[0], *_query_rows(words, text))
        for text, query in parsed.items()
    }
    tokens = np.full((len(queries), PAIR_TOKENS), IGNORED)
    values = np.full((len(queries), 2), np.nan, np.float32)
    ends = np.zeros((len(queries), 2), np.int64)
    query_objects = np.full((len(queries), 2, NAME_TOKENS), IGNORED)
    for row, (query, task, pair) in enumerate(zip(queries, tasks, pairs, strict=True)):
        known, counted = shown[task, tuple(pair)]
        tokens[row, : len(known)] = known
        values[row, : len(counted)] = counted
        tokens[row, 3], ends[row], query_objects[row] = asked[query]
    return AuxiliaryTargets(tokens, values, ends, query_objects, object_targets(words, captions))


def _query_rows(words: WordTokenizer, query: str) -> tuple[list[int], list[list[int]]]:
    """Rows of `AuxiliaryTargets.ends` and `AuxiliaryTargets.query_objects`."""
    found = [*query_objects(words, query), (0, []), (0, [])][:2]
    return [end for end, _ in found], [_name_tokens(words, thing) for _, thing in found]


def _name_tokens(words: WordTokenizer, listed: Sequence[str]) -> list[int]:
    """Tokens of the words of an object; what is read off a picture may hold anything."""
    kept = [words.ids(f" {word}")[0] for word in listed][:NAME_TOKENS]
    return [*kept, *[IGNORED] * (NAME_TOKENS - len(kept))]


def object_targets(words: WordTokenizer, captions: Sequence[str]) -> ObjectTargets:
    """Objects of captions, each text beginning with one token more."""
    known: dict[str, tuple[int, list[int]]] = {}
    prefaces: dict[str, int] = {}
    starts, places, names = [0], [], []
    for caption in captions:
        preface, listed = phrases_of(caption)
        if preface not in prefaces:
            prefaces[preface] = len(words.ids(preface.strip())) + 1
        place = prefaces[preface]
        for phrase in listed:
            if phrase not in known:
                kept = [word for word in phrase.split(" ") if word not in ("a", "an", "at")]
                known[phrase] = len(words.ids(f" {phrase}")), _name_tokens(words, kept)
            length, name = known[phrase]
            places.append(place + length - 1)
            names.append(name)
            place += length + 1  # and what comes between, or the full stop
        starts.append(len(places))
    return ObjectTargets(
        np.array(starts), np.array(places, np.int64), np.array(names, np.int64).reshape(-1, NAME_TOKENS)
    )


def pair_values(pair: Sequence[str]) -> list[float]:
    """The values of a pair: counts, or columns (A is 1) and rows."""
    return [float(value) if value.isdigit() else float(ord(value) - ord("A") + 1) for value in pair[1:]]


def query_objects(words: WordTokenizer, query: str) -> list[tuple[int, list[str]]]:
    """Each thing of a query: how far from the end of a text, which is the query and one token more, its last token
    lies, and its words, as captions have them."""
    found: list[tuple[int, list[str]]] = []
    tokens, before = 0, False
    for number, word in enumerate(query.split(" ")):
        space, bare = " " if number else "", word.rstrip(".")
        if thing := SINGULAR.get(bare.lower()):
            last = tokens + len(words.ids(space + bare)) - 1
            found = [*found[:-1], (last, [*found[-1][1], thing])] if before else [*found, (last, [thing])]
        before = thing is not None
        tokens += len(words.ids(space + word))
    return [(tokens + 1 - last, listed) for last, listed in found]
