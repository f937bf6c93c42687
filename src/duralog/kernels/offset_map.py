"""The offset map: for each key, known by its digest, the offset of the last record that has it.

The table holds, byte for byte, what Kafka's `SkimpyOffsetMap` would hold after the same puts: 24 bytes a slot, the MD5
of a key and a big-endian offset, all zero where the slot is free. A digest is looked for in one slot after the other:
attempt i takes the four bytes of the digest from byte min(i, 12) on as a signed number, adds what i is more than 12
(wrapping at 32 bits), and takes the absolute value (that of the smallest number is 0) modulo the slots. Nothing is
ever removed, so a free slot ends a search.

Memory is what the constructor was given, and for `watch` an eighth more at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from duralog.kernels.compile import inlined, kernel
from duralog.kernels.key_digests import DIGESTS, Digests
from duralog.kernels.words import OUT_BYTES

SLOT_BYTES = 24
NO_OFFSET = -1
DEFAULT_LOAD_FACTOR = 0.9

_SLOT_WORDS = SLOT_BYTES // 8
_LAST_PROBE = 12
"""Where in a digest the last four bytes start; from then on the search goes from slot to slot."""
_AHEAD = 20
"""How many keys before its turn a slot is fetched: the table is larger than the CPU's caches."""

_UNTIL_FOUND = 2**62
"""While a slot is free, a search ends there. Kafka's finding gives up after a round, its putting does not."""

_TABLE = types.Array(types.uint64, 1, "C")
_INT64S = types.Array(types.int64, 1, "C")


@dataclass(frozen=True, slots=True)
class Superseded:
    """For each offset from `first_offset` to before `end_offset`, a bit: a later record has the same key.

    Bit i % 8 of byte i // 8 is that of offset first_offset + i. It is clear where no record was put.
    """

    first_offset: int
    end_offset: int
    bits: NDArray[np.uint8]


class OffsetMap:
    """A map with room for `capacity` keys in `memory_bytes`. Not for several threads, except to find."""

    def __init__(self, memory_bytes: int, load_factor: float = DEFAULT_LOAD_FACTOR) -> None:
        self.slots = memory_bytes // SLOT_BYTES
        if self.slots * load_factor <= 1:
            raise ValueError(
                f"an offset map of {memory_bytes} bytes has no room: expected more than {SLOT_BYTES / load_factor:.0f}"
            )
        self.capacity = min(int(self.slots * load_factor), self.slots)
        self.table = np.zeros(self.slots * _SLOT_WORDS, np.uint64)
        self.size = 0
        self.latest_offset = NO_OFFSET
        self._last_put = NO_OFFSET
        self._watched: Superseded | None = None

    def clear(self) -> None:
        """Forget all keys, and what was watched."""
        if self.size:  # else no page of it may have been touched yet, and none has to be
            self.table.fill(0)
        self.size = 0
        self.latest_offset = NO_OFFSET
        self._last_put = NO_OFFSET
        self._watched = None

    @property
    def fill(self) -> float:
        """The share of the slots that is taken."""
        return self.size / self.slots

    @property
    def superseded(self) -> Superseded | None:
        """What was learned about the offsets that `watch` named; none if that cannot be told."""
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
        watched = self._watched or _NOTHING
        taken, size, is_ordered = put_offsets(
            *(self.table, self.slots, self.capacity, self.size, digests, offsets),
            *(self._last_put, watched.first_offset, watched.end_offset, watched.bits),
        )
        self.size = size
        if taken:
            self._last_put = int(offsets[taken - 1])
            self.reach(self._last_put)
        if not is_ordered:
            # Two records of one offset would share a mark.
            self._watched = None
        return int(taken)

    def find(self, digests: Digests) -> NDArray[np.int64]:
        """The offset of each digest, -1 where the map has none."""
        offsets = np.empty(len(digests), np.int64)
        find_offsets(self.table, self.slots, digests, offsets)
        return offsets


_NOTHING = Superseded(0, 0, np.zeros(0, np.uint8))


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
def _first_slot(low, slots):
    probe = np.int64(np.int32(_swapped(np.uint32(low))))
    if probe == -0x80000000:
        probe = np.int64(0)
    return np.uint32(abs(probe)) % np.uint32(slots)


@inlined
def _slot(low, high, attempt, slots):
    """Where attempt number `attempt` looks for the digest that these two words hold."""
    start = np.uint64(8 * min(attempt, _LAST_PROBE))
    if start <= 32:
        four = low >> start
    elif start < 64:
        four = low >> start | high << np.uint64(64) - start
    else:
        four = high >> start - np.uint64(64)
    probe = np.int32(_swapped(np.uint32(four)))
    probe = np.int64(np.int32(np.int64(probe) + max(0, attempt - _LAST_PROBE)))
    if probe == -0x80000000:
        probe = np.int64(0)
    return abs(probe) % slots


@inlined
def _fetch(table, slots, digests, key):
    word = np.intp(_first_slot(digests[key, 0], slots)) * _SLOT_WORDS
    _prefetch(table, word)
    _prefetch(table, word + _SLOT_WORDS - 1)


@inlined
def _search(table, slots, low, high, attempts):
    """Where the digest's slot begins, or the free one that ends the search, and whether it is the digest's.

    After so many attempts: -1, and not.
    """
    word = np.intp(_first_slot(low, slots)) * _SLOT_WORDS
    attempt = 0
    while attempt < attempts:
        at = np.uintp(word)
        if (table[at] | table[at + np.uintp(1)] | table[at + np.uintp(2)]) == 0:
            return word, False
        if table[at] == low and table[at + np.uintp(1)] == high:
            return word, True
        attempt += 1
        word = np.intp(_slot(low, high, attempt, slots)) * _SLOT_WORDS
    return np.intp(-1), False


@kernel(
    types.Tuple((types.int64, types.int64, types.boolean))(
        *(_TABLE, types.int64, types.int64, types.int64, DIGESTS, _INT64S),
        *(types.int64, types.int64, types.int64, OUT_BYTES),
    )
)
def put_offsets(table, slots, capacity, size, digests, offsets, last_put, first_offset, end_offset, superseded):
    """Put until `size` has reached `capacity`. Returns (taken, size, whether the offsets of all puts increase).

    A watched offset that loses its key is marked in `superseded`.
    REQUIRES: capacity <= slots, and a bit of `superseded` for each offset from `first_offset` to before `end_offset`.
    """
    count = len(offsets)
    is_ordered = True
    for key in range(min(_AHEAD, count)):
        _fetch(table, slots, digests, key)
    for key in range(count):
        if size >= capacity:
            return key, size, is_ordered
        if key + _AHEAD < count:
            _fetch(table, slots, digests, key + _AHEAD)
        low = digests[key, 0]
        high = digests[key, 1]
        offset = offsets[key]
        is_ordered &= offset > last_put
        last_put = offset
        word, is_there = _search(table, slots, low, high, _UNTIL_FOUND)
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


@kernel(types.void(_TABLE, types.int64, DIGESTS, _INT64S))
def find_offsets(table, slots, digests, offsets):
    """Fill in the offset of each digest, -1 where there is none."""
    count = len(offsets)
    for key in range(min(_AHEAD, count)):
        _fetch(table, slots, digests, key)
    for key in range(count):
        if key + _AHEAD < count:
            _fetch(table, slots, digests, key + _AHEAD)
        word, is_there = _search(table, slots, digests[key, 0], digests[key, 1], slots + _LAST_PROBE)
        offsets[key] = np.int64(_swapped(table[word + 2])) if is_there else NO_OFFSET
