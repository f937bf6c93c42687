"""The body of a Produce request, parsed by hand: a generic parser costs more than everything that follows.

All versions that are served (3 to 13) are here: up to 8 with lengths of fixed size, from 9 on with compact lengths and
tagged sections, from 13 on with topic ids in place of names. The records are views into the body, without a copy:
their batches are stamped and written from there.

Nothing is trusted: a length that leads out of the body, a name that is not UTF-8, a null where none may be or more
partitions than make sense raise `InvalidMessage`. What follows the end of the message is ignored, as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from duralog.broker.wire.message_reading import MOST_ELEMENTS
from duralog.broker.wire.messages import InvalidMessage
from duralog.errors import CorruptRecord
from duralog.format.varint import decode_unsigned_varint

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
VALID_ACKS = (-1, 0, 1)
_ID_BYTES = 16
_MOST_TAGGED_FIELDS = 16
"""Of one section. No version has any."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_BYTES = struct.Struct(">iBBB")
_INDEX_LENGTH = struct.Struct(">ii")

Records = memoryview | None


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    topics: dict[bytes, dict[int, Records]]
    """Topic to partition to records. A topic is its name as it was sent, or its id. Of a partition that is named twice
    the last one counts, as for Kafka."""


_as_request: Callable[[tuple[object, ...]], ProduceRequest] = partial(tuple.__new__, ProduceRequest)
"""As `ProduceRequest._make`, in half the time."""


def parse(body: memoryview, version: int) -> ProduceRequest:
    """The request of this version. The records can be written to where the body can."""
    try:
        return _parse_flexible(body, version) if version >= FIRST_FLEXIBLE else _parse_plain(body)
    except (IndexError, struct.error):
        raise InvalidMessage(f"the Produce request ends after {len(body)} bytes, before all its fields") from None
    except CorruptRecord as error:
        raise InvalidMessage(f"a length in a Produce request: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidMessage(f"the transactional id of a Produce request is not UTF-8: {error}") from None


def _parse_flexible(body: memoryview, version: int) -> ProduceRequest:
    """Numbers of one byte, which is nearly all of them, are read in place."""
    size = len(body)
    length, at = _varint(body, 0)
    transactional_id = None
    if length:
        transactional_id, at = str(_taken(body, at, length - 1), "utf-8"), at + length - 1
    acks, _ = _ACKS_TIMEOUT.unpack_from(body, at)
    topic_count, at = _varint(body, at + 6)
    if not topic_count:
        raise InvalidMessage("the topics of a Produce request are null")
    topics: dict[bytes, dict[int, Records]] = {}
    room = MOST_ELEMENTS - topic_count
    for _ in range(topic_count - 1):
        if version >= FIRST_WITH_TOPIC_IDS:
            length = _ID_BYTES
        else:
            length, at = _varint(body, at)
            length -= 1
            if length < 0:
                raise InvalidMessage("a Produce request names a topic by null")
        topic = bytes(_taken(body, at, length))
        at += length
        partition_count, at = _varint(body, at)
        if not partition_count:
            raise InvalidMessage("the partitions of a topic in a Produce request are null")
        room -= partition_count
        if room < 0:
            raise _too_many()
        partitions = topics.get(topic)
        if partitions is None:
            topics[topic] = partitions = {}
        for _ in range(partition_count - 1):
            index, length, second, third = _INDEX_BYTES.unpack_from(body, at)
            if length > 0x7F and second > 0x7F and third < 0x80:
                # Three bytes, as the lengths of nearly all batches have.
                length = length & 0x7F | (second & 0x7F) << 7 | third << 14
                at += 7
            else:
                length, at = _varint(body, at + 4)
            records = None
            if length:
                end = at + length - 1
                if end > size:
                    _taken(body, at, length - 1)
                records = body[at:end]
                at = end
            partitions[index] = records
            at = at + 1 if body[at] == 0 else _skip_tags(body, at)
        at = at + 1 if body[at] == 0 else _skip_tags(body, at)
    if body[at]:
        _skip_tags(body, at)
    return _as_request((transactional_id, acks, topics))


def _parse_plain(body: memoryview) -> ProduceRequest:
    (length,) = _INT16.unpack_from(body, 0)
    at = 2
    transactional_id = None
    if length >= 0:
        transactional_id, at = str(_taken(body, at, length), "utf-8"), at + length
    acks, _ = _ACKS_TIMEOUT.unpack_from(body, at)
    (topic_count,) = _INT32.unpack_from(body, at + _ACKS_TIMEOUT.size)
    at += _ACKS_TIMEOUT.size + 4
    if topic_count < 0:
        raise InvalidMessage("the topics of a Produce request are null")
    topics: dict[bytes, dict[int, Records]] = {}
    room = MOST_ELEMENTS - topic_count
    for _ in range(topic_count):
        (length,) = _INT16.unpack_from(body, at)
        if length < 0:
            raise InvalidMessage("a Produce request names a topic by null")
        topic = bytes(_taken(body, at + 2, length))
        at += 2 + length
        (partition_count,) = _INT32.unpack_from(body, at)
        at += 4
        if partition_count < 0:
            raise InvalidMessage("the partitions of a topic in a Produce request are null")
        room -= partition_count
        if room < 0:
            raise _too_many()
        partitions = topics.setdefault(topic, {})
        for _ in range(partition_count):
            index, length = _INDEX_LENGTH.unpack_from(body, at)
            at += 8
            records = None
            if length >= 0:
                records = _taken(body, at, length)
                at += length
            partitions[index] = records
    return ProduceRequest(transactional_id, acks, topics)


def _too_many() -> InvalidMessage:
    return InvalidMessage(f"a Produce request has {MOST_ELEMENTS} topics and partitions at most")


def _taken(body: memoryview, at: int, length: int) -> memoryview:
    if length > len(body) - at:
        raise InvalidMessage(
            f"a field at byte {at} of a Produce request has {length} bytes, of which {len(body) - at} are there"
        )
    return body[at : at + length]


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint, and where it ends."""
    value = body[at]
    return (value, at + 1) if value < 0x80 else decode_unsigned_varint(body, at, len(body))


def _skip_tags(body: memoryview, at: int) -> int:
    count, at = _varint(body, at)
    if count > _MOST_TAGGED_FIELDS:
        raise InvalidMessage(f"{count} tagged fields at byte {at} of a Produce request")
    for _ in range(count):
        _, at = _varint(body, at)
        size, at = _varint(body, at)
        _taken(body, at, size)
        at += size
    return at
