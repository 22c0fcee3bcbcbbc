"""Auxiliary targets: intermediate steps, supervised together with the answer.

To judge "The red circle is to the left of the blue square.", a model reads the objects, finds these two, compares their
columns, and compares the result with the query. Answers alone teach a model with random weights none of these steps:
on spatiality it stays at chance for thousands of optimiser steps. So three kinds of text token, and regions, have
targets:

- the last token of each object in the caption, and each region that shows an object: the words of the object, "red
  circle A 1", and which of the nouns of the query describe it;
- the last token of each object in the query: the words of the object, "red circle", and its value of the pair, "A";
- the first token, from which the answer is classified: the pair and what the query states, "right E A" and "left".

The words of an object, which nouns describe it, and what the query states are learned after half of the layers, so that
later layers can use them (`Encoded.middle`).

A word is no wrong answer where training has no example of it, since a held-out pair would be such an example
(`unseen_words`).

The objects of the query and the first token also predict the pair's values as numbers, 5 and 1: a direction that tells
two numbers apart does so for pairs that are held out of training, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from train.data.inputs import IGNORED, NAME_TOKENS, PAIR_TOKENS, Inputs
from train.data.text import WordTokenizer, predicate, split_caption, tokenise
from travlr.scene import COLOURS, SHAPES, SIZES, World, column_name, row_name
from travlr.tasks import parse_query, task_class
from travlr.tasks.base import BaseTask

SINGULAR = {word: word for word in (*COLOURS, *SHAPES, *SIZES)} | {f"{shape}s": shape for shape in SHAPES}


@dataclass(frozen=True)
class AuxiliaryTargets:
    """Auxiliary targets of N examples. Targets are token ids, `IGNORED` for no target.

    pairs: (N, 4): the word that would make the query true (relation, number, quantifier or comparison), the pair's two
    values, and the word of the query.
    nouns: of each example, see `noun_of`. unseen: of each noun, see `unseen_words`.
    values: (N, 2) float32, the two values as numbers, columns and rows counted from 1; NaN for words, and without a
    second value.
    end_offsets: (N, K), distance of the last token of each of the query's objects from the end of the text; 0 where
    a query has fewer objects than the K of others.
    query_objects: (N, K, 5), words of these objects.
    objects: the objects in the captions of the texts of `Examples`.
    """

    pairs: np.ndarray
    nouns: Sequence[str]
    unseen: Mapping[str, np.ndarray]
    values: np.ndarray
    end_offsets: np.ndarray
    query_objects: np.ndarray
    objects: ObjectTargets

    def __call__(
        self, inputs: Inputs, rows: np.ndarray, texts: np.ndarray, regions: np.ndarray | None = None
    ) -> Inputs:
        """A batch with targets. rows: (B,), its examples. texts: (B,), its texts. regions: (B, R, 5), the words of the
        object that each region shows."""
        pairs, offsets = self.pairs[rows], self.end_offsets[rows]
        targets = np.full(inputs.tokens.shape, IGNORED)
        objects = self.objects.targets(texts, targets.shape[1])
        shown = objects if regions is None else np.concatenate([objects, regions], axis=1)
        nouns = match_nouns(shown, self.query_objects[rows])
        lengths = inputs.token_mask.numpy().sum(axis=1)
        for place in range(offsets.shape[1]):
            examples = np.flatnonzero(offsets[:, place])
            tokens = lengths[examples] - offsets[examples, place]
            if place < 2:  # a pair has two values
                targets[examples, tokens] = pairs[examples, 1 + place]
            shown[examples, tokens] = self.query_objects[rows[examples], place]
        return replace(
            inputs,
            pair=torch.from_numpy(pairs),
            unseen=self.unseen_of(self.nouns[row] for row in rows),
            values=torch.from_numpy(self.values[rows]),
            targets=torch.from_numpy(targets),
            objects=torch.from_numpy(shown),
            nouns=torch.from_numpy(nouns),
        )

    def unseen_of(self, nouns: Iterable[str]) -> torch.Tensor:
        """(B, 4, U), the unseen words of B nouns. Of a noun that no example has, all words count as seen."""
        nothing = np.full_like(next(iter(self.unseen.values())), IGNORED)
        return torch.from_numpy(np.stack([self.unseen.get(noun, nothing) for noun in nouns]))


@dataclass(frozen=True)
class ObjectTargets:
    """The objects in the captions of T texts. The objects of text t have the rows starts[t] to starts[t + 1].

    positions: (objects,), position of the object's last token in its text. names: (objects, 5), its words.
    """

    starts: np.ndarray
    positions: np.ndarray
    names: np.ndarray

    def targets(self, texts: np.ndarray, length: int) -> np.ndarray:
        """(B, length, 5) for texts (B,)."""
        targets = np.full((len(texts), length, NAME_TOKENS), IGNORED)
        counts = self.starts[texts + 1] - self.starts[texts]
        example = np.repeat(np.arange(len(texts)), counts)
        objects = np.arange(len(example)) + np.repeat(self.starts[texts] - (counts.cumsum() - counts), counts)
        targets[example, self.positions[objects]] = self.names[objects]
        return targets


def match_nouns(objects: np.ndarray, nouns: np.ndarray) -> np.ndarray:
    """Whether each of the first two nouns describes each object, (B, S, 2) float32; NaN where there is none of them.

    objects: (B, S, 5), nouns: (B, K, 5), their words. A noun describes an object that has all its words.
    """
    nouns = nouns[:, :2]
    example, position = np.nonzero((objects != IGNORED).any(axis=2))
    words, wanted = objects[example, position], nouns[example]  # (objects, 5), (objects, 2, 5)
    has_word = (wanted[..., None] == words[:, None, None, :]).any(axis=3) | (wanted == IGNORED)
    is_noun = (wanted != IGNORED).any(axis=2)
    matches = np.full((*objects.shape[:2], 2), np.nan, np.float32)
    matches[example, position, : nouns.shape[1]] = np.where(is_noun, has_word.all(axis=2), np.nan)
    return matches


def region_names(tokenizer: WordTokenizer, world: World) -> np.ndarray:
    """The words that a caption has for an object of each kind in each cell, (kinds + 1, cells, 5); none for kind 0."""
    names = np.full((len(world.kinds) + 1, world.cells, NAME_TOKENS), IGNORED)
    cells = [(column_name(cell % world.columns), row_name(cell // world.columns)) for cell in range(world.cells)]
    for number, (size, shape, colour) in enumerate(world.kinds, 1):
        words = [*([size] if len(world.sizes) > 1 else []), colour, shape]
        names[number] = [_name_targets(tokenizer, [*words, *cell]) for cell in cells]
    return names


def auxiliary_targets(
    tokenizer: WordTokenizer, queries: Sequence[str], pairs: Sequence[Sequence[str]], captions: Sequence[str]
) -> AuxiliaryTargets:
    """Targets of N examples. captions: of each text of `Examples`, "" if there is none."""
    parsed = {query: parse_query(query) for query in set(queries)}
    tasks = [task_class(parsed[query].task) for query in queries]
    pair_targets = {
        (task, pair): ([_first_token(tokenizer, word) for word in task.auxiliary_words(pair)], pair_values(pair))
        for task, pair in set(zip(tasks, map(tuple, pairs), strict=True))
    }
    query_targets = {
        text: (_first_token(tokenizer, predicate(query)), query_objects(tokenizer, text))
        for text, query in parsed.items()
    }
    most = max((len(nouns) for _, nouns in query_targets.values()), default=0)
    tokens = np.full((len(queries), PAIR_TOKENS), IGNORED)
    values = np.full((len(queries), 2), np.nan, np.float32)
    offsets = np.zeros((len(queries), most), np.int64)
    objects = np.full((len(queries), most, NAME_TOKENS), IGNORED)
    for row, (query, task, pair) in enumerate(zip(queries, tasks, pairs, strict=True)):
        words, numbers = pair_targets[task, tuple(pair)]
        words, numbers = words[: PAIR_TOKENS - 1], numbers[:2]  # of longer pairs, the first two values
        tokens[row, : len(words)] = words
        values[row, : len(numbers)] = numbers
        tokens[row, 3], things = query_targets[query]
        for place, (offset, names) in enumerate(things):
            offsets[row, place], objects[row, place] = offset, names
    nouns_of_pairs = [noun_of(task, pair) for task, pair in zip(tasks, pairs, strict=True)]
    unseen = unseen_words(tokens, nouns_of_pairs)
    return AuxiliaryTargets(
        tokens, nouns_of_pairs, unseen, values, offsets, objects, object_targets(tokenizer, captions)
    )


def noun_of(task: type[BaseTask], pair: Sequence[str]) -> str:
    """The noun that a pair says something about, or "" for pairs without.

    A noun that is itself a target, as a colour of `binding` is, does not count: no other word would be wrong.
    """
    noun = " ".join(pair[:1])  # "" for pairs of no value
    return noun if set(noun.split(" ")) <= set(SINGULAR) and noun not in task.auxiliary_words(tuple(pair)) else ""


def unseen_words(words: np.ndarray, nouns: Sequence[str]) -> dict[str, np.ndarray]:
    """Of each noun, (P, U): at each of P places, words that examples of other nouns have there, but no example of it.

    words: (N, P), targets. nouns: (N,), the noun of each pair, "" for pairs without. Padded with `IGNORED`.

    If octagons are never three in training, because this pair is held out, then "three" is not a wrong answer about
    octagons: nothing is known about it. A model that learned it as a wrong one would fail on the held-out pair.
    """
    of_each = np.array(nouns)
    unseen = {
        noun: [np.setdiff1d(at_place, at_place[of_each == noun]) for at_place in words.T] for noun in sorted(set(nouns))
    }
    most = max((len(missing) for of_noun in unseen.values() for missing in of_noun), default=0)
    return {
        noun: np.array([np.pad(missing, (0, most - len(missing)), constant_values=IGNORED) for missing in of_noun])
        for noun, of_noun in unseen.items()
    }


def check_auxiliary_words(queries: Sequence[str], pairs: Sequence[Sequence[str]], answers: np.ndarray) -> None:
    """Raise `ValueError`, naming the task, where the first auxiliary word of a pair does not tell true from false."""
    for text, pair, answer in set(zip(queries, map(tuple, pairs), answers.tolist(), strict=True)):
        query = parse_query(text)
        words = task_class(query.task).auxiliary_words(pair)
        if words and (words[0] == predicate(query)) != answer:
            raise ValueError(
                f"task={query.task}: the first of `auxiliary_words` is {words[0]!r} for the pair {list(pair)}; "
                f"where it is {predicate(query)!r}, and only there, this query must be true: {text}"
            )


def object_targets(tokenizer: WordTokenizer, captions: Sequence[str]) -> ObjectTargets:
    """Targets of the objects in captions. A text starts with `[CLS]`, so positions are those in the caption + 1."""
    cached: dict[str, tuple[int, list[int]]] = {}  # tokens and targets of each distinct object
    prefaces: dict[str, int] = {}
    starts, positions, names = [0], [], []
    for caption in captions:
        preface, phrases = split_caption(caption)
        if preface not in prefaces:
            prefaces[preface] = len(tokenizer.ids(preface.strip())) + 1
        position = prefaces[preface]
        for phrase in phrases:
            if phrase not in cached:
                words = [word for word in phrase.split(" ") if word not in ("a", "an", "at")]
                cached[phrase] = len(tokenizer.ids(f" {phrase}")), _name_targets(tokenizer, words)
            length, name = cached[phrase]
            positions.append(position + length - 1)
            names.append(name)
            position += length + 1  # and the comma, "and" or full stop after it
        starts.append(len(positions))
    return ObjectTargets(
        np.array(starts), np.array(positions, np.int64), np.array(names, np.int64).reshape(-1, NAME_TOKENS)
    )


def pair_values(pair: Sequence[str]) -> list[float]:
    """The values of a pair as numbers: counts, rows, or columns (A is 1); NaN for words."""
    columns = {column_name(column): column + 1 for column in range(26)}
    return [float(value) if value.isdigit() else columns.get(value, math.nan) for value in pair[1:]]


def query_objects(tokenizer: WordTokenizer, query: str) -> list[tuple[int, list[int]]]:
    """End offset and targets of each object of a query: consecutive words for colours, shapes and sizes.

    The offset is from the end of the text, which is the query and `[SEP]`. Words are singular, as in captions.
    """
    objects: list[tuple[int, list[str]]] = []
    tokens, continues = 0, False
    for number, text in enumerate(query.split(" ")):
        space, bare = " " if number else "", text.rstrip(".")
        word = SINGULAR.get(bare.lower())
        if word:
            last = tokens + len(tokenizer.ids(space + bare)) - 1
            words = [*objects.pop()[1], word] if continues else [word]
            objects.append((last, words))
        continues = word is not None
        tokens += len(tokenizer.ids(space + text))
    return [(tokens + 1 - last, _name_targets(tokenizer, words)) for last, words in objects]


def _name_targets(tokenizer: WordTokenizer, words: Sequence[str]) -> list[int]:
    """Targets of an object's words, at most `NAME_TOKENS`."""
    tokens = [_first_token(tokenizer, word) for word in words[:NAME_TOKENS]]
    return tokens + [IGNORED] * (NAME_TOKENS - len(tokens))


def _first_token(tokenizer: WordTokenizer, word: str) -> int:
    return tokenise(tokenizer, [f" {word}"])[0][0]
