"""Which items are asked: samples, the published head, and what is left out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.corpora.selection import answerable, first_sentences, grouped, head, sample
from tests.test_probe_checklist import draw


def item(number: int, axis: str = "Attribute/color", source: str = "vg", **changed: Any) -> Item:
    plain = Item(f"{axis}/{source}/{number}", f"images/{number}.jpg", ("a",), ("b",), axis, source)
    return replace(plain, **changed)


def sampled(items: Sequence[Item], limit: int | None, seed: int = 0) -> list[Item]:
    return list(sample(Corpus("c", "checklist", tuple(items), None), limit, seed).items)


def test_a_sample_is_spread_and_depends_on_the_seed_alone() -> None:
    items = [item(n, image=f"{'ab'[n % 3 == 0]}/{n // 7}.jpg", positives=(str(n),)) for n in range(210)]
    kept = sampled(items, 30)
    assert len(kept) == 30 and kept == [one for one in items if one in kept]
    shuffled = random.Random(1).sample(items, len(items))
    assert {one.id for one in sampled(shuffled, 30)} == {one.id for one in kept}
    assert sampled(items, 30, seed=1) != kept
    assert sum(one.image.startswith("b/") for one in kept) == 10  # a third of all, and of the sample
    assert len({one.image for one in kept}) >= 28  # of 7 records with one picture two at most
    other = [item(n, source="vaw") for n in range(5)]
    assert sampled([*items, *other], 30) == [*kept, *other]
    assert sampled(items, None) == items and sampled(items, 210) == items


def test_a_sample_has_whole_pairs() -> None:
    items = [item(n, image=f"{n}.jpg", pair=str(n // 2) if n < 60 else "") for n in range(100)]
    for seed in range(20):
        kept = {one.id for one in sampled(items, 30, seed)}
        assert 20 < len(kept) < 42
        assert all((items[n].id in kept) == (items[n + 1].id in kept) for n in range(0, 60, 2))
    assert len(sampled(items[:60], 20)) == 20 and len(sampled(items[:60], 1)) == 2


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 6))),
    st.integers(1, 9),
    st.randoms(),
)
def test_samples_keep_pairs_and_limits_and_do_not_depend_on_order(facts: Any, limit: int, random: Any) -> None:
    items = [
        Item(f"{n}{side}", "i.png", (f"a{side}",), ("b",), axis, source, f"{n}" if pair else "")
        for n, (axis, source, pair) in enumerate(facts)
        for side in ("ab" if pair else "a")
    ]
    taken = sample(Corpus("c", "checklist", tuple(items), None), limit, 3)
    names = {item.id for item in taken.items}
    assert [item for item in items if item.id in names] == list(taken.items)
    for here in grouped(items).values():
        units = len({item.pair or item.id for item in here})
        found = [item for item in here if item.id in names]
        assert len({item.pair or item.id for item in found}) == max(1, min(limit, len(here)) * units // len(here))
    whole = {item.pair for item in taken.items if item.pair}
    assert all(item.id in names for item in items if item.pair in whole)
    random.shuffle(items)
    assert {item.id for item in sampled(items, limit, 3)} == names
    assert ("sample" in "".join(taken.notes)) == (len(taken.items) < len(items))


def test_the_head_is_of_each_file_and_skips_what_is_not_there(tmp_path: Path) -> None:
    items = [*(item(n) for n in range(6)), *(item(n, source="vaw") for n in range(2))]
    items[1] = item(1, image="x" * 300)
    items[3] = item(3, image="../images/0.jpg")
    corpus = Corpus("c", "checklist", tuple(items), tmp_path / "pictures")
    draw(tmp_path / "pictures", *(f"images/{n}.jpg" for n in range(6)))

    def numbers(most: int | None, task: str) -> list[str]:
        return [one.id.removeprefix("Attribute/color/") for one in head(corpus, most, task).items]

    assert numbers(4, "itc") == ["vg/0", "vg/1", "vg/2", "vaw/0", "vaw/1"]
    assert numbers(6, "itc")[:5] == [f"vg/{n}" for n in range(5)]
    assert numbers(5, "itc") == numbers(4, "itc") and numbers(5, "itm") == numbers(6, "itc")
    assert numbers(1, "itc") == [] and numbers(1, "itm") == ["vg/0", "vaw/0"]
    assert len(numbers(None, "itc")) == 8
    mixed = replace(corpus, items=tuple(items[n] for n in (6, 0, 7, 2, 4, 5)))
    assert [one.id.removeprefix("Attribute/color/") for one in head(mixed, 4, "itc").items] == [
        "vaw/0",
        "vg/0",
        "vaw/1",
        "vg/2",
    ]
    assert head(corpus, 3, "itc").notes == ("Of each file the first 1 item.",)


def test_items_that_cannot_be_answered_are_left_out_and_counted() -> None:
    items = (item(0), item(1, positives=("a", "b"), negatives=("c", "a")), item(2, negatives=("A",)))
    found = answerable(Corpus("c", "checklist", items, None, ("n",)))
    assert found.items == (items[0], items[2])
    assert found.notes == ("n", "Left out: 1 item with a false sentence that is also a true one.")
    assert answerable(found) is found


def test_the_first_sentences_are_all_that_the_published_rules_ask() -> None:
    several = item(0, positives=("a", "b"), negatives=("c", "d", "e"))
    (found,) = first_sentences(Corpus("c", "checklist", (several,), None)).items
    assert found == replace(several, positives=("a",), negatives=("c",))
