"""Text to token ids: `[CLS] caption [SEP] query [SEP]`. Each distinct word is tokenised once.

The tokenizers of BERT and RoBERTa split a text at white space first, so the tokens of a text are those of its words,
each with the white space before it (a test compares this with the tokenizers themselves).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from render.captions.style import preface
from render.text import CAPTION_STYLES
from travlr.scene import COLOURS, SHAPES, SIZES, Query, World, column_name, row_name
from travlr.tasks import PAPER, task_class

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LIST_START = "There is "  # comes before the objects of a caption
SEPARATOR = re.compile(r", | and ")
SPACED_WORD = re.compile(r"\s*\S+")
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
        """Sequences `rows` (B,) as (B, L) int64, padded at the end to the longest, and their mask (B, L) bool."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        columns = np.arange(lengths.max(initial=0))
        mask = columns < lengths[:, None]  # (B, L)
        positions = np.where(mask, self.starts[rows][:, None] + columns, 0)
        return np.where(mask, self.flat[positions], pad).astype(np.int64), mask

    def followed_by(self, other: Ragged) -> Ragged:
        """The sequences of both."""
        starts = np.concatenate([self.starts, other.starts[1:] + self.starts[-1]])
        return Ragged(np.concatenate([self.flat, other.flat]), starts)


class WordTokenizer:
    """A tokenizer of `transformers` that is called once for each distinct word."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.size = len(tokenizer)
        names = ("cls", "sep", "pad", "mask", "unk")
        self.cls, self.sep, self.pad, self.mask, self.unknown = (getattr(tokenizer, f"{n}_token_id") for n in names)
        self._cache: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        return [token for word in SPACED_WORD.findall(text) for token in self._ids(word)]

    def _ids(self, word: str) -> list[int]:
        if word not in self._cache:
            self._cache[word] = self.tokenizer.encode(word, add_special_tokens=False)
        return self._cache[word]

    def join(self, *parts: Sequence[list[int]]) -> Ragged:
        """N sequences `[CLS] first [SEP] second [SEP] …`. parts: lists of N token lists."""
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


class UnknownWord(ValueError):
    """The tokenizer does not know a word of a text."""

    def __init__(self, word: str, text: str) -> None:
        self.word = word
        super().__init__(
            f"tokenizer: does not know the word {word!r} in the text {text[:80]!r}; give pretrained weights whose "
            "tokenizer knows it, or add the word to `arguments` in the task's file"
        )


def tokenise(tokenizer: WordTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of texts. Equal texts, such as queries, are tokenised once.

    Raises `UnknownWord` for a word that the tokenizer does not know: a model cannot learn from `[UNK]`.
    """
    ids = {text: tokenizer.ids(text) for text in dict.fromkeys(texts)}
    for text, tokens in ids.items():
        if tokenizer.unknown in tokens:
            word = next(word for word in text.split() if tokenizer.unknown in tokenizer.ids(f" {word}"))
            raise UnknownWord(word, text)
    return [ids[text] for text in texts]


def split_caption(caption: str) -> tuple[str, list[str]]:
    """The part of a caption before its objects, and the objects, such as `a red circle at A 1`.

    The whole caption and no objects for other styles than `sentences`.
    """
    preface, start, objects = caption.partition(LIST_START)
    objects = objects.removesuffix(".")
    return preface + start, SEPARATOR.split(objects) if objects else []


def grammar_tokenizer(task: str | None = None, caption_style: str = "sentences") -> Any:
    """A lower-case WordPiece tokenizer of `vocabulary`, a tokenizer of `transformers`."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    names = ("pad", "unk", "cls", "sep", "mask")
    tokens = {token: number for number, token in enumerate(vocabulary(task, caption_style))}
    tokenizer = Tokenizer(WordPiece(tokens, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = [(token, tokens[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=marks
    )
    special = {f"{name}_token": token for name, token in zip(names, SPECIAL, strict=True)}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]


def vocabulary(task: str | None, caption_style: str = "sentences") -> list[str]:
    """Every word of captions of any world and of queries of the paper's tasks, about 200, then further words of `task`
    and of `caption_style`. Plurals of shapes are two pieces, so that "circles" has the piece "circle" of captions.

    The order is fixed, so that a new task or style changes no other vocabulary.
    """
    largest = World(columns=26, rows=99)
    texts = [preface(largest), "There is a circle at A 1, an orange square at B 2 and"]
    texts += [text for name in PAPER for text in _sample_texts(name)]
    texts += [*COLOURS, *SHAPES, *SIZES]
    texts += [column_name(column) for column in range(26)] + [row_name(row) for row in range(99)]
    further = [*(_sample_texts(task) if task else []), *CAPTION_STYLES[caption_style].pieces]
    plurals = {f"{shape}s" for shape in SHAPES}
    words, others = (
        [word for text in some for word in WORDS_AND_MARKS.findall(text.lower()) if word not in plurals]
        for some in (texts, further)
    )
    return list(dict.fromkeys([*SPECIAL, *words, "##s", *others]))


def predicate(query: Query) -> str:
    """The word of a query that makes it true or false, as an auxiliary target: `3`, `left`, `more`.

    It is the first telling word of the first argument that describes no objects; of `not all` and `not only` it is
    "not", and the rest of the query tells them apart.
    """
    nouns = task_class(query.task).language().nouns
    arguments = [arg for place, arg in enumerate(query.args) if place not in nouns] or [*query.args] or [""]
    words = str(arguments[0]).split()
    return next((word for word in words if word not in ("to", "the", "of")), "")


def _sample_texts(name: str) -> list[str]:
    """Queries, claims and words of auxiliary targets that together have every word of a task."""
    task = task_class(name)
    samples = task.language().samples()
    return [text for args in samples for text in (task.text(args), predicate(Query(name, args)))]
