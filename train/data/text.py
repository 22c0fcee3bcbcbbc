"""Text to token ids: `[CLS] caption [SEP] query [SEP]`, each distinct word of a data set tokenised once.

The tokenizers of BERT and RoBERTa never look beyond the next space, so a text's tokens are those of its words
(a test holds this against the tokenizers themselves). Captions come from a closed grammar: a few dozen words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from render.text import preface
from travlr.scene import COLOURS, SHAPES, SIZES, World, column_name, row_name
from travlr.tasks import PAPER, task_class

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LIST_START = "There is "  # what comes before the objects of a caption
SEPARATOR = re.compile(r", | and ")
WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Ragged:
    """N token sequences in one array: sequence i is `flat[starts[i] : starts[i + 1]]`."""

    flat: np.ndarray  # (tokens,) int32
    starts: np.ndarray  # (N + 1,) int64

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.starts[i] : self.starts[i + 1]]

    def padded(self, rows: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray]:
        """Sequences `rows` as (B, L) int64, padded at the end to the longest, and which are tokens, (B, L) bool."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        columns = np.arange(lengths.max(initial=0))
        mask = columns < lengths[:, None]  # (B, L)
        places = np.where(mask, self.starts[rows][:, None] + columns, 0)
        return np.where(mask, self.flat[places], pad).astype(np.int64), mask


class WordTokenizer:
    """Token ids of texts through any tokenizer of `transformers`, word by word."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = len(tokenizer)
        names = ("cls", "sep", "pad", "mask", "unk")
        self.cls, self.sep, self.pad, self.mask, self.unknown = (getattr(tokenizer, f"{n}_token_id") for n in names)
        self._known: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, without special ones."""
        first, *rest = text.split(" ")
        ids = list(self._ids(first))
        for word in rest:
            ids += self._ids(f" {word}")
        return ids

    def _ids(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self.tokenizer.encode(word, add_special_tokens=False)
        return self._known[word]

    def join(self, *parts: Sequence[list[int]]) -> Ragged:
        """N sequences `[CLS] first [SEP] second [SEP] …` of as many lists of token lists."""
        rows = []
        for texts in zip(*parts, strict=True):
            row = [self.cls]
            for text in texts:
                row += text
                row.append(self.sep)
            rows.append(row)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter((token for row in rows for token in row), np.int32, int(lengths.sum()))
        return Ragged(flat, np.concatenate([[0], lengths.cumsum()]))


def tokenise(words: WordTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token lists of texts; texts that repeat, as queries do, are looked up whole.

    Raises `ValueError`, naming the word, where the tokenizer does not know one: a model cannot learn from `[UNK]`.
    """
    known = {text: words.ids(text) for text in dict.fromkeys(texts)}
    for text, ids in known.items():
        if words.unknown in ids:
            word = next(word for word in text.split(" ") if words.unknown in words.ids(f" {word}"))
            raise ValueError(
                f"tokenizer: does not know {word!r} of the text {text[:80]!r}; give tokenizer= one that does, or name "
                "the word in `samples` of the task's file"
            )
    return [known[text] for text in texts]


def phrases_of(caption: str) -> tuple[str, list[str]]:
    """What comes before the objects that a caption lists, and these: `a red circle at A 1`."""
    before, said, listed = caption.partition(LIST_START)
    listed = listed.removesuffix(".")
    return before + said, SEPARATOR.split(listed) if listed else []


def grammar_tokenizer(task: str | None = None) -> Any:
    """A lower-case WordPiece tokenizer of every word that captions of any world and queries of the paper's tasks can
    hold, some 200, and after these the further words of one task.
    """
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    names = ("pad", "unk", "cls", "sep", "mask")
    tokens = {token: number for number, token in enumerate(vocabulary(task))}
    tokenizer = Tokenizer(WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = {f"{name}_token": token for name, token in zip(names, SPECIAL, strict=True)}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]


def vocabulary(task: str | None) -> list[str]:
    """Tokens of `grammar_tokenizer`, each once, in a fixed order: a new task changes no other task's vocabulary."""
    largest = World(columns=26, rows=99)
    texts = [preface(largest), "There is a circle at A 1, an orange square at B 2 and"]
    texts += [text for name in PAPER for text in _sample_texts(name)]
    texts += [*COLOURS, *SHAPES, *(f"{shape}s" for shape in SHAPES), *SIZES]
    texts += [column_name(column) for column in range(26)] + [row_name(row) for row in range(99)]
    texts += _sample_texts(task) if task else []
    words = [word for text in texts for word in WORDS_AND_MARKS.findall(text.lower())]
    return list(dict.fromkeys([*SPECIAL, *words]))


def _sample_texts(name: str) -> list[str]:
    """Query texts that hold every word of a task, and its claims."""
    task = task_class(name)
    return [text for args in task.vocabulary_arguments for text in (task.text(args), task.predicate(args))]
