"""The offset map: for each key, known by its digest, the offset of the last record that has it.

The table holds, byte for byte, what Kafka's `SkimpyOffsetMap` would hold after the same puts: 24 bytes a slot, the MD5
of a key and a big-endian offset, all zero where the slot is free. A digest is looked for in one slot after the other:
attempt i takes the four bytes of the digest from byte min(i, 12) on as a signed number, adds what i is more than 12
(wrapping at 32 bits), and takes the absolute value (that of the smallest number is 0) modulo the slots. Nothing is
ever removed, so a free slot ends a search.

Memory is what the constructor was given, and for `watch` an eighth more at most. None of it is touched before the
first put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.compilation.numba_names import cgutils, intrinsic, ir, types
from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.key_digests import DIGESTS, Digests
from duralog.kernels.words import OUT_BYTES

SLOT_BYTES = 24
NO_OFFSET = -1
DEFAULT_LOAD_FACTOR = 0.9

_SLOT_WORDS = SLOT_BYTES // 8
_MOST_SLOTS = 2**31 - 1
"""A search names no slot beyond."""
_LAST_PROBE = 12
"""Where in a digest the last four bytes start; from then on a search goes from slot to slot."""
_UNTIL_FOUND = 2**62
"""A search ends at a free slot, and putting has one. Finding gives up after one round of the table, as in Kafka."""
_AHEAD = 16
"""How many keys ahead slots are fetched, since the table is larger than the CPU's caches; first ones twice as many."""
_KEPT = 4 * _AHEAD
"""Of how many keys the first slots are kept at a time."""

_TABLE = types.Array(types.uint64, 1, "C")
_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
_OUT_OFFSETS = types.Array(types.int64, 1, "C")
_SLOTS_AHEAD = types.Array(types.int64, 1, "C")


@dataclass(frozen=True, slots=True)
class Superseded:
    """For each offset from `first_offset` to before `end_offset`, a bit: a later record has the same key.

    Bit i % 8 of byte i // 8 is that of offset first_offset + i. It is clear where no record was put.
    """

    first_offset: int
    end_offset: int
    bits: NDArray[np.uint8]


def map_bytes_for(keys: int, load_factor: float) -> int:
    """The memory of a map that is not yet full with this number of keys: a full one takes no record of any key."""
    return (int((keys + 1) / load_factor) + 2) * SLOT_BYTES


NO_MARKS = Superseded(0, 0, np.zeros(0, np.uint8))


class OffsetMap:
    """A map with room for `capacity` keys. One thread may put; any number of threads may find while none puts."""

    def __init__(self, memory_bytes: int, load_factor: float = DEFAULT_LOAD_FACTOR) -> None:
        slots = min(memory_bytes // SLOT_BYTES, _MOST_SLOTS)
        if slots * load_factor <= 1:
            raise ValueError(
                f"an offset map of {memory_bytes} bytes, filled to {load_factor}, has no room: expected more than 1 "
                f"slot of {SLOT_BYTES} bytes, found {slots * load_factor:.2f}"
            )
        self.memory_bytes = memory_bytes
        self.load_factor = load_factor
        self.slots = slots
        self.capacity = min(int(slots * load_factor), slots)
        self.table = np.zeros(slots * _SLOT_WORDS, np.uint64)
        self._forget()

    def _forget(self) -> None:
        self.size = 0
        self.latest_offset = NO_OFFSET
        self._last_put = NO_OFFSET
        self._watched: Superseded | None = None

    def clear(self) -> None:
        """Forget everything."""
        if self.size:
            self.table.fill(0)
        self._forget()

    @property
    def fill(self) -> float:
        """The share of the slots that is taken."""
        return self.size / self.slots

    @property
    def superseded(self) -> Superseded | None:
        """The marks of the offsets that `watch` named; None without them."""
        return self._watched

    def watch(self, first_offset: int, end_offset: int) -> None:
        """From now on, mark in `superseded` which of these offsets lose their key to a later one.

        Does nothing if the marks would take more than an eighth of the map's memory. REQUIRES: the map is empty.
        """
        size = (end_offset - first_offset + 7) // 8
        if 0 < size <= self.table.nbytes // 8:
            self._watched = Superseded(first_offset, end_offset, np.zeros(size, np.uint8))

    def reach(self, offset: int) -> None:
        """Everything up to this offset is in the map, or has no place in it."""
        self.latest_offset = max(self.latest_offset, offset)

    def put(self, digests: Digests, offsets: NDArray[np.int64]) -> int:
        """Map each digest to its offset, one after the other, until the map is full. Returns how many were taken.

        As in Kafka, a full map takes nothing, not even a later offset of a key that it has.
        """
        if len(digests) != len(offsets):
            raise ValueError(f"{len(digests)} digests with {len(offsets)} offsets")
        watched = self._watched or NO_MARKS
        taken, self.size, is_ordered = put_offsets(
            *(self.table, self.slots, self.capacity, self.size, digests.reshape(-1), offsets, self._last_put),
            *(watched.first_offset, watched.end_offset, watched.bits, np.empty(_KEPT, np.int64)),
        )
        if taken:
            self._last_put = int(offsets[taken - 1])
            self.reach(self._last_put)
        if not is_ordered:
            # Two records of one offset would share a mark, and an earlier offset can supersede nothing.
            self._watched = None
        return int(taken)

    def find(self, digests: Digests) -> NDArray[np.int64]:
        """The offset of each digest, -1 where the map has none."""
        offsets = np.empty(len(digests), np.int64)
        find_offsets(self.table, self.slots, digests.reshape(-1), offsets, np.empty(_KEPT, np.int64))
        return offsets

    def entries(self) -> tuple[Digests, NDArray[np.int64]]:
        """All digests and their offsets, in no order that means anything."""
        used = self._used()
        return self.table.reshape(-1, _SLOT_WORDS)[used, :2], self._offsets(used)

    def offsets(self) -> NDArray[np.int64]:
        """The offsets of all digests, in the order of `entries`."""
        return self._offsets(self._used())

    def _used(self) -> NDArray[np.intp]:
        words = self.table.reshape(-1, _SLOT_WORDS)
        return np.flatnonzero(words[:, 0] | words[:, 1] | words[:, 2])

    def _offsets(self, slots: NDArray[np.intp]) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.table.reshape(-1, _SLOT_WORDS)[slots, 2].byteswap().view(np.int64)
        return offsets


MakeMap = Callable[[int, float], OffsetMap]
"""From memory and load factor."""


@intrinsic
def _prefetch(typingctx: Any, table: Any, word: Any) -> Any:
    """Have the line that this word is in brought to the cache."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        words = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(words, [args[1]]), pointer)
        for_reading, in_all_caches, data = 0, 3, 1
        builder.call(prefetch, [address, *(ir.Constant(number, x) for x in (for_reading, in_all_caches, data))])
        return context.get_dummy_value()

    return types.void(table, types.intp), codegen


@intrinsic
def _swapped(typingctx: Any, word: Any) -> Any:
    """The word with its bytes in the other order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return word(word), codegen


@inlined
def _slot_of(probe, slots):
    """The first word of the slot that a probe, a signed number of 32 bits, names."""
    probe = np.int64(probe)
    if probe == -0x80000000:
        probe = np.int64(0)
    return np.intp(np.uint32(abs(probe)) % np.uint32(slots)) * _SLOT_WORDS


@inlined
def _early_slot(low, attempt, slots):
    """Where attempt number 0 or 1 looks: the first word of the digest tells."""
    return _slot_of(np.int32(_swapped(np.uint32(low >> np.uint64(8 * attempt)))), slots)


@device
def _slot(low, high, attempt, slots):
    """Where any attempt looks."""
    start = np.uint64(8 * min(attempt, _LAST_PROBE))
    four = low >> start
    if start > 32:
        four = low >> start | high << np.uint64(64) - start if start < 64 else high >> start - np.uint64(64)
    probe = np.int64(np.int32(_swapped(np.uint32(four)))) + max(0, attempt - _LAST_PROBE)
    return _slot_of(np.int32(probe), slots)


@inlined
def _fetch(table, word):
    _prefetch(table, word)
    _prefetch(table, word + _SLOT_WORDS - 1)


@inlined
def _look_ahead(table, slots, digests, key, count, slots_ahead):
    """Fetch the slots of keys whose turn comes later: far ahead the first one, nearer the second if that is needed."""
    far = key + 2 * _AHEAD
    if far < count:
        word = _early_slot(digests[np.uintp(2 * far)], 0, slots)
        slots_ahead[np.uintp(far % _KEPT)] = word
        _fetch(table, word)
    near = key + _AHEAD
    if 0 <= near < count:
        low = digests[np.uintp(2 * near)]
        found = table[np.uintp(slots_ahead[np.uintp(near % _KEPT)])]
        if (found != low) & (found != 0):
            _fetch(table, _early_slot(low, 1, slots))


@inlined
def _search(table, slots, low, high, word, attempts):
    """Where the digest's slot begins, or the free one that ends the search, and whether it is the digest's.

    `word` is the first place to search. After `attempts` attempts: -1, and not.
    """
    for attempt in range(1, attempts + 1):
        at = np.uintp(word)
        if (table[at] | table[at + np.uintp(1)] | table[at + np.uintp(2)]) == 0:
            return word, False
        if table[at] == low and table[at + np.uintp(1)] == high:
            return word, True
        word = _slot(low, high, attempt, slots)
    return np.intp(-1), False


@kernel(
    types.Tuple((types.int64, types.int64, types.boolean))(
        *(_TABLE, types.int64, types.int64, types.int64, DIGESTS, _OFFSETS),
        *(types.int64, types.int64, types.int64, OUT_BYTES, _SLOTS_AHEAD),
    )
)
def put_offsets(
    table, slots, capacity, size, digests, offsets, last_put, first_offset, end_offset, superseded, slots_ahead
):
    """Put until `size` has reached `capacity`. Returns (taken, size, whether the offsets of all puts increase).

    A watched offset that loses its key is marked in `superseded`.
    REQUIRES: capacity <= slots, and a bit of `superseded` for each offset from `first_offset` to before `end_offset`.
    """
    count = len(offsets)
    is_ordered = True
    for key in range(-2 * _AHEAD, count):
        _look_ahead(table, slots, digests, key, count, slots_ahead)
        if key < 0:
            continue
        if size >= capacity:
            return key, size, is_ordered
        low = digests[np.uintp(2 * key)]
        high = digests[np.uintp(2 * key + 1)]
        offset = offsets[np.uintp(key)]
        is_ordered &= offset > last_put
        last_put = offset
        word, is_there = _search(table, slots, low, high, slots_ahead[np.uintp(key % _KEPT)], _UNTIL_FOUND)
        at = np.uintp(word)
        if is_there:
            before = np.int64(_swapped(table[at + np.uintp(2)]))
            if first_offset <= before < end_offset:
                bit = np.uint64(before - first_offset)
                superseded[bit >> np.uint64(3)] |= np.uint8(np.uint64(1) << (bit & np.uint64(7)))
        else:
            table[at] = low
            table[at + np.uintp(1)] = high
            size += 1
        table[at + np.uintp(2)] = _swapped(np.uint64(offset))
    return count, size, is_ordered


@kernel(types.void(_TABLE, types.int64, DIGESTS, _OUT_OFFSETS, _SLOTS_AHEAD))
def find_offsets(table, slots, digests, offsets, slots_ahead):
    """Fill in the offset of each digest, -1 where there is none."""
    count = len(offsets)
    for key in range(-2 * _AHEAD, count):
        _look_ahead(table, slots, digests, key, count, slots_ahead)
        if key < 0:
            continue
        low = digests[np.uintp(2 * key)]
        high = digests[np.uintp(2 * key + 1)]
        attempts = slots + _LAST_PROBE
        word, is_there = _search(table, slots, low, high, slots_ahead[np.uintp(key % _KEPT)], attempts)
        offsets[np.uintp(key)] = np.int64(_swapped(table[np.uintp(word + 2)])) if is_there else NO_OFFSET
