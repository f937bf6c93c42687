"""The body of a Fetch response, encoded by hand, for all served versions (4 to 18).

Only what surrounds the records is made here: the records are slices of files, which are sent between the parts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from duralog.broker.fetch.wanted import FetchedPartition
from duralog.broker.topics.leadership import NO_EPOCH
from duralog.broker.wire.error_codes import KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER
from duralog.broker.wire.request import FileSlice, RawAnswer
from duralog.format.varint import encode_unsigned_varint

FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_START_OFFSET = 5
_FIRST_WITH_STORAGE_ERROR = 6
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_READ_REPLICA = 11
_FIRST_WITH_LEADER_HINTS = 16

_HEAD_V4 = struct.Struct(">i")
_HEAD_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_COUNT = struct.Struct(">i")
_TEXT_LENGTH = struct.Struct(">h")
_ABORTED = struct.Struct(">qq")
_ABORTED_TAGGED = struct.Struct(">qqB")
_NO_READ_REPLICA = struct.pack(">i", -1)
_NULL_COUNT = struct.pack(">i", -1)
_DIVERGING_TAG = struct.Struct(">BBiqB")
_LEADER_TAG = struct.Struct(">BBiiB")
_EPOCH_END_BYTES = 13
_LEADER_BYTES = 9
_NOT_THROTTLED = 0
_NO_TAGS = b"\0"


def encode(
    results: Sequence[FetchedPartition], version: int, *, session_id: int, node_id: int, error_code: int = NONE
) -> RawAnswer:
    """The whole answer, in the order of the results: adjacent partitions of the same topic share an entry."""
    if version >= FIRST_FLEXIBLE:
        return _encode_flexible(results, version, session_id, node_id, error_code)
    return _encode_plain(results, version, session_id, error_code)


def throttled(answer: RawAnswer, version: int, throttle_ms: int) -> RawAnswer:
    """The same answer for a client that has exceeded a quota: all versions begin with the time."""
    del version
    head = answer.parts[0]
    assert isinstance(head, bytes)
    return RawAnswer([_HEAD_V4.pack(throttle_ms) + head[_HEAD_V4.size :], *answer.parts[1:]])


def _encode_flexible(
    results: Sequence[FetchedPartition], version: int, session_id: int, node_id: int, error_code: int
) -> RawAnswer:
    topics = _by_topic(results)
    parts: list[bytes | FileSlice] = []
    pending = [_HEAD_V7.pack(_NOT_THROTTLED, error_code, session_id), encode_unsigned_varint(len(topics) + 1)]
    for topic in topics:
        wanted = topic[0].wanted
        if version >= FIRST_WITH_TOPIC_IDS:
            assert wanted.topic_id is not None
            pending.append(wanted.topic_id)
        else:
            name = (wanted.topic or "").encode()
            pending += (encode_unsigned_varint(len(name) + 1), name)
        pending.append(encode_unsigned_varint(len(topic) + 1))
        for result in topic:
            pending.append(
                _PARTITION_V5.pack(
                    result.wanted.number,
                    result.error_code,
                    result.high_watermark,
                    result.last_stable_offset,
                    result.start_offset,
                )
            )
            aborted = result.aborted
            if aborted is None:
                pending.append(b"\0")
            else:
                pending.append(encode_unsigned_varint(len(aborted) + 1))
                pending += [_ABORTED_TAGGED.pack(one.producer_id, one.first_offset, 0) for one in aborted]
            pending += (_NO_READ_REPLICA, encode_unsigned_varint(result.size + 1))
            if result.file is not None:
                parts += (b"".join(pending), FileSlice(result.file, result.position, result.size))
                pending = []
            pending.append(_partition_tags(result, version, node_id))
        pending.append(_NO_TAGS)
    pending.append(_NO_TAGS)
    parts.append(b"".join(pending))
    return RawAnswer(parts)


def _partition_tags(result: FetchedPartition, version: int, node_id: int) -> bytes:
    if result.diverging is not None:
        end = result.diverging
        return b"\1" + _DIVERGING_TAG.pack(0, _EPOCH_END_BYTES, end.epoch, end.start_offset, 0)
    if result.leader_epoch != NO_EPOCH and version >= _FIRST_WITH_LEADER_HINTS:
        return b"\1" + _LEADER_TAG.pack(1, _LEADER_BYTES, node_id, result.leader_epoch, 0)
    return _NO_TAGS


def _encode_plain(results: Sequence[FetchedPartition], version: int, session_id: int, error_code: int) -> RawAnswer:
    topics = _by_topic(results)
    parts: list[bytes | FileSlice] = []
    if version >= _FIRST_WITH_SESSIONS:
        pending = [_HEAD_V7.pack(_NOT_THROTTLED, error_code, session_id)]
    else:
        pending = [_HEAD_V4.pack(_NOT_THROTTLED)]
    pending.append(_COUNT.pack(len(topics)))
    for topic in topics:
        name = (topic[0].wanted.topic or "").encode()
        pending += (_TEXT_LENGTH.pack(len(name)), name, _COUNT.pack(len(topic)))
        for result in topic:
            code = result.error_code
            if code == KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERROR:
                code = NOT_LEADER_OR_FOLLOWER
            number, stable = result.wanted.number, result.last_stable_offset
            if version >= _FIRST_WITH_START_OFFSET:
                pending.append(_PARTITION_V5.pack(number, code, result.high_watermark, stable, result.start_offset))
            else:
                pending.append(_PARTITION_V4.pack(number, code, result.high_watermark, stable))
            aborted = result.aborted
            if aborted is None:
                pending.append(_NULL_COUNT)
            else:
                pending.append(_COUNT.pack(len(aborted)))
                pending += [_ABORTED.pack(one.producer_id, one.first_offset) for one in aborted]
            if version >= _FIRST_WITH_READ_REPLICA:
                pending.append(_NO_READ_REPLICA)
            pending.append(_COUNT.pack(result.size))
            if result.file is not None:
                parts += (b"".join(pending), FileSlice(result.file, result.position, result.size))
                pending = []
    if pending:
        parts.append(b"".join(pending))
    return RawAnswer(parts)


def _by_topic(results: Sequence[FetchedPartition]) -> list[list[FetchedPartition]]:
    """Runs of results of the same topic."""
    topics: list[list[FetchedPartition]] = []
    last: object = None
    for result in results:
        wanted = result.wanted
        topic = wanted.topic if wanted.topic_id is None else wanted.topic_id
        if topics and topic == last:
            topics[-1].append(result)
        else:
            topics.append([result])
            last = topic
    return topics
