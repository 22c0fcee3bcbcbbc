"""Statements about unlabelled scenes, some of whose words are masked: what pretraining reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from train.data.examples import Examples, Raw, shown
from train.data.inputs import IGNORED, Inputs
from train.data.text import Ragged, Words, phrases_of

MENTIONED = 3  # objects of a statement at most


class Statements:
    """What unlabelled scenes are asked: "a red circle at [MASK] [MASK], a [MASK] [MASK] at B 2" in the query's place.

    Of each object either the description or the place is masked. Statements come from the captions alone.
    """

    def __init__(self, raw: Raw, words: Words) -> None:
        self.words = words
        self._comma = words.ids("a,")[len(words.ids("a")) :]
        self._kept = {token for word in ("a", " a", " an", " at") for token in words.ids(word)}
        self._phrases: dict[str, list[int]] = {}
        self._listed = [self._of(caption) for caption in raw.captions]

    def _of(self, caption: str) -> list[list[int]]:
        """The tokens of each object that a caption lists."""
        _, listed = phrases_of(caption)
        for phrase in listed:
            if phrase not in self._phrases:
                self._phrases[phrase] = self.words.ids(f" {phrase}")
        return [self._phrases[phrase] for phrase in listed]

    def inputs(self, examples: Examples, rows: np.ndarray, setting: str, random: np.random.Generator) -> Inputs:
        """A batch with `targets`, without answers. setting: as of training, or `each`: image or caption alone."""
        setting = str(random.choice(["image", "caption"])) if setting == "each" else setting
        image, caption = shown(setting, rows, random)
        stated, hidden = zip(*(self._masked(self._listed[row], random) for row in rows), strict=True)
        contexts = [
            examples.texts[row][1 : 1 + examples.phrases[row]].tolist() if told else None
            for row, told in zip(rows, caption, strict=True)
        ]
        sequences, targets = [], []
        for context, tokens, target in zip(contexts, stated, hidden, strict=True):
            start = [self.words.cls] if context is None else [self.words.cls, *context, self.words.sep]
            sequences.append([*start, *tokens, self.words.sep])
            targets.append([*[IGNORED] * len(start), *target, IGNORED])
        inputs = examples.inputs(rows, image, caption)
        padded, mask = _ragged(sequences).padded(np.arange(len(rows)), self.words.pad)
        asked, _ = _ragged(targets).padded(np.arange(len(rows)), IGNORED)
        masked, seen, behind = (torch.from_numpy(array) for array in (padded, mask, asked))
        return replace(inputs, tokens=masked, token_mask=seen, targets=behind, answer=None)

    def _masked(self, phrases: list[list[int]], random: np.random.Generator) -> tuple[list[int], list[int]]:
        """Tokens of a statement about some of the objects, and what is behind its masks."""
        tokens: list[int] = []
        targets: list[int] = []
        for number in random.permutation(len(phrases))[:MENTIONED]:
            phrase = phrases[number]
            content = [place for place, token in enumerate(phrase) if token not in self._kept]
            split = max(place for place, token in enumerate(phrase) if token in self._kept)  # "at"
            first = random.random() < 0.5
            hidden = {place for place in content if (place < split) == first}
            if tokens:
                tokens += self._comma
                targets += [IGNORED] * len(self._comma)
            tokens += [self.words.mask if place in hidden else token for place, token in enumerate(phrase)]
            targets += [token if place in hidden else IGNORED for place, token in enumerate(phrase)]
        return tokens, targets


def _ragged(sequences: Sequence[Sequence[int]]) -> Ragged:
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    flat = np.fromiter((token for sequence in sequences for token in sequence), np.int32, int(lengths.sum()))
    return Ragged(flat, np.concatenate([[0], lengths.cumsum()]))
