"""A hash of all that an assignment depends on: the topics of a group, their ids, partitions and racks.

It is in the group's record. If the current hash differs from that in the record, the topics have changed and the group
needs a new assignment. The hash is Kafka's own, XXH3 over the same bytes, so that a group that moves
between Kafka and duralog is not disturbed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

import xxhash

from duralog.broker.groups.consumer.records import NO_TOPICS_HASH

_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_LAYOUT_VERSION = b"\0"


def topic_hash(topic_id: UUID, name: str, partitions: int, racks: Iterable[str] = ()) -> int:
    """Of a topic whose every partition has replicas on these racks."""
    high, low = struct.unpack(">qq", topic_id.bytes)
    each_rack = b"".join(_INT32.pack(_length(rack)) + _text(rack) for rack in sorted(racks))
    parts = [
        _LAYOUT_VERSION,
        _INT64.pack(high),
        _INT64.pack(low),
        _text(name),
        _INT32.pack(partitions),
        *(_INT32.pack(partition) + each_rack for partition in range(partitions)),
    ]
    return _signed(xxhash.xxh3_64_intdigest(b"".join(parts)))


def group_hash(topic_hashes: dict[str, int]) -> int:
    """Of the topics by name."""
    if not topic_hashes:
        return NO_TOPICS_HASH
    in_order = sorted(topic_hashes.items(), key=lambda topic: topic[0].encode("utf-16-be"))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(_INT64.pack(number) for _, number in in_order)))


def _text(text: str) -> bytes:
    """UTF-16, and then its length."""
    return text.encode("utf-16-le") + _INT32.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
