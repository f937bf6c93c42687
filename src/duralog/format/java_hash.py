"""Java's hash of a text, by which Kafka spreads groups and transactional ids over the partitions of its own topics."""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """`String.hashCode`: over the UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_partition(text: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` that has the records of a group or an id."""
    value = java_hash(text)
    # Java's smallest integer has no absolute value; Kafka takes zero for it.
    return 0 if value == -(1 << 31) else abs(value) % partitions
