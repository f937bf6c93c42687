"""The rule gives every index that Kafka wrote, byte for byte, and the decoders read them back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from duralog.errors import CorruptRecord, Fault
from duralog.format.filenames import parse_segment_file
from duralog.format.index_entries import (
    DEFAULT_INTERVAL_BYTES,
    OffsetIndexEntry,
    TimeIndexEntry,
    decode_offset_index,
    decode_time_index,
    decode_transaction_index,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
    index_entries,
)

INTERVAL_BYTES = {"store/txn-0": 1024}
"""The partitions whose topic has an `index.interval.bytes` of its own."""


def base_offset_of(path):
    file = parse_segment_file(path.name)
    assert file is not None
    return file.offset


def test_the_rule_gives_both_indexes(decode, golden, log_with_indexes):
    base_offset = base_offset_of(log_with_indexes)
    folder = log_with_indexes.parent.relative_to(golden).as_posix()
    batches = [
        SimpleNamespace(
            position=batch["position"],
            size_bytes=batch["size"],
            last_offset=batch["last_offset"],
            max_timestamp_ms=batch["max_timestamp"],
        )
        for batch in decode(log_with_indexes.read_bytes()).batches
    ]
    entries = list(index_entries(batches, interval_bytes=INTERVAL_BYTES.get(folder, DEFAULT_INTERVAL_BYTES)))
    offsets = [entry for entry in entries if isinstance(entry, OffsetIndexEntry)]
    times = [entry for entry in entries if isinstance(entry, TimeIndexEntry)]
    assert encode_offset_index(offsets, base_offset) == log_with_indexes.with_suffix(".index").read_bytes()
    assert encode_time_index(times, base_offset) == log_with_indexes.with_suffix(".timeindex").read_bytes()


def test_an_offset_index_is_encoded_to_the_same_bytes(offset_index):
    data, base_offset = offset_index.read_bytes(), base_offset_of(offset_index)
    entries = list(decode_offset_index(data, base_offset))
    assert len(entries) * 8 == len(data)
    assert encode_offset_index(entries, base_offset) == data


def test_a_time_index_is_encoded_to_the_same_bytes(time_index):
    data, base_offset = time_index.read_bytes(), base_offset_of(time_index)
    entries = list(decode_time_index(data, base_offset))
    assert len(entries) * 12 == len(data)
    assert encode_time_index(entries, base_offset) == data


def test_a_transaction_index_is_encoded_to_the_same_bytes(transaction_index):
    data, base_offset = transaction_index.read_bytes(), base_offset_of(transaction_index)
    entries = list(decode_transaction_index(data, base_offset))
    assert len(entries) * 34 == len(data) > 0
    assert encode_transaction_index(entries) == data


def test_aborted_transactions_end_at_their_markers(decode, golden):
    """Each entry names a producer whose abort marker stands at the entry's last offset."""
    log = golden / "store/txn-0/00000000000000000080.log"
    markers = {
        record["offset"]: (batch["producer_id"], record["key"])
        for batch in decode(log.read_bytes()).batches
        if batch["control"]
        for record in batch["records"]
    }
    aborted = list(decode_transaction_index(log.with_suffix(".txnindex").read_bytes(), 80))
    assert {entry.last_offset: (entry.producer_id, "00000000") for entry in aborted} == {
        offset: marker for offset, marker in markers.items() if marker[1] == "00000000"
    }
    assert all(entry.first_offset < entry.last_offset for entry in aborted)


def test_an_index_of_random_bytes_is_refused(golden):
    data = (golden / "recovery/before/codecs-4/00000000000000000000.index").read_bytes()
    assert len(data) == 801
    refused: list[CorruptRecord] = []
    list(decode_offset_index(data, 0, on_corrupt=refused.append))
    assert refused[-1].fault is Fault.TRAILING_BYTES
    assert refused[-1].position == 800
    with pytest.raises(CorruptRecord, match="an offset index rises"):
        list(decode_offset_index(data, 0))
