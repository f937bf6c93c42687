"""Produce requests and answers written by hand, against kio's readers and writers, in every version."""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

import pytest

from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, parse
from duralog.broker.produce.response import PartitionResponse, encode
from duralog.broker.wire import messages
from duralog.broker.wire.message_reading import MOST_ELEMENTS
from duralog.broker.wire.messages import InvalidMessage
from duralog.format.varint import encode_unsigned_varint

VERSIONS = range(3, 14)
_PRODUCE = 0
_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


def _key(name: str, version: int) -> bytes:
    return _ID.bytes if version >= FIRST_WITH_TOPIC_IDS else name.encode()


def _request(version: int, *, transactional_id: str | None, topics: list[tuple[str, dict[int, bytes | None]]]) -> bytes:
    fields = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [
            {
                "name": name,
                "topic_id": _ID,
                "partition_data": [{"index": index, "records": content} for index, content in partitions.items()],
            }
            for name, partitions in topics
        ],
    }
    return messages.encode_request(_PRODUCE, version, fields)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "tränsaction", "x" * 300])
def test_requests_are_read_as_kio_writes_them(version: int, transactional_id: str | None) -> None:
    sizes = (0, 1, 126, 127, 128, 16_383, 16_384, 70_000)
    partitions: dict[int, bytes | None] = {index: random.randbytes(size) for index, size in enumerate(sizes)}
    partitions[2**31 - 1] = None
    name = "t" * 249
    body = _request(version, transactional_id=transactional_id, topics=[(name, partitions)])
    read = parse(memoryview(body), version)
    assert read.transactional_id == transactional_id
    assert read.acks == -1
    assert list(read.topics) == [_key(name, version)]
    found = read.topics[_key(name, version)]
    assert {index: None if view is None else bytes(view) for index, view in found.items()} == partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_the_bytes_of_the_request_themselves(version: int) -> None:
    body = bytearray(_request(version, transactional_id=None, topics=[("t", {0: b"records"})]))
    records = parse(memoryview(body), version).topics[_key("t", version)][0]
    assert records is not None
    records[:] = b"RECORDS"
    assert b"RECORDS" in body


@pytest.mark.parametrize("version", VERSIONS)
def test_many_topics_and_none(version: int) -> None:
    if version < FIRST_WITH_TOPIC_IDS:
        topics: list[tuple[str, dict[int, bytes | None]]] = [(f"topic-{n}", {n: b"x" * n}) for n in range(200)]
        read = parse(memoryview(_request(version, transactional_id=None, topics=topics)), version)
        assert [key.decode() for key in read.topics] == [name for name, _ in topics]
    assert parse(memoryview(_request(version, transactional_id=None, topics=[])), version).topics == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_refused(version: int) -> None:
    body = _request(version, transactional_id="tx", topics=[("topic", {0: b"abc" * 50, 1: b"d"})])
    for end in range(len(body)):
        with pytest.raises(InvalidMessage):
            parse(memoryview(body[:end]), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_bytes_are_read_or_refused(version: int) -> None:
    """Nothing but `InvalidMessage` comes out of bytes that were changed."""
    body = _request(version, transactional_id="tx", topics=[("topic", {0: b"abc" * 5, 1: b"d"})])
    dice = random.Random(version)
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            parse(memoryview(changed), version)
        except InvalidMessage:
            continue


def test_unknown_tagged_fields_are_skipped() -> None:
    body = _request(9, transactional_id=None, topics=[("t", {0: b"r"})])
    # The last three bytes are the empty tag sections of the partition, the topic and the request.
    assert body.endswith(b"r\0\0\0")
    tagged = body[:-3] + b"\2\5\1x\x81\1\2yz" + b"\1\0\0" + b"\1\0\3abc"
    read = parse(memoryview(tagged), 9)
    assert bytes(read.topics[b"t"][0] or b"") == b"r"


@pytest.mark.parametrize("version", [8, 9])
def test_nulls_where_none_may_be(version: int) -> None:
    if version == 9:
        no_topics = b"\0" + b"\0\1\0\0\0\0" + b"\0\0"
        no_name = b"\0" + b"\0\1\0\0\0\0" + b"\2\0\1\0\0"
        no_partitions = b"\0" + b"\0\1\0\0\0\0" + b"\2\2t\0\0\0"
    else:
        no_topics = b"\xff\xff" + b"\0\1\0\0\0\0" + b"\xff\xff\xff\xff"
        no_name = b"\xff\xff" + b"\0\1\0\0\0\0" + b"\0\0\0\1\xff\xff\0\0\0\0"
        no_partitions = b"\xff\xff" + b"\0\1\0\0\0\0" + b"\0\0\0\1\0\1t\xff\xff\xff\xff"
    for body in (no_topics, no_name, no_partitions):
        with pytest.raises(InvalidMessage):
            parse(memoryview(body), version)


def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    fields = {
        "acks": 1,
        "timeout": 1,
        "topic_data": [
            {"name": "t", "partition_data": [{"index": 1, "records": b"a"}, {"index": 1, "records": b"b"}]},
            {"name": "t", "partition_data": [{"index": 2, "records": b"c"}, {"index": 1, "records": b"d"}]},
        ],
    }
    read = parse(memoryview(messages.encode_request(_PRODUCE, 9, fields)), 9)
    assert {index: bytes(view or b"") for index, view in read.topics[b"t"].items()} == {1: b"d", 2: b"c"}


def _read(body: bytes, version: int) -> Any:
    return messages.decode_response(_PRODUCE, version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_written_as_kio_reads_them(version: int) -> None:
    long_text = "ü" * 20_000
    errors = [(0, "first"), (2**31 - 1, long_text)]
    outcomes = {
        0: PartitionResponse(0, 2**63 - 1, 1_700_000_000_000, 17),
        5: PartitionResponse(87, -1, -1, 3, errors, "why"),
        6: PartitionResponse(-1, message=long_text),
        7: PartitionResponse(2),
    }
    topic = _key("topic", version)
    answer = _read(encode({topic: outcomes}, version), version)
    assert answer.throttle_time == 0
    (only,) = answer.responses
    assert (only.topic_id.bytes if version >= FIRST_WITH_TOPIC_IDS else only.name.encode()) == topic
    assert [one.index for one in only.partition_responses] == list(outcomes)
    for one, outcome in zip(only.partition_responses, outcomes.values(), strict=True):
        assert (one.error_code, one.base_offset) == (outcome.error_code, outcome.base_offset)
        assert one.log_append_time == outcome.log_append_time_ms
        if version >= 5:
            assert one.log_start_offset == outcome.log_start_offset
        if version >= 8:
            found = [(error.batch_index, error.batch_index_error_message) for error in one.record_errors]
            # Texts end where a length of two bytes ends, and not within a character.
            assert found == [(place, text[:16_383]) for place, text in outcome.record_errors]
            assert one.error_message == (None if outcome.message is None else outcome.message[:16_383])
        if version >= 10:
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_many_partitions_and_of_none(version: int) -> None:
    topic = _key("t" * 200, version)
    many = {index: PartitionResponse(0, index, -1, 0) for index in range(300)}
    (only,) = _read(encode({topic: many}, version), version).responses
    assert [one.base_offset for one in only.partition_responses] == list(range(300))
    assert _read(encode({}, version), version).responses == ()


@pytest.mark.parametrize("version", [8, 9])
def test_more_partitions_than_make_sense(version: int) -> None:
    flexible = version >= 9
    head = b"\0" if flexible else b"\xff\xff"
    head += struct.pack(">hi", 1, 1000) + (b"\2\2t" if flexible else struct.pack(">ih1s", 1, 1, b"t"))
    count = MOST_ELEMENTS
    head += encode_unsigned_varint(count + 1) if flexible else struct.pack(">i", count)
    with pytest.raises(InvalidMessage, match=f"{MOST_ELEMENTS} topics and partitions at most"):
        parse(memoryview(head + bytes(8 * count)), version)


def test_more_tagged_fields_than_make_sense() -> None:
    body = b"\0" + struct.pack(">hi", 1, 1000) + b"\1" + encode_unsigned_varint(1000) + b"\1\0" * 1000
    with pytest.raises(InvalidMessage, match="1000 tagged fields"):
        parse(memoryview(body), 9)
