"""The offset map and a plain twin of Kafka's: after the same puts, the same bytes in every slot.

The twin is written from what Kafka's map does, one key at a time, with `hashlib`. Maps are small, so that searches are
long: they go through all parts of a digest and then from slot to slot, around the ends of 32-bit numbers.
"""

from __future__ import annotations

import hashlib
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.kernels.key_digests import Digests, digests_of
from duralog.kernels.offset_map import SLOT_BYTES, OffsetMap

RANDOM_MAPS = 60


class PlainMap:
    """A table of slots, each a digest and a big-endian offset. Takes digests, so that tests can choose them."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.table = [bytes(SLOT_BYTES)] * slots
        self.capacity = capacity
        self.size = 0
        self.superseded: set[int] = set()

    def put(self, digest: bytes, offset: int) -> bool:
        if self.size >= self.capacity:
            return False
        attempt = 0
        while any(self.table[self._slot(digest, attempt)]):
            if self.table[self._slot(digest, attempt)].startswith(digest):
                self.superseded.add(self._offset_in(self._slot(digest, attempt)))
                break
            attempt += 1
        else:
            self.size += 1
        self.table[self._slot(digest, attempt)] = digest + struct.pack(">q", offset)
        return True

    def find(self, digest: bytes) -> int:
        for attempt in range(len(self.table) + 12):
            slot = self._slot(digest, attempt)
            if not any(self.table[slot]):
                return -1
            if self.table[slot].startswith(digest):
                return self._offset_in(slot)
        return -1

    def _offset_in(self, slot: int) -> int:
        offset: int = struct.unpack_from(">q", self.table[slot], 16)[0]
        return offset

    def _slot(self, digest: bytes, attempt: int) -> int:
        number = int.from_bytes(digest[min(attempt, 12) :][:4], "big", signed=True) + max(0, attempt - 12)
        number = (number + 2**31) % 2**32 - 2**31
        return (0 if number == -(2**31) else abs(number)) % len(self.table)


def packed(digests: list[bytes]) -> Digests:
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2).copy()


def assert_same_after(puts: list[tuple[bytes, int]], others: list[bytes], slots: int, load_factor: float) -> None:
    ours = OffsetMap(slots * SLOT_BYTES, load_factor)
    plain = PlainMap(ours.slots, ours.capacity)
    ours.watch(0, 8 * slots * SLOT_BYTES // 8)
    taken = 0
    while taken < len(puts) and plain.put(*puts[taken]):
        taken += 1

    digests = packed([digest for digest, _ in puts])
    offsets = np.array([offset for _, offset in puts], np.int64)
    half = len(puts) // 2
    got = ours.put(digests[:half], offsets[:half])
    if got == half:
        got += ours.put(digests[half:], offsets[half:])

    assert got == taken
    assert ours.size == plain.size
    assert ours.table.tobytes() == b"".join(plain.table)
    asked = [digest for digest, _ in puts] + others
    assert ours.find(packed(asked)).tolist() == [plain.find(digest) for digest in asked]
    if ours.superseded is not None:
        marked = np.flatnonzero(np.unpackbits(ours.superseded.bits, bitorder="little"))
        assert set(marked.tolist()) == {offset for offset in plain.superseded if offset < ours.superseded.end_offset}


@pytest.mark.parametrize("load_factor", [0.5, 0.9, 1.0])
def test_the_tables_are_the_same(load_factor: float, randomised: int) -> None:
    rng = random.Random(f"same {load_factor}")
    for _ in range(RANDOM_MAPS * randomised):
        slots = rng.randint(4, 400)
        digests = [hashlib.md5(rng.randbytes(8)).digest() for _ in range(rng.randint(1, 2 * slots))]
        puts = [(rng.choice(digests), offset) for offset in range(rng.randint(0, 4 * slots))]
        assert_same_after(puts, digests, slots, load_factor)


hostile_digests = st.lists(
    # Few values of each byte: searches of many keys meet, at numbers around zero and around the ends of 32 bits.
    st.lists(st.sampled_from([0x00, 0x7F, 0x80, 0xFF]), min_size=16, max_size=16).map(bytes),
    min_size=1,
    max_size=40,
)


@given(hostile_digests, st.integers(2, 50), st.randoms(use_true_random=False))
def test_the_tables_are_the_same_for_digests_that_collide(digests: list[bytes], slots: int, rng: random.Random) -> None:
    puts = [(rng.choice(digests), offset) for offset in range(1, 80)]
    assert_same_after(puts, digests, slots, 1.0)


@given(st.lists(st.binary(max_size=300), max_size=60), st.integers(0, 20))
def test_digests_are_those_of_hashlib(keys: list[bytes], bytes_before: int) -> None:
    data = bytes(bytes_before) + b"".join(keys)
    lengths = np.array([len(key) for key in keys], np.int32)
    positions = bytes_before + np.cumsum(lengths, dtype=np.int64) - lengths
    digests = digests_of(np.frombuffer(data, np.uint8), positions, lengths)
    assert digests.tobytes() == b"".join(hashlib.md5(key).digest() for key in keys)
