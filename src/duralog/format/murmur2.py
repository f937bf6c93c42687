"""murmur2, the hash by which Kafka's clients choose the partition of a key.

It is MurmurHash2 of 32 bits with a seed of Kafka's own. `duralog.kernels.key_partitions` does the same for columns.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
POSITIVE = 0x7FFFFFFF

_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash, not signed."""
    length = len(data)
    mixed = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & _WORD
        word = (word ^ word >> 24) * MULTIPLIER & _WORD
        mixed = mixed * MULTIPLIER & _WORD ^ word
    if length > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _WORD
    mixed = (mixed ^ mixed >> 13) * MULTIPLIER & _WORD
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where Kafka's default partitioner sends a record with this key."""
    return (murmur2(key) & POSITIVE) % partitions
