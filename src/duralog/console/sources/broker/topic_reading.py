"""Records of a broker's partitions as Arrow batches. A broker cannot be read backwards: stretches before are read."""

from __future__ import annotations

from typing import TypeVar

from duralog.console.facts.records import ShownRecord
from duralog.console.facts.topic_records import WantedRecords
from duralog.console.sources.broker.records import BrokerRecords
from duralog.console.sources.shown_batches import shown_record
from duralog.console.sources.topic_reader import FOUND, Extent, Offsets, Stretch, Visit
from duralog.filters.record_stream import record_batch
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record

_BATCH_RECORDS = 1_000
_BATCH_BYTES = 4 << 20
_RECORD_BYTES = 500
"""An estimate, for how many offsets to go back."""
_LEAST_OFFSETS = 200

T = TypeVar("T")


class BrokerTopicReader:
    def __init__(self, records: BrokerRecords) -> None:
        self._records = records

    def extent(self, wanted: WantedRecords, partition: int) -> Extent:
        start, end = self._records.edges(wanted.topic, partition)
        begin = max(start, wanted.from_offset or 0)
        if wanted.before_offset is not None:
            end = min(end, wanted.before_offset)
        if wanted.from_ms is not None:
            found = self._records.at_time(wanted.topic, partition, wanted.from_ms)
            begin = end if found is None else max(begin, found)
        return Extent(begin, end, None)

    def undecided(self, *_: object) -> None:
        """A broker tells no times without records."""

    def read(
        self, topic: str, partition: int, begin: int, end: int, *, backwards: bool, max_bytes: int, visit: Visit[T]
    ) -> tuple[Stretch, list[T]]:
        first = max(end - max(max_bytes // _RECORD_BYTES, _LEAST_OFFSETS), begin) if backwards else begin
        results: list[T] = []
        waiting: list[Record] = []
        waiting_bytes = read_bytes = count = 0
        earliest = latest = NO_TIMESTAMP

        def hand_over() -> None:
            records = tuple(waiting)
            by_offset = {record.offset: record for record in records}

            def show(offsets: Offsets) -> list[ShownRecord]:
                return [shown_record(by_offset[offset], FOUND) for offset in offsets.tolist()]

            results.append(visit(record_batch(records, topic=topic, partition=partition), show))
            waiting.clear()

        reached = end
        for record, size in self._records.reading(topic, partition, first, end):
            waiting.append(record)
            waiting_bytes, read_bytes, count = waiting_bytes + size, read_bytes + size, count + 1
            if record.timestamp_ms != NO_TIMESTAMP:
                earliest = record.timestamp_ms if earliest == NO_TIMESTAMP else min(earliest, record.timestamp_ms)
                latest = record.timestamp_ms
            if len(waiting) >= _BATCH_RECORDS or waiting_bytes >= _BATCH_BYTES:
                hand_over()
                waiting_bytes = 0
            if not backwards and read_bytes >= max_bytes:
                reached = record.offset + 1
                break
        if waiting:
            hand_over()
        return Stretch(first if backwards else reached, read_bytes, count, earliest if backwards else latest), results
