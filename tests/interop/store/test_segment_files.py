"""Index files, transaction indexes and producer snapshots by duralog, checked by Kafka's dump tool."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from duralog.format import batches, message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.index_entries import (
    AbortedTransaction,
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    encode_transaction_index,
    index_entries,
)
from duralog.format.producer_snapshot import ProducerEntry, encode_producer_snapshot
from duralog.format.record import Record
from oracle.kafka_process import KafkaProcess
from oracle.random_records import random_records

pytestmark = pytest.mark.interop

BASE_OFFSET = 5_000_000_000
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in (Codec.NONE, Codec.LZ4)]


class Segment:
    """A log of some seventy batches and its two sparse indexes, as the rule makes them."""

    def __init__(self, folder: Path, magic: int, codec: Codec) -> None:
        stem = f"{BASE_OFFSET:020d}"
        self.log = folder / f"{stem}.log"
        self.index = folder / f"{stem}.index"
        self.time_index = folder / f"{stem}.timeindex"
        data = b"".join(self._batches(magic, codec))
        self.log.write_bytes(data)
        entries = list(index_entries(batches.scan(data)))
        self.offset_entries = [entry for entry in entries if isinstance(entry, OffsetIndexEntry)]
        self.time_entries = [entry for entry in entries if isinstance(entry, TimeIndexEntry)]
        self.write_indexes(self.offset_entries, self.time_entries)

    def write_indexes(self, offsets: Sequence[OffsetIndexEntry], times: Sequence[TimeIndexEntry]) -> None:
        self.index.write_bytes(encode_offset_index(offsets, BASE_OFFSET))
        self.time_index.write_bytes(encode_time_index(times, BASE_OFFSET))

    @staticmethod
    def _batches(magic: int, codec: Codec) -> list[bytes]:
        """Timestamps rise in the large and jump in the small; offsets have gaps."""
        rng = random.Random(f"{magic} {codec}")
        encoded = []
        offset = BASE_OFFSET
        for number in range(70):
            records: list[Record] = [
                replace(record, timestamp_ms=1_700_000_000_000 + number * 40 + rng.randrange(-200, 200))
                for record in random_records(rng, rng.randrange(1, 9), base_offset=offset, headers=magic == 2)
            ]
            if magic == 2:
                encoded.append(record_batch.encode(records, base_offset=offset, codec=codec))
            else:
                encoded.append(message_set.encode(records, magic=magic, base_offset=offset, codec=codec))
            offset = records[-1].offset + rng.choice((1, 1, 500))
        return encoded

    def checked_by(self, kafka: KafkaProcess, *options: str) -> tuple[str, str]:
        return kafka.dump(*options, "--files", f"{self.index},{self.time_index}")


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_the_rule_makes_indexes_that_fit_the_log(kafka: KafkaProcess, tmp_path: Path, magic: int, codec: Codec) -> None:
    segment = Segment(tmp_path, magic, codec)
    assert len(segment.offset_entries) > 10
    # v0 has no timestamps, so nothing for a time index.
    assert len(segment.time_entries) > 10 if magic > 0 else not segment.time_entries

    stdout, complaints = segment.checked_by(kafka)
    assert complaints == ""
    positions = re.findall(r"^offset: (\d+) position: (\d+)$", stdout, re.MULTILINE)
    assert [tuple(map(int, pair)) for pair in positions] == [(e.offset, e.position) for e in segment.offset_entries]
    times = re.findall(r"^timestamp: (\d+) offset: (\d+)$", stdout, re.MULTILINE)
    expected = [(entry.timestamp_ms, entry.offset) for entry in segment.time_entries]
    # Of an empty time index the tool prints one line all the same.
    assert [tuple(map(int, pair)) for pair in times] == expected or magic == 0

    stdout, complaints = segment.checked_by(kafka, "--index-sanity-check")
    assert complaints == ""
    assert stdout.count("passed sanity check") == 2


def test_a_wrong_index_is_seen(kafka: KafkaProcess, tmp_path: Path) -> None:
    """Guards the test above: the tool does complain of an entry that is off by one."""
    segment = Segment(tmp_path, 2, Codec.NONE)
    offsets, times = list(segment.offset_entries), list(segment.time_entries)
    offsets[3] = replace(offsets[3], offset=offsets[3].offset - 1)
    segment.write_indexes(offsets, times)
    _, complaints = segment.checked_by(kafka, "--verify-index-only")
    assert f"Index offset: {offsets[3].offset}, log offset: {offsets[3].offset + 1}" in complaints

    times[3] = replace(times[3], timestamp_ms=times[3].timestamp_ms + 1)
    segment.write_indexes(segment.offset_entries, times)
    _, complaints = segment.checked_by(kafka, "--verify-index-only")
    assert f"Index timestamp: {times[3].timestamp_ms}, log timestamp: {times[3].timestamp_ms - 1}" in complaints


def test_transaction_index(kafka: KafkaProcess, tmp_path: Path) -> None:
    transactions = [
        AbortedTransaction(producer_id=2**40, first_offset=2, last_offset=9, last_stable_offset=2),
        AbortedTransaction(producer_id=7, first_offset=5, last_offset=2**40, last_stable_offset=11),
    ]
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(encode_transaction_index(transactions))
    stdout, complaints = kafka.dump("--files", str(path))
    assert complaints == ""
    assert stdout.splitlines()[1:] == [
        f"version: 0 producerId: {one.producer_id} firstOffset: {one.first_offset} lastOffset: {one.last_offset}"
        f" lastStableOffset: {one.last_stable_offset}"
        for one in transactions
    ]


def test_producer_snapshot(kafka: KafkaProcess, tmp_path: Path) -> None:
    producer = ProducerEntry(
        producer_id=2**40,
        producer_epoch=3,
        last_sequence=4,
        last_offset=2**34,
        offset_delta=2,
        timestamp_ms=1001,
        coordinator_epoch=9,
        transaction_first_offset=6,
    )
    marker_only = replace(
        producer, producer_id=8, last_sequence=-1, last_offset=-1, offset_delta=0, transaction_first_offset=-1
    )
    path = tmp_path / "00000000017179869185.snapshot"
    path.write_bytes(encode_producer_snapshot([producer, marker_only]))
    stdout, complaints = kafka.dump("--files", str(path))
    assert complaints == ""
    lines = {int(number): line for number, line in re.findall(r"^producerId: (\d+) (.*)$", stdout, re.MULTILINE)}
    assert lines.keys() == {2**40, 8}
    first = lines[2**40]
    assert "producerEpoch: 3 coordinatorEpoch: 9" in first
    assert "lastTimestamp: 1001" in first
    assert re.search(r"currentTxnFirstOffset: \D*6\b", first)
    assert f"firstSequence: 2 lastSequence: 4 lastOffset: {2**34} offsetDelta: 2 timestamp: 1001" in first
    assert "lastOffset" not in lines[8]
