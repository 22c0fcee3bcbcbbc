"""Random numbers that are a pure function of a name and an index, and a keyed permutation.

Nothing here keeps state: any part of a stream can be had at any time, in any process, in any order.
"""

from __future__ import annotations

import hashlib

import numpy as np

from render.pictures.hashing import mix as mix

LARGEST = 1 << 62  # numbers to permute or choose from stay below this, clear of overflow in uint64
ROUNDS = 6  # of the Feistel network; four already pass as random, each costs two divisions


def stream_key(*names: object) -> int:
    """A 128-bit key that no other sequence of names has."""
    text = "/".join(str(name) for name in names)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def words(key: int, start: int, stop: int, width: int) -> np.ndarray:
    """Rows start to stop of an endless (.., width) table of random uint64, from the counter-based generator Philox."""
    blocks = -(-width // 4)  # Philox makes four words for each count
    generator = np.random.Philox(key=key, counter=start * blocks)
    return generator.random_raw((stop - start) * blocks * 4).reshape(stop - start, blocks * 4)[:, :width]


def permute(x: np.ndarray, size: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Image of x under a permutation of 0 .. size - 1 chosen by key; x, size and key are uint64 (N,).

    A Feistel network on the smallest near-square rectangle that holds `size`, walked until it lands inside
    (Black and Rogaway 2002). Equal keys and sizes share one permutation, so distinct x give distinct images.
    """
    a = np.sqrt(size.astype(np.float64)).astype(np.uint64) + np.uint64(1)
    b = size // a + np.uint64(1)
    x = x.copy()
    todo = np.arange(len(x))
    while len(todo):
        left, right = x[todo] % a[todo], x[todo] // a[todo]
        for turn in range(ROUNDS):
            secret = mix(key[todo] + np.uint64((turn + 1) * 0x9E3779B97F4A7C15 % 2**64))
            if turn % 2:
                right = (right + mix(left ^ secret) % b[todo]) % b[todo]
            else:
                left = (left + mix(right ^ secret) % a[todo]) % a[todo]
        x[todo] = right * a[todo] + left
        todo = todo[x[todo] >= size[todo]]
    return x


def distinct_digits(radices: np.ndarray, x: np.ndarray, key: np.ndarray, random: np.ndarray) -> np.ndarray:
    """Digits (N, D), each below its radix, random but never the same twice for different x under one key.

    radices: (N, D) uint64, at least 1 each. x: (N,) uint64, must be below the product of the radices (as far as
    that product stays below `LARGEST`). The leading digits whose product fits are one permuted number; the others
    come from `random`, (N, D) uint64.
    """
    fits = np.cumsum(np.log2(radices.astype(np.float64)), axis=1) < 61.9
    sizes = np.where(fits, radices, np.uint64(1))
    number = permute(x, sizes.prod(axis=1, dtype=np.uint64), key)
    digits = random % radices
    for d in range(radices.shape[1]):
        number, digit = np.divmod(number, sizes[:, d])
        digits[:, d] = np.where(fits[:, d], digit, digits[:, d])
    return digits
