"""The partition of every key of a column, as Kafka's default partitioner chooses it (`duralog.format.murmur2`)."""

from __future__ import annotations

from duralog.format.murmur2 import MULTIPLIER, POSITIVE, SEED
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.words import BYTES, load_native_uint32, load_uint8

_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_INT32S = types.Array(types.int32, 1, "C", readonly=True)
_OUT_INT32S = types.Array(types.int32, 1, "C")

_MULTIPLIER = types.uint32(MULTIPLIER)
_SEED = types.uint32(SEED)


@device
def _murmur2(data, start, length):
    mixed = types.uint32(_SEED ^ types.uint32(length))
    whole = start + (length & ~3)
    position = start
    while position < whole:
        word = types.uint32(load_native_uint32(data, position) * _MULTIPLIER)
        word = types.uint32((word ^ (word >> types.uint32(24))) * _MULTIPLIER)
        mixed = types.uint32(types.uint32(mixed * _MULTIPLIER) ^ word)
        position += 4
    rest = types.uint32(0)
    for index in range(length & 3):
        rest = types.uint32(rest | types.uint32(load_uint8(data, whole + index)) << types.uint32(8 * index))
    if length & 3:
        mixed = types.uint32((mixed ^ rest) * _MULTIPLIER)
    mixed = types.uint32((mixed ^ (mixed >> types.uint32(13))) * _MULTIPLIER)
    return types.uint32(mixed ^ (mixed >> types.uint32(15)))


@kernel(types.void(_INT64S, BYTES, _INT32S, _OUT_INT32S))
def partitions_of_keys(offsets, data, partitions, out):
    """Where each key goes, out of as many partitions as its row says; a row whose `out` is 0 or more already keeps it.

    Key i is data[offsets[i]:offsets[i + 1]]. REQUIRES: the offsets ascend within the data, and all counts are above 0.
    """
    for row in range(len(out)):
        if out[row] < 0:
            start = offsets[row]
            hashed = _murmur2(data, start, offsets[row + 1] - start) & types.uint32(POSITIVE)
            out[row] = types.int32(types.int64(hashed) % partitions[row])
