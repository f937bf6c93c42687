"""Pages of a whole topic: the records of all partitions, merged by time.

A window of each partition is read, and another one only when a window is used up: a page costs the records that it
shows and a few for each partition, regardless of the length of the logs. The merge takes the record with the smallest
time (then partition, then offset) among the next ones of all partitions. Where a producer's times go back, the records
of a partition stay in their order. A page has an offset for each partition at both of its ends, so that neighbouring
pages have no gaps and no duplicates.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from duralog.config.error_text import describe, printable
from duralog.console.facts.records import ShownRecord
from duralog.console.facts.topic_records import Cursor, PlacedRecord, TopicPage
from duralog.console.source import DEFAULT_PAGE_RECORDS, Source
from duralog.errors import DuralogError, UnknownTopic

_MOST_EMPTY_WINDOWS = 4
"""In a row: a compacted log may have long gaps. The page ends there."""
_THREADS = 4
_MOST_NOTES = 3


def topic_page(
    source: Source,
    topic: str,
    partitions: Sequence[int],
    *,
    at: Cursor | None = None,
    time_ms: int | None = None,
    backwards: bool = False,
    limit: int = DEFAULT_PAGE_RECORDS,
) -> TopicPage:
    """From a cursor or a time on, or the records before it. With neither: the end if backwards, otherwise the start.

    A partition that the cursor does not have is read from the same end. Reads: not for the event loop.
    """
    # Twice its share: most pages need no second window.
    window = min(max(2 * limit // max(len(partitions), 1), 4), limit)

    def begin(partition: int) -> _Stream:
        stream = _Stream(source, topic, partition, limit, window, backwards=backwards)
        stream.begin(None if at is None else at.get(partition), time_ms)
        return stream

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="duralog-console-merge") as pool:
        streams = list(pool.map(begin, partitions))
    readable = [stream for stream in streams if stream.trouble is None]
    found = _merged(readable, limit)
    notes = [stream.trouble for stream in streams if stream.trouble is not None]
    notes += [note for stream in readable for note in stream.notes]
    return TopicPage(
        records=tuple(reversed(found) if backwards else found),
        first={stream.partition: stream.reached if backwards else stream.began for stream in readable},
        end={stream.partition: stream.began if backwards else stream.reached for stream in readable},
        is_at_start=all((stream.reached if backwards else stream.began) <= stream.start_offset for stream in readable),
        is_at_end=all((stream.began if backwards else stream.reached) >= stream.end_offset for stream in readable),
        notes=tuple(notes[:_MOST_NOTES]),
    )


def _merged(streams: Sequence[_Stream], limit: int) -> list[PlacedRecord]:
    """In the direction of the streams."""
    sign = -1 if streams and streams[0].backwards else 1

    def entry(stream: _Stream) -> tuple[int, int, _Stream]:
        return sign * stream.waiting[0].timestamp_ms, sign * stream.partition, stream

    found: list[PlacedRecord] = []
    heads = [entry(stream) for stream in streams if stream.fill()]
    heapq.heapify(heads)
    if any(stream.is_unknown for stream in streams):
        return found
    while heads and len(found) < limit:
        stream = heads[0][2]
        found.append(PlacedRecord(stream.partition, stream.take()))
        if len(found) == limit:
            break
        if stream.fill():
            heapq.heapreplace(heads, entry(stream))
        elif stream.is_unknown:
            break
        else:
            heapq.heappop(heads)
    return found


class _Stream:
    """One partition, read in one direction, window by window."""

    def __init__(self, source: Source, topic: str, partition: int, limit: int, window: int, *, backwards: bool) -> None:
        self.partition = partition
        self.backwards = backwards
        self.waiting: deque[ShownRecord] = deque()
        self.began = self.reached = self.start_offset = self.end_offset = 0
        """`reached`: all before it, in the direction of reading, was taken."""
        self.is_unknown = False
        """What comes next was not found by reading as much as is read for a page."""
        self.notes: list[str] = []
        self.trouble: str | None = None
        self._source = source
        self._place = topic, partition
        self._limit = limit
        self._window = window
        self._edge = 0
        self._next: int | None = 0
        """Where the next window begins; None at the end of the log."""

    def begin(self, offset: int | None, time_ms: int | None) -> None:
        try:
            if offset is None and time_ms is not None:
                offset = self._at_time(time_ms)
            self._read(offset, is_first=True)
        except UnknownTopic:
            raise
        except (DuralogError, OSError) as error:
            self.trouble = f"Partition {self.partition}: {printable(describe(error))}"

    def fill(self) -> bool:
        """Whether there is a record to take."""
        for _ in range(_MOST_EMPTY_WINDOWS):
            if self.waiting or self._next is None:
                break
            self._read(self._next, is_first=False)
        if not self.waiting:
            self.is_unknown = self._next is not None
            if self._next is None:
                self.reached = self._edge
        return bool(self.waiting)

    def take(self) -> ShownRecord:
        record = self.waiting.popleft()
        self.reached = record.offset if self.backwards else record.offset + 1
        return record

    def __lt__(self, other: _Stream) -> bool:
        return self.partition < other.partition

    def _at_time(self, time_ms: int) -> int:
        page = self._source.records(*self._place, time_ms=time_ms, limit=1)
        if page.records and page.records[0].timestamp_ms >= time_ms:
            return page.records[0].offset
        return page.end_offset

    def _read(self, offset: int | None, *, is_first: bool) -> None:
        page = self._source.records(*self._place, offset=offset, backwards=self.backwards, limit=self._window)
        if is_first:
            self.start_offset, self.end_offset = page.start_offset, page.end_offset
            # The log is shorter than when the link was created: the returned page is on the wrong side.
            edge = page.start_offset if self.backwards else page.end_offset
            if offset is not None and (offset < edge if self.backwards else offset > edge):
                self.began = self.reached = self._edge = edge
                self._next = None
                return
            self.began = self.reached = page.next_offset if self.backwards else page.first_offset
        if page.note is not None:
            self.notes.append(f"Partition {self.partition}: {page.note}")
        records = page.records
        self.waiting.extend(reversed(records) if self.backwards else records)
        if self.backwards:
            self._edge = page.first_offset
            self._next = page.previous_offset
        else:
            self._edge = page.next_offset
            self._next = None if page.is_at_end else page.next_offset
        self._window = min(2 * self._window, self._limit)
        if not records:
            self.reached = self._edge
