"""Select items of a corpus: those that can be answered, a sample, or the published selection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from analysis.probe.corpora.items import WHOLE, Corpus, Item, Missing, Unreadable, find_picture


def count_text(number: int, noun: str) -> str:
    """A number with its noun, such as `1 item` and `2,000 items`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def grouped(items: Iterable[Item]) -> dict[tuple[str, str], list[Item]]:
    """Items by axis and source, in order. VL-CheckList has a file for each."""
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        groups.setdefault((item.axis, item.source), []).append(item)
    return groups


def answerable(corpus: Corpus) -> Corpus:
    """The corpus without items that have the same sentence as true and false: no answer to them is right."""
    items = tuple(item for item in corpus.items if set(item.positives).isdisjoint(item.negatives))
    omitted = len(corpus.items) - len(items)
    if not omitted:
        return corpus
    note = f"Left out: {count_text(omitted, 'item')} with a false sentence that is also a true one."
    return replace(corpus, items=items, notes=(*corpus.notes, note))


def sample(corpus: Corpus, limit: int | None, seed: int) -> Corpus:
    """About `limit` items of each axis and source, spread over folders of pictures and over pictures, in the
    order of the corpus.

    Each item is drawn with the same probability (systematic sampling along a random order of pictures), so the sample's
    score estimates the corpus's. The sample depends on the seed and the items, not on their order or on which pictures
    exist. An item and its partner stay together; if only some items have one, the sample has this size on average.
    """
    if limit is None:
        return corpus
    ids: set[str] = set()
    for place, group in grouped(corpus.items).items():
        units: dict[tuple[str, str], list[Item]] = {}
        for item in group:
            units.setdefault((item.pair, "" if item.pair else item.id), []).append(item)
        in_order = sorted(units.values(), key=lambda unit: min(_order(item, seed) for item in unit))
        number = max(min(limit, len(group)) * len(units) // len(group), 1)
        start = int.from_bytes(_hash(seed, *place)[:6]) / (1 << 48)
        for n in range(number):
            ids.update(item.id for item in in_order[int((start + n) * len(units) / number)])
    items = tuple(item for item in corpus.items if item.id in ids)
    if len(items) == len(corpus.items):
        return corpus
    part = f"{len(items):,} of {count_text(len(corpus.items), 'item')}, {limit:,} of each axis and source"
    note = f"A sample (seed {seed}): {part}."
    return replace(corpus, items=items, notes=(*corpus.notes, note))


def _order(item: Item, seed: int) -> tuple[str, bytes, bytes, str]:
    image = item.labels.get(WHOLE, item.image)  # so that samples of crops and of whole pictures are the same
    folder, name = ["", *image.split("/")][-2:]  # the folders above depend on the user
    return folder, _hash(seed, name), _hash(seed, name, *item.positives, "", *item.negatives), item.id


def _hash(*parts: object) -> bytes:
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


def head(corpus: Corpus, most: int | None, task: str) -> Corpus:
    """The published selection: of each axis and source the items up to the `most // 2`-th whose picture exists. For an
    odd number ITM takes one more item, of which it scores the true sentence alone."""
    if most is None:
        return corpus
    ids: set[str] = set()
    for group in grouped(corpus.items).values():
        remaining = (most + (task == "itm")) // 2
        for item in group:
            if not remaining:
                break
            ids.add(item.id)
            remaining -= is_there(corpus.pictures, item.image)
    note = f"Of each file the first {count_text(most // 2, 'item')}."
    items = tuple(item for item in corpus.items if item.id in ids)
    return replace(corpus, items=items, notes=(*corpus.notes, note))


def first_sentences(corpus: Corpus) -> Corpus:
    """The corpus with only the first true and the first false sentence of each item, as in the released code."""
    items = (replace(item, positives=item.positives[:1], negatives=item.negatives[:1]) for item in corpus.items)
    return replace(corpus, items=tuple(items))


def is_there(folder: Path | None, image: str) -> bool:
    try:
        return folder is not None and bool(find_picture(folder, image))
    except (Missing, Unreadable):
        return False
