"""Messages of the protocol: every API and version that is served, with kio's own reader as the judge of ours."""

from __future__ import annotations

import random
import struct
import tracemalloc
import uuid
from contextlib import suppress
from typing import Any, cast

import pytest
from kio.serial import entity_reader

from duralog.broker.handlers import load_apis
from duralog.broker.wire import messages
from duralog.broker.wire.message_reading import MOST_ELEMENTS
from duralog.broker.wire.message_twins import Field, Twin, request_twin, response_twin
from duralog.broker.wire.messages import InvalidMessage
from duralog.format.varint import encode_unsigned_varint

APIS = load_apis()
VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)]
HEARTBEAT, METADATA, API_VERSIONS, JOIN_GROUP, FETCH, OFFSET_FETCH = 12, 3, 18, 11, 1, 9

_NUMBERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def some_fields(twin: Twin, rng: random.Random) -> dict[str, Any]:
    """Values for all fields of a class, as a handler would give them."""
    return {field.name: some_value(field, rng) for field in twin.fields.values()}


def some_value(field: Field, rng: random.Random) -> Any:
    def one() -> Any:
        if field.nested is not None:
            return some_fields(field.nested, rng)
        if field.kind in _NUMBERS:
            low, high = _NUMBERS[field.kind]
            return rng.choice([low, -1 if low else 0, 0, 1, high])
        if field.kind == "uuid":
            return uuid.UUID(bytes=rng.randbytes(16))
        if field.kind == "bool":
            return rng.random() < 0.5
        if field.kind == "float64":
            return rng.choice([0.0, -1.5, 1e300])
        if field.kind == "string":
            return rng.choice(["", "a", "topic", "\u00e9\U0001f600", "x" * 200])
        return rng.randbytes(rng.choice([0, 1, 200]))

    return [one() for _ in range(rng.choice([0, 1, 3]))] if field.is_array else one()


def ids(case: tuple[int, int]) -> str:
    return f"{APIS[case[0]].name}-v{case[1]}"


@pytest.mark.parametrize("case", VERSIONS, ids=ids)
class TestEveryApiAndVersion:
    def test_defaults_round_trip(self, case: tuple[int, int]) -> None:
        for encode, decode, twin in (
            (messages.encode_request, messages.decode_request, request_twin(*case)),
            (messages.encode_response, messages.decode_response, response_twin(*case)),
        ):
            body = encode(*case, {})
            assert decode(*case, body) == twin.make()
            assert entity_reader(cast(Any, twin.make))(body, 0) == (twin.make(), len(body))

    def test_values_round_trip_and_kio_reads_the_same(self, case: tuple[int, int]) -> None:
        rng = random.Random(repr(case))
        for encode, decode, twin in (
            (messages.encode_request, messages.decode_request, request_twin(*case)),
            (messages.encode_response, messages.decode_response, response_twin(*case)),
        ):
            read_by_kio = entity_reader(cast(Any, twin.make))
            for _ in range(3):
                fields = some_fields(twin, rng)
                body = encode(*case, fields)
                value = decode(*case, memoryview(body))
                assert (value, len(body)) == read_by_kio(body, 0)
                assert decode(*case, body + b"trailing") == value

    def test_cut_anywhere_it_is_refused(self, case: tuple[int, int]) -> None:
        rng = random.Random(repr(case))
        body = messages.encode_request(*case, some_fields(request_twin(*case), rng))
        for size in {rng.randrange(len(body)) for _ in range(30)} if body else ():
            with pytest.raises(InvalidMessage):
                messages.decode_request(*case, body[:size])

    def test_changed_bytes_are_read_or_refused(self, case: tuple[int, int]) -> None:
        rng = random.Random(repr(case))
        for _ in range(3):
            body = messages.encode_request(*case, some_fields(request_twin(*case), rng))
            for _ in range(40):
                changed = bytearray(body or b"\0")
                for _ in range(rng.randrange(1, 4)):
                    changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
                # Any other exception fails the test.
                with suppress(InvalidMessage):
                    messages.decode_request(*case, bytes(changed))


class TestAnswers:
    def test_fields_that_a_version_lacks_are_dropped(self) -> None:
        fields = {
            "throttle_time_ms": 5,
            "cluster_id": "c",
            "topics": [{"name": "t", "topic_id": uuid.UUID(int=7), "partitions": [{"leader_epoch": 3}]}],
        }
        oldest = messages.decode_response(METADATA, 0, messages.encode_response(METADATA, 0, fields))
        assert not hasattr(oldest, "cluster_id")
        assert not hasattr(oldest.topics[0], "topic_id")
        newest = messages.decode_response(METADATA, 13, messages.encode_response(METADATA, 13, fields))
        assert newest.throttle_time == 5
        assert newest.topics[0].topic_id == uuid.UUID(int=7)
        assert newest.topics[0].partitions[0].leader_epoch == 3

    def test_missing_fields_take_the_defaults_of_the_schema(self) -> None:
        body = messages.encode_response(METADATA, 13, {"topics": [{"partitions": [{}]}]})
        value = messages.decode_response(METADATA, 13, body)
        assert (value.controller_id, value.cluster_id, value.error_code) == (-1, None, 0)
        assert value.topics[0].topic_authorized_operations == -(2**31)
        assert value.topics[0].partitions[0].leader_epoch == -1

    @pytest.mark.parametrize("fields", [{"eror_code": 1}, {"topics": [{"nam": "x"}]}])
    def test_a_name_that_no_version_has_is_a_mistake(self, fields: dict[str, Any]) -> None:
        with pytest.raises(KeyError, match="no version of MetadataResponse"):
            messages.encode_response(METADATA, 9, fields)

    def test_ids_may_be_given_as_kafka_writes_them(self) -> None:
        fields = {"topics": [{"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, {"name": "u", "topic_id": None}]}
        value = messages.decode_response(METADATA, 12, messages.encode_response(METADATA, 12, fields))
        assert [topic.topic_id for topic in value.topics] == [uuid.UUID(int=1), None]

    def test_unknown_error_codes_are_numbers(self) -> None:
        body = messages.encode_response(HEARTBEAT, 4, {"error_code": 12345, "throttle_time": -1})
        value = messages.decode_response(HEARTBEAT, 4, body)
        assert (value.error_code, value.throttle_time) == (12345, -1)

    def test_optional_is_for_fields_of_newer_versions(self) -> None:
        old = messages.decode_request(JOIN_GROUP, 0, messages.encode_request(JOIN_GROUP, 0, {"session_timeout_ms": 9}))
        assert old.session_timeout == 9
        assert messages.optional(old, "group_instance_id") is None
        assert messages.optional(old, "rebalance_timeout", old.session_timeout) == 9


class TestHostileBytes:
    @pytest.mark.parametrize(
        ("api_key", "version", "body"),
        [
            (METADATA, 1, b"\x7f\xff\xff\xff"),
            (METADATA, 9, b"\xff\xff\xff\xff\x07"),
            (METADATA, 9, b"\xff\xff\xff\xff\xff\0"),
            (FETCH, 12, b"\0" * 25 + b"\xff\xff\xff\xff\x07"),
        ],
    )
    def test_a_count_alone_takes_no_memory(self, api_key: int, version: int, body: bytes) -> None:
        with pytest.raises(InvalidMessage):
            messages.decode_request(api_key, version, body)
        tracemalloc.start()
        try:
            with pytest.raises(InvalidMessage):
                messages.decode_request(api_key, version, body + b"\0" * 1000)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()

    def test_more_elements_than_make_sense(self) -> None:
        count = MOST_ELEMENTS + 1
        body = count.to_bytes(4, "big") + b"\0\0" * count
        with pytest.raises(InvalidMessage, match=f"array of {count} elements"):
            messages.decode_request(METADATA, 1, body)

    def test_more_elements_than_make_sense_in_many_arrays(self) -> None:
        most_partitions = (struct.pack(">h1si", 1, b"t", 1000) + bytes(4 * 1000)) * (MOST_ELEMENTS // 1000)
        body = struct.pack(">h1si", 1, b"g", MOST_ELEMENTS // 1000) + most_partitions
        with pytest.raises(InvalidMessage, match=f"array of 1000 elements .* {MOST_ELEMENTS} at most"):
            messages.decode_request(OFFSET_FETCH, 1, body)

    def test_more_tagged_fields_than_make_sense(self) -> None:
        count = MOST_ELEMENTS + 1
        body = b"\1\0\0\0" + encode_unsigned_varint(count) + b"\1\0" * count
        with pytest.raises(InvalidMessage, match=f"{count} tagged fields"):
            messages.decode_request(METADATA, 9, body)

    def test_a_body_larger_than_makes_sense(self) -> None:
        with pytest.raises(InvalidMessage, match="more than a request of API 3"):
            messages.decode_request(METADATA, 1, bytes(messages.LARGEST_REQUEST_BYTES + 1))

    @pytest.mark.parametrize(("api_key", "version", "body"), [(METADATA, 9, b""), (HEARTBEAT, 0, b"\0\1g\0\0")])
    def test_a_body_that_is_cut(self, api_key: int, version: int, body: bytes) -> None:
        with pytest.raises(InvalidMessage, match=f"it ends after {len(body)} bytes, before all its fields"):
            messages.decode_request(api_key, version, memoryview(body))

    def test_null_where_there_must_be_something(self) -> None:
        with pytest.raises(InvalidMessage, match="not a HeartbeatRequest: string of -1 bytes"):
            messages.decode_request(HEARTBEAT, 0, b"\xff\xff\0\0\0\0\0\0")
        with pytest.raises(InvalidMessage, match="array of -1 elements"):
            messages.decode_request(METADATA, 0, b"\xff\xff\xff\xff")
        with pytest.raises(InvalidMessage, match="array of -2 elements"):
            messages.decode_request(METADATA, 0, b"\xff\xff\xff\xfe")

    @pytest.mark.parametrize(
        ("version", "body"),
        [
            (1, b"\xff\xff\xff\xff"),
            (1, b"\xff\xff\xff\xfe"),
            (1, b"\x80\0\0\0"),
            (9, b"\0\0\0\0\0"),
            (9, b"\xff\xff\xff\xff\x0f\0\0\0\0"),
        ],
    )
    def test_every_negative_length_is_null(self, version: int, body: bytes) -> None:
        assert messages.decode_request(METADATA, version, body).topics is None

    def test_a_text_that_is_not_utf_8_is_read_as_kafka_reads_it(self) -> None:
        value = messages.decode_request(HEARTBEAT, 0, b"\0\2\xff\xfe\0\0\0\1\0\1x")
        assert (value.group_id, value.generation_id, value.member_id) == ("\ufffd\ufffd", 1, "x")

    @pytest.mark.parametrize("version", [0, 9])
    def test_a_text_has_a_limit_in_every_version(self, version: int) -> None:
        longest = "x" * 32767
        body = messages.encode_request(JOIN_GROUP, version, {"group_id": longest})
        assert messages.decode_request(JOIN_GROUP, version, body).group_id == longest
        if version == 9:
            body = messages.encode_request(JOIN_GROUP, version, {"group_id": longest + "x"})
            with pytest.raises(InvalidMessage, match="string of 32768 bytes"):
                messages.decode_request(JOIN_GROUP, version, body)

    def test_tagged_fields_of_a_newer_client_are_skipped(self) -> None:
        software = {"client_software_name": "a", "client_software_version": "b"}
        body = messages.encode_request(API_VERSIONS, 3, software)
        assert body.endswith(b"\0")
        value = messages.decode_request(API_VERSIONS, 3, body[:-1] + b"\x01\x63\x03abc")
        assert value == messages.decode_request(API_VERSIONS, 3, body)

    def test_a_tagged_field_that_does_not_end_where_it_says(self) -> None:
        body = messages.encode_request(FETCH, 15, {"cluster_id": "abc"})
        tagged = body.index(b"\x01\0\x04\x04abc")
        assert messages.decode_request(FETCH, 15, body).cluster_id == "abc"
        wrong = body[: tagged + 2] + b"\x05" + body[tagged + 3 :] + b"\0"
        with pytest.raises(InvalidMessage, match="tagged field 0 says it has 5 bytes, and has 4"):
            messages.decode_request(FETCH, 15, wrong)
