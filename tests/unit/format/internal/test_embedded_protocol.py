"""Subscriptions and assignments of Kafka's consumers: every version, newer ones, and bytes that are neither."""

from __future__ import annotations

import pytest

from duralog.errors import CorruptRecord
from duralog.format.internal.embedded_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    decode_embedded,
    embedded_version,
    encode_embedded,
)

FIELDS = {
    "topics": ["a", "b"],
    "user_data": b"x",
    "owned_partitions": [{"topic": "a", "partitions": [0, 2]}],
    "generation_id": 7,
    "rack_id": None,
}
LAST_OF = {0: "user_data", 1: "owned_partitions", 2: "generation_id", 3: "rack_id"}


@pytest.mark.parametrize("version", range(4))
def test_every_version_comes_back(version: int) -> None:
    names = list(FIELDS)
    fields = {name: FIELDS[name] for name in names[: names.index(LAST_OF[version]) + 1]}
    data = encode_embedded(SUBSCRIPTION, version, fields)
    decoded = decode_embedded(SUBSCRIPTION, data)
    assert {name: decoded[name] for name in fields} == fields
    assert embedded_version(data) == version


def test_the_bytes_of_version_0() -> None:
    data = bytes.fromhex("0000 00000001 0001 74 ffffffff")
    assert encode_embedded(SUBSCRIPTION, 0, {"topics": ["t"], "user_data": None}) == data
    parts = {"assigned_partitions": [{"topic": "t", "partitions": [1]}], "user_data": None}
    assert encode_embedded(ASSIGNMENT, 0, parts) == bytes.fromhex("0000 00000001 0001 74 00000001 00000001 ffffffff")


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    data = encode_embedded(SUBSCRIPTION, 3, FIELDS)
    newer = b"\x00\x09" + data[2:] + b"and more"
    assert decode_embedded(SUBSCRIPTION, newer) == decode_embedded(SUBSCRIPTION, data)
    assert encode_embedded(SUBSCRIPTION, 9, FIELDS) == data


def test_bytes_that_are_cut_off_anywhere_are_refused() -> None:
    data = encode_embedded(SUBSCRIPTION, 3, FIELDS)
    for size in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode_embedded(SUBSCRIPTION, data[:size])


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\x80\0\0\0\0\0"])
def test_bytes_without_a_version_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match="no version"):
        embedded_version(data)
