"""Records of a broker's partition, read by consumers that belong to no group and commit nothing.

A broker cannot be read backwards. So a page that goes back reads a range of offsets before the page, and a longer one
before that if compaction has left too few records in it. The work for one page is bounded in records and in time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from duralog.client.connection import client_settings, error_text, errors_of, kafka_client
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.console.facts.records import RecordPage, ShownRecord
from duralog.console.source import MOST_PAGE_RECORDS
from duralog.console.sources.shown_batches import Cut, shown_record
from duralog.errors import DuralogError, UnknownTopic
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record, TimestampType

_ANSWER_SECONDS = 5.0
_WAIT_SECONDS = 0.1
_MOST_READ_RECORDS = 50_000
_MOST_IDLE_CONSUMERS = 2
_MESSAGES_AT_ONCE = 500
_GROWTH = 4
_TYPES = {1: TimestampType.CREATE_TIME, 2: TimestampType.LOG_APPEND_TIME}
_WHOLE = Cut(8 << 20, 100_000)


class Edges(NamedTuple):
    start_offset: int
    end_offset: int


class BrokerRecords:
    """Any thread may ask."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = kafka_client()
        self._lock = threading.Lock()
        self._idle: dict[bool, list[Any]] = {True: [], False: []}
        """Idle consumers, by whether they read committed records only."""
        self._is_closed = False

    def page(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None,
        time_ms: int | None,
        limit: int,
        backwards: bool,
        committed_only: bool,
    ) -> RecordPage:
        limit = min(max(limit, 1), MOST_PAGE_RECORDS)
        with self._consumer(committed_only=committed_only) as consumer:
            edges = self._edges(consumer, topic, partition)
            start, end = edges
            note = None
            if time_ms is not None:
                offset = self._at_time(consumer, topic, partition, time_ms)
                if offset is None or offset >= end:
                    note = f"There is no record at {format_time(time_ms)} or later: these are the last ones."
                    offset, backwards = end, True
            elif offset is None:
                offset = end if backwards else start
            elif not start <= offset <= end:
                note = f"There is no offset {offset:,}: the log goes from {start:,} to {end:,}."
                backwards, offset = (True, end) if offset > end else (False, start)
            if backwards:
                return self._backward(consumer, topic, partition, edges, offset, limit, note)
            return self._forward(consumer, topic, partition, edges, offset, limit, note)

    def tail(self, topic: str, partition: int, from_offset: int, limit: int) -> RecordPage:
        limit = min(max(limit, 1), MOST_PAGE_RECORDS)
        with self._consumer(committed_only=False) as consumer:
            edges = self._edges(consumer, topic, partition)
            start, end = edges
            if from_offset > end:
                return _page([], edges, end, end, None)
            from_offset = max(from_offset, start)
            if end - from_offset <= limit:
                return self._forward(consumer, topic, partition, edges, from_offset, limit, None)
            begin = end - limit
            note = f"Offsets {from_offset:,} to {begin - 1:,} came too fast to be shown."
            return self._forward(consumer, topic, partition, edges, begin, limit, note)

    def one(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        with self._consumer(committed_only=False) as consumer:
            start, end = self._edges(consumer, topic, partition)
            if not start <= offset < end:
                return None
            for message in self.messages(consumer, topic, partition, offset, offset + 1):
                return _shown(message, _WHOLE)
        return None

    def edges(self, topic: str, partition: int) -> Edges:
        with self._consumer(committed_only=False) as consumer:
            return self._edges(consumer, topic, partition)

    def keys(
        self, topic: str, partition: int, begin: int, end: int
    ) -> Iterator[tuple[int, bytes | None, Callable[[], ShownRecord], int]]:
        """Of each record from one offset up to the other: its offset and key, how to show it, and its size."""
        if begin >= end:
            return
        with self._consumer(committed_only=False) as consumer:
            for message in self.messages(consumer, topic, partition, begin, end):
                key = message.key()
                yield message.offset(), key, partial(_shown, message), len(key or b"") + len(message.value() or b"")

    def at_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The offset of the first record at this time or later."""
        with self._consumer(committed_only=False) as consumer:
            return self._at_time(consumer, topic, partition, time_ms)

    def reading(self, topic: str, partition: int, begin: int, end: int) -> Iterator[tuple[Record, int]]:
        """The records from one offset up to the other, each with the size of its key and value."""
        if begin >= end:
            return
        with self._consumer(committed_only=False) as consumer:
            for message in self.messages(consumer, topic, partition, begin, end):
                record = _record(message)
                yield record, len(record.key or b"") + len(record.value or b"")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            self._idle = {True: [], False: []}
        for consumer in idle:
            consumer.close()

    @contextmanager
    def _consumer(self, *, committed_only: bool) -> Iterator[Any]:
        with self._lock:
            if self._is_closed:
                raise DuralogError("the console is closing")
            idle = self._idle[committed_only]
            consumer = idle.pop() if idle else None
        if consumer is None:
            consumer = self._client.Consumer(
                client_settings(
                    self._address,
                    **{
                        "group.id": "duralog-console",
                        "enable.auto.commit": False,
                        "enable.auto.offset.store": False,
                        "auto.offset.reset": "error",
                        "enable.partition.eof": True,
                        "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                        "allow.auto.create.topics": False,
                        "fetch.wait.max.ms": 50,
                        "queued.max.messages.kbytes": 16_384,
                    },
                )
            )
        is_well = False
        try:
            with errors_of(self._address):
                yield consumer
                consumer.unassign()
            is_well = True
        finally:
            with self._lock:
                idle = self._idle[committed_only]
                is_kept = is_well and not self._is_closed and len(idle) < _MOST_IDLE_CONSUMERS
                if is_kept:
                    idle.append(consumer)
            if not is_kept:
                consumer.close()

    def _edges(self, consumer: Any, topic: str, partition: int) -> Edges:
        place = self._client.TopicPartition(topic, partition)
        try:
            found = consumer.get_watermark_offsets(place, timeout=_ANSWER_SECONDS)
        except self._client.KafkaException as error:
            unknown = (self._client.KafkaError._UNKNOWN_PARTITION, self._client.KafkaError.UNKNOWN_TOPIC_OR_PART)
            if error.args[0].code() in unknown:
                raise UnknownTopic(f"there is no partition {partition} of {printable(topic)}") from None
            raise
        return Edges(*found)

    def _at_time(self, consumer: Any, topic: str, partition: int, time_ms: int) -> int | None:
        place = self._client.TopicPartition(topic, partition, max(time_ms, 0))
        (found,) = consumer.offsets_for_times([place], timeout=_ANSWER_SECONDS)
        return int(found.offset) if found.offset >= 0 else None

    def messages(
        self, consumer: Any, topic: str, partition: int, begin: int, end: int, *, at_once: int = _MESSAGES_AT_ONCE
    ) -> Iterator[Any]:
        """Those from one offset up to, not including, the other. Raises if the broker does not answer in time."""
        consumer.assign([self._client.TopicPartition(topic, partition, begin)])
        silent_since = time.monotonic()
        while True:
            # At most as many as exist: the client would wait for the rest.
            for message in consumer.consume(min(end - begin, at_once), timeout=_WAIT_SECONDS):
                silent_since = time.monotonic()
                error = message.error()
                if error is None:
                    begin = message.offset() + 1
                    if begin > end:
                        return
                    yield message
                    if begin == end:
                        return
                elif error.code() == self._client.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise DuralogError(f"{self._address}: {error_text(error)}")
            if time.monotonic() - silent_since > _ANSWER_SECONDS:
                raise DuralogError(f"{self._address}: the broker does not answer")

    def _forward(
        self, consumer: Any, topic: str, partition: int, edges: Edges, offset: int, limit: int, note: str | None
    ) -> RecordPage:
        found: list[ShownRecord] = []
        next_offset = edges.end_offset
        if offset < edges.end_offset:
            for message in self.messages(consumer, topic, partition, offset, edges.end_offset, at_once=limit):
                found.append(_shown(message))
                if len(found) >= limit:
                    next_offset = found[-1].offset + 1
                    break
        return _page(found, edges, offset, next_offset, note)

    def _backward(
        self, consumer: Any, topic: str, partition: int, edges: Edges, offset: int, limit: int, note: str | None
    ) -> RecordPage:
        found: deque[ShownRecord] = deque()
        begin, stretch, read = offset, limit, 0
        while begin > edges.start_offset and len(found) < limit and read < _MOST_READ_RECORDS:
            stop, begin = begin, max(begin - stretch, edges.start_offset)
            newest: deque[ShownRecord] = deque(maxlen=limit)
            for message in self.messages(consumer, topic, partition, begin, stop):
                newest.append(_shown(message))
                read += 1
            found.extendleft(reversed(newest))
            stretch *= _GROWTH
        kept = list(found)[-limit:]
        is_cut = len(found) > limit or (len(kept) == limit and read > limit)
        return _page(kept, edges, kept[0].offset if is_cut else begin, offset, note)


def _page(found: list[ShownRecord], edges: Edges, first_offset: int, next_offset: int, note: str | None) -> RecordPage:
    return RecordPage(
        records=tuple(found),
        first_offset=first_offset,
        next_offset=next_offset,
        previous_offset=first_offset if first_offset > edges.start_offset else None,
        start_offset=edges.start_offset,
        end_offset=edges.end_offset,
        last_stable_offset=None,
        note=note,
    )


def _shown(message: Any, cut: Cut | None = None) -> ShownRecord:
    return shown_record(_record(message), cut or Cut())


def _record(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp_ms if kind in _TYPES else NO_TIMESTAMP,
        headers=tuple(message.headers() or ()),
        offset=message.offset(),
        timestamp_type=_TYPES.get(kind, TimestampType.NONE),
    )
