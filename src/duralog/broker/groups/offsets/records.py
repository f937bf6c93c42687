"""A fast codec for the records of committed offsets, which are most of `__consumer_offsets`.

Their format is in `format.internal.group_records`. This handles what Kafka 4.3 writes: version 4, and version 1 for a
commit with its own retention time. Anything but version 4 that is read (other versions, long texts, unknown tags,
damage) goes through the generic codec, which also reports what is wrong with it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from duralog.format.internal.coordinator_records import decode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.uuids import ZERO_UUID, uuid_bytes
from duralog.format.varint import encode_unsigned_varint

OFFSET_COMMIT: Final = 1
OFFSET_TYPES: Final = (b"\x00\x00", b"\x00\x01")
"""How their keys begin: those of now, and those from before Kafka 0.9."""

_KEY_START = struct.Struct(">hh")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_WITH_EXPIRY: Final = 1
_CURRENT: Final = 4
_VALUE_START = struct.Struct(">hqi")
"""Version, offset, leader epoch."""
_TIMESTAMP = struct.Struct(">q")
_EXPIRING_START = struct.Struct(">hq")
_TIMESTAMPS = struct.Struct(">qq")
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
"""One tagged field: number 0, of 16 bytes."""


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset of a group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    """Only where an old client asked for it."""
    topic_id: UUID | None
    """None if it is unknown, as in transactions and with older brokers."""
    record_offset: int = -1
    """The offset of its record in `__consumer_offsets`."""


def encode_offset_key(key: OffsetKey) -> bytes:
    group_id, topic = key.group_id.encode(), key.topic.encode()
    return b"".join(
        (
            _KEY_START.pack(OFFSET_COMMIT, len(group_id)),
            group_id,
            _INT16.pack(len(topic)),
            topic,
            _INT32.pack(key.partition),
        )
    )


def encode_offset_value(value: CommittedOffset) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms is not None:
        start = _EXPIRING_START.pack(_WITH_EXPIRY, value.offset) + _INT16.pack(len(metadata))
        return start + metadata + _TIMESTAMPS.pack(value.commit_timestamp_ms, value.expire_timestamp_ms)
    return b"".join(
        (
            _VALUE_START.pack(_CURRENT, value.offset, value.leader_epoch),
            encode_unsigned_varint(len(metadata) + 1),
            metadata,
            _TIMESTAMP.pack(value.commit_timestamp_ms),
            _NO_TAGS if value.topic_id is None else _TOPIC_ID_TAG + value.topic_id.bytes,
        )
    )


def decode_offset_key(data: bytes) -> OffsetKey:
    """Raises CorruptRecord. REQUIRES: it begins with one of `OFFSET_TYPES`."""
    try:
        _, length = _KEY_START.unpack_from(data)
        topic_at = _KEY_START.size + length
        (topic_length,) = _INT16.unpack_from(data, topic_at)
        partition_at = topic_at + _INT16.size + topic_length
        if length >= 0 and topic_length >= 0 and len(data) == partition_at + _INT32.size:
            return OffsetKey(
                data[_KEY_START.size : topic_at].decode(),
                data[topic_at + _INT16.size : partition_at].decode(),
                _INT32.unpack_from(data, partition_at)[0],
            )
    except (struct.error, UnicodeDecodeError):
        pass
    fields = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, data, None).key
    assert not isinstance(fields, bytes)
    return OffsetKey(fields["group"], fields["topic"], fields["partition"])


def decode_offset_value(key: bytes, data: bytes, record_offset: int) -> CommittedOffset | None:
    """Raises CorruptRecord. None for a version that is newer than all that is known."""
    size = len(data)
    if size > _VALUE_START.size and data[:2] == b"\x00\x04":
        _, offset, leader_epoch = _VALUE_START.unpack_from(data)
        text_at = _VALUE_START.size + 1
        text_end = text_at + data[_VALUE_START.size] - 1
        tags_at = text_end + _TIMESTAMP.size
        if data[_VALUE_START.size] in range(1, 128) and tags_at < size:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(data, text_end)
            tags = data[tags_at:]
            has_id = len(tags) == len(_TOPIC_ID_TAG) + 16 and tags.startswith(_TOPIC_ID_TAG)
            if has_id or tags == _NO_TAGS:
                topic_id = _topic_id(tags[len(_TOPIC_ID_TAG) :]) if has_id else None
                metadata = data[text_at:text_end].decode("utf-8", errors="replace")
                return CommittedOffset(offset, leader_epoch, metadata, timestamp_ms, None, topic_id, record_offset)
    return _decode_by_tables(key, data, record_offset)


def _decode_by_tables(key: bytes, data: bytes, record_offset: int) -> CommittedOffset | None:
    fields = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, key, data).value
    if not isinstance(fields, dict):
        return None
    topic_id = fields.get("topic_id", ZERO_UUID)
    expire_timestamp_ms = fields.get("expire_timestamp", -1)
    return CommittedOffset(
        fields["offset"],
        fields.get("leader_epoch", NO_LEADER_EPOCH),
        fields["metadata"],
        fields["commit_timestamp"],
        None if expire_timestamp_ms == -1 else expire_timestamp_ms,
        None if topic_id == ZERO_UUID else _topic_id(uuid_bytes(topic_id)),
        record_offset,
    )


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> UUID:
    """One for all partitions of a topic: there are many more of them than topics."""
    return UUID(bytes=raw)
