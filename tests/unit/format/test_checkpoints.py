from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)

OFFSETS = [PartitionOffset("plain", 0, 6001), PartitionOffset("a-b", 12, 2**63 - 1)]
OFFSETS_TEXT = b"0\n2\nplain 0 6001\na-b 12 9223372036854775807\n"
EPOCHS = [EpochStart(0, 0), EpochStart(7, 3456)]
EPOCHS_TEXT = b"0\n2\n0 0\n7 3456\n"


def test_the_text_is_that_of_kafka():
    assert encode_offset_checkpoint(OFFSETS) == OFFSETS_TEXT
    assert encode_leader_epoch_checkpoint(EPOCHS) == EPOCHS_TEXT
    assert encode_offset_checkpoint([]) == b"0\n0\n"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_text_is_decoded(kind):
    assert decode_offset_checkpoint(kind(OFFSETS_TEXT)) == OFFSETS
    assert decode_leader_epoch_checkpoint(kind(EPOCHS_TEXT)) == EPOCHS


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n"])
def test_files_without_entries(data):
    assert decode_offset_checkpoint(data) == []
    assert decode_leader_epoch_checkpoint(data) == []


@pytest.mark.parametrize(
    "data",
    [
        b"0\n1\nplain 0 5",
        b"0\r\n1\r\nplain 0 5\r\n",
        b"0\r1\rplain 0 5\r",
        b"0\n1\nplain \t 0\x0b\x0c5 \t\n",
        b"+0\n1\nplain +0 005\n",
    ],
)
def test_what_kafka_accepts_is_accepted(data):
    assert decode_offset_checkpoint(data) == [PartitionOffset("plain", 0, 5)]


@pytest.mark.parametrize(
    ("data", "line", "position", "expected", "found"),
    [
        (b"1\n0\n", 1, 0, "version 0", "'1'"),
        (b"\n0\n", 1, 0, "version, a number of 32 bits", "''"),
        (b" 0\n0\n", 1, 0, "version, a number of 32 bits", "' 0'"),
        (b"0\nx\n", 2, 2, "number of entries, a number of 32 bits", "'x'"),
        (b"0\n2147483648\n", 2, 2, "number of entries, a number of 32 bits", "'2147483648'"),
        (b"0\n2\nplain 0 5\n", 2, 2, "2", "1"),
        (b"0\n0\nplain 0 5\n", 2, 2, "0", "1"),
        (b"0\n-1\n", 2, 2, "-1", "0"),
        (b"0\n1\n\n", 3, 4, "topic partition offset", "''"),
        (b"0\n1\nplain 0\n", 3, 4, "topic partition offset", "'plain 0'"),
        (b"0\n1\nplain 0 5 6\n", 3, 4, "topic partition offset", "'plain 0 5 6'"),
        (b"0\n1\n plain 0 5\n", 3, 4, "topic partition offset", "' plain 0 5'"),
        (b"0\n2\nplain 0 5\nplain x 5\n", 4, 14, "partition, a number of 32 bits", "'plain x 5'"),
        (b"0\r\n1\r\nplain 0 5_0\n", 3, 6, "offset, a number of 64 bits", "'plain 0 5_0'"),
        (b"0\n1\nplain 0 9223372036854775808\n", 3, 4, "offset, a number of 64 bits", "'plain 0 9223372036854775808'"),
        (b"0\n1\nplain 0 \xd9\xa3\n", 3, 4, "offset, a number of 64 bits", "'plain 0 ٣'"),
        ("0\n2\né 0 5\né 0\n".encode(), 4, 11, "topic partition offset", "'é 0'"),
    ],
)
def test_damage_is_refused_with_its_line(data, line, position, expected, found):
    with pytest.raises(CorruptRecord) as caught:
        decode_offset_checkpoint(data)
    error = caught.value
    assert f"line {line} of a checkpoint" in str(error)
    assert (error.position, str(error.expected), str(error.found)) == (position, expected, found)


def test_leader_epochs_have_two_fields():
    with pytest.raises(CorruptRecord, match="expected epoch start_offset, found '0 0 0'"):
        decode_leader_epoch_checkpoint(b"0\n1\n0 0 0\n")


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(CorruptRecord, match="position 4: a checkpoint is not text"):
        decode_offset_checkpoint(b"0\n1\n\xff 0 5\n")


@given(st.lists(st.sampled_from([b"0", b"1", b"2", b"\n", b"\r", b" ", b"\t", b"t", b"-", b"+", b"\xff", b"\xc3\xa9"])))
def test_random_text_is_decoded_or_refused(pieces):
    data = b"".join(pieces)
    pairs: tuple[tuple[Any, Any], ...] = (
        (decode_offset_checkpoint, encode_offset_checkpoint),
        (decode_leader_epoch_checkpoint, encode_leader_epoch_checkpoint),
    )
    for decode, encode in pairs:
        with contextlib.suppress(CorruptRecord):
            entries = decode(data)
            assert decode(encode(entries)) == entries
