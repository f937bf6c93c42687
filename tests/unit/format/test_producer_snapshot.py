from __future__ import annotations

import pytest

from duralog.errors import CorruptRecord, Fault
from duralog.format.checksum import crc32c
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot

ENTRY = ProducerEntry(
    producer_id=7,
    producer_epoch=3,
    last_sequence=4,
    last_offset=8,
    offset_delta=2,
    timestamp_ms=1001,
    coordinator_epoch=9,
    transaction_first_offset=6,
)
# Written by Kafka 4.3.1's own class from the same values.
BY_KAFKA = bytes.fromhex(
    "0001023c770e00000001000000000000000700030000000400000000000000080000000200000000000003e9000000090000000000000006"
)
EMPTY = ProducerEntry(
    producer_id=2**63 - 1,
    producer_epoch=-1,
    last_sequence=-1,
    last_offset=-1,
    offset_delta=0,
    timestamp_ms=-1,
    coordinator_epoch=-1,
    transaction_first_offset=-1,
)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_snapshot_of_kafka_is_decoded(kind):
    assert decode_producer_snapshot(kind(BY_KAFKA)) == (ENTRY,)


def test_a_snapshot_is_encoded_as_kafka_does():
    assert encode_producer_snapshot([ENTRY]) == BY_KAFKA


@pytest.mark.parametrize("entries", [(), (EMPTY,), (ENTRY, EMPTY, ENTRY)])
def test_what_was_encoded_is_decoded(entries):
    assert decode_producer_snapshot(encode_producer_snapshot(entries)) == entries


def with_right_crc(data):
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


@pytest.mark.parametrize(
    ("data", "fault", "position"),
    [
        (b"", Fault.FIELD_LENGTH, 0),
        (BY_KAFKA[:9], Fault.FIELD_LENGTH, 0),
        (b"\0\2" + BY_KAFKA[2:], Fault.FIELD_VALUE, 0),
        (BY_KAFKA[:-1], Fault.CRC_MISMATCH, 2),
        (BY_KAFKA + b"\0", Fault.CRC_MISMATCH, 2),
        (BY_KAFKA[:-1] + b"\7", Fault.CRC_MISMATCH, 2),
        (BY_KAFKA[:2] + b"\0" + BY_KAFKA[3:], Fault.CRC_MISMATCH, 2),
        (with_right_crc(BY_KAFKA[:6] + b"\0\0\0\2" + BY_KAFKA[10:]), Fault.RECORD_COUNT, 6),
        (with_right_crc(BY_KAFKA[:6] + b"\xff\xff\xff\xff" + BY_KAFKA[10:]), Fault.RECORD_COUNT, 6),
        (with_right_crc(BY_KAFKA[:6] + b"\x7f\xff\xff\xff" + BY_KAFKA[10:]), Fault.RECORD_COUNT, 6),
        (with_right_crc(BY_KAFKA[:-1]), Fault.RECORD_COUNT, 6),
        (with_right_crc(BY_KAFKA + b"\0"), Fault.RECORD_COUNT, 6),
    ],
)
def test_damage_is_refused(data, fault, position):
    with pytest.raises(CorruptRecord) as caught:
        decode_producer_snapshot(data)
    assert (caught.value.fault, caught.value.position) == (fault, position)


def test_every_flipped_bit_is_noticed():
    for bit in range(len(BY_KAFKA) * 8):
        flipped = bytearray(BY_KAFKA)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            decode_producer_snapshot(flipped)


@pytest.mark.parametrize(
    ("last_sequence", "offset_delta", "first_sequence"), [(4, 2, 2), (4, 4, 0), (1, 2, 2**31 - 1), (0, 5, 2**31 - 5)]
)
def test_the_first_sequence_wraps(last_sequence, offset_delta, first_sequence):
    entry = ProducerEntry(
        producer_id=7,
        producer_epoch=3,
        last_sequence=last_sequence,
        last_offset=100,
        offset_delta=offset_delta,
        timestamp_ms=1001,
        coordinator_epoch=-1,
        transaction_first_offset=-1,
    )
    assert entry.first_sequence == first_sequence


def test_a_producer_without_a_batch_has_no_first_sequence():
    assert EMPTY.first_sequence == -1
