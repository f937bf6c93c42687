"""Every decoder gives of each golden log what Kafka's own reader saw in it, and encoding gives its bytes again."""

from __future__ import annotations

import pytest

from duralog.errors import Fault
from duralog.format import batches, message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.record import TimestampType


def test_a_log_holds_what_kafka_saw(decode, log_with_truth, truth):
    data = log_with_truth.read_bytes()
    decoded = decode(data)
    assert decoded.fault is None
    assert len(decoded.batches) == len(truth)
    for found, expected in zip(decoded.batches, truth, strict=True):
        assert found == expected
    assert sum(batch["size"] for batch in decoded.batches) == len(data)


def test_uncompressed_batches_are_encoded_to_the_same_bytes(log_with_truth):
    data = log_with_truth.read_bytes()
    for batch in batches.scan(data):
        if batch.codec_id != Codec.NONE:
            continue
        records = batches.decode_records(data, batch)
        if batch.magic == 2:
            encoded = encode_v2_again(batch, records)
        else:
            encoded = encode_message_again(batch, records)
        assert encoded == data[batch.position : batch.position + batch.size_bytes]


def append_time_of(batch):
    return batch.max_timestamp_ms if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None


def encode_message_again(batch, records):
    return message_set.encode(
        records,
        magic=batch.magic,
        base_offset=batch.base_offset,
        timestamp_type=batch.timestamp_type,
        append_time_ms=append_time_of(batch),
    )


def encode_v2_again(batch, records):
    return record_batch.encode(
        records,
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        timestamp_type=batch.timestamp_type,
        append_time_ms=append_time_of(batch),
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        last_offset=batch.last_offset,
        max_timestamp_ms=batch.max_timestamp_ms,
    )


@pytest.mark.parametrize(
    ("damaged", "batch_count", "crc_bad", "fault", "tail_bytes"),
    [
        ("appendtime-0/00000000000000000000.log", 4, [], None, 0),
        ("appendtime-0/00000000000000000000.log.cleaned", 0, [], None, 500),
        ("appendtime-0/00000000000000000000.log.deleted", 0, [], None, 1),
        ("codecs-0/00000000000000000000.log", 2, [], None, 28204),
        ("codecs-1/00000000000000000000.log", 3, [45199], None, 0),
        ("codecs-2/00000000000000000000.log", 3, [], (Fault.BATCH_LENGTH, 157083), None),
        # Kafka's own file reader takes an unknown version for v2 and keeps the batch; its clients refuse it.
        ("codecs-librdkafka-0/00000000000000000000.log", 1, [], (Fault.UNKNOWN_MAGIC, 65067), None),
        ("codecs-librdkafka-1/00000000000000000000.log", 1, [], (Fault.BATCH_LENGTH, 43543), None),
        ("codecs-librdkafka-2/00000000000000000000.log", 1, [], None, 101413),
        ("codecs-librdkafka-3/00000000000000000000.log", 3, [], None, 0),
        ("codecs-librdkafka-4/00000000000000000000.log", 3, [], None, 0),
        ("recompress-0/00000000000000000000.log.swap", 4, [], None, 0),
    ],
)
def test_a_damaged_log_is_scanned_up_to_the_damage(scan, golden, damaged, batch_count, crc_bad, fault, tail_bytes):
    scanned = scan((golden / "recovery/before" / damaged).read_bytes())
    assert len(scanned.positions) == batch_count
    assert scanned.crc_bad == crc_bad
    assert scanned.fault == fault
    if fault is None:
        assert scanned.tail_bytes == tail_bytes


def test_a_leader_epoch_and_a_base_offset_are_outside_the_checksum(decode, golden):
    changed_epoch = decode((golden / "recovery/before/codecs-librdkafka-3/00000000000000000000.log").read_bytes())
    assert [batch["partition_leader_epoch"] for batch in changed_epoch.batches] == [0, 7, 0]
    changed_offset = decode((golden / "recovery/before/codecs-librdkafka-4/00000000000000000000.log").read_bytes())
    assert changed_offset.batches[-1]["base_offset"] == 3
    assert changed_offset.batches[-1]["records"][0]["offset"] == 3
    assert all(batch["valid"] for batch in changed_epoch.batches + changed_offset.batches)
