"""Random streams: any part at any time gives the same words, and permutations are permutations."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from travlr.sampling import streams


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 50))
def test_words_of_any_rows_equal_those_of_the_whole(start: int, rows: int, width: int) -> None:
    key = streams.stream_key("a", 0)
    whole = streams.words(key, start, start + rows, width)
    assert whole.shape == (rows, width)
    for i in (0, rows // 2, rows - 1):
        np.testing.assert_array_equal(streams.words(key, start + i, start + i + 1, width)[0], whole[i])


def test_words_of_different_names_differ() -> None:
    # Neighbouring seeds must not be shifts of each other, as `seed + index` would make them.
    tables = [streams.words(streams.stream_key("train", seed), 0, 2000, 4) for seed in range(3)]
    assert len(np.unique(np.concatenate(tables))) == 3 * 2000 * 4


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@settings(max_examples=60)
def test_permute_reaches_every_number_once(size: int, key: int) -> None:
    x = np.arange(size, dtype=np.uint64)
    image = streams.permute(x, np.full(size, size, np.uint64), np.full(size, key, np.uint64))
    np.testing.assert_array_equal(np.sort(image), x)


@given(st.integers(1, streams.LARGEST), st.integers(0, 2**64 - 1))
def test_permute_stays_inside_and_apart_for_large_sizes(size: int, key: int) -> None:
    count = min(size, 200)
    image = streams.permute(
        np.arange(count, dtype=np.uint64), np.full(count, size, np.uint64), np.full(count, key, np.uint64)
    )
    assert image.max() < size
    assert len(set(image.tolist())) == count


def test_permute_looks_random() -> None:
    size, keys = 1000, np.arange(4000, dtype=np.uint64)
    image = streams.permute(np.zeros(4000, np.uint64), np.full(4000, size, np.uint64), streams.mix(keys))
    counts = np.bincount((image // np.uint64(100)).astype(int), minlength=10)
    assert (abs(counts - 400) < 5 * 20).all(), counts  # five standard deviations of a fair draw


@given(st.lists(st.integers(1, 10), min_size=1, max_size=5), st.integers(0, 2**64 - 1))
def test_digits_enumerate_all_combinations(radices: list[int], key: int) -> None:
    total = min(int(np.prod(radices)), 2000)
    table = np.tile(np.array(radices, np.uint64), (total, 1))
    random = np.zeros((total, len(radices)), np.uint64)
    digits = streams.distinct_digits(table, np.arange(total, dtype=np.uint64), np.full(total, key, np.uint64), random)
    assert (digits < table).all()
    assert len({tuple(row) for row in digits.tolist()}) == total


def test_digits_beyond_numbering_are_random() -> None:
    radices = np.full((500, 4), 2**31, np.uint64)
    random = streams.words(streams.stream_key("x"), 0, 500, 4)
    digits = streams.distinct_digits(radices, np.arange(500, dtype=np.uint64), np.zeros(500, np.uint64), random)
    np.testing.assert_array_equal(digits[:, 2:], random[:, 2:] % np.uint64(2**31))
    assert len({tuple(row) for row in digits[:, :1].tolist()}) > 490
