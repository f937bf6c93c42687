"""The compacted topic that holds a database: a key for each row, the row as its value, a tombstone when it goes.

Every record carries the number of its change, in a header. The last record of each append, under a key of its own,
repeats the highest number: whatever compaction drops later, that one stays. So the log itself tells which change it has
last, and a capturing process that was killed, in the middle of an append too, starts right behind it. Changes that come
a second time are left out.

There is one partition: the order of the changes, of all tables, is that of the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import duralog

Number = tuple[int, ...]
"""Where a change stands among all changes of its database. Numbers only grow; they need not be without gaps."""
Row = dict[str, Any]

_CAPTURED_KEY = b"captured"
"""Not a JSON array, as the keys of rows are."""
_NUMBER_HEADER = "change"
_APPEND_BYTES = 1 << 19
"""An append must fit a segment, of which the smallest has a megabyte."""
_COPIED_AT_ONCE = 1_000


class Change(NamedTuple):
    number: Number
    table: str
    key: tuple[Any, ...]
    """The values of the primary key."""
    row: Row | None
    """All of the row as it is now; None if it was deleted."""


class Emptied(NamedTuple):
    """All rows of a table went at once: the database does not say which they were, but the log knows."""

    number: Number
    table: str


class ChangeTopic:
    """The writing side. Only one may write."""

    def __init__(self, store: duralog.Store, topic: str) -> None:
        if topic not in store.topics():
            store.create_topic(topic, partitions=1, config={"cleanup.policy": "compact"})
        self.log = store.partition(topic, 0)
        self.last = last_captured(self.log)
        """The highest number in the log; None before the first."""

    def append(self, changes: Iterable[Change | Emptied]) -> int:
        """Append those that are new, and return how many. When this returns they would survive a loss of power."""
        pending: list[duralog.Record] = []
        pending_bytes = appended = 0
        highest = self.last
        for change in changes:
            if isinstance(change, Emptied):
                # What the table holds is in the log only when everything before is.
                appended += self._write(pending, highest)
                found = self._tombstones(change)
                appended += self._write(found.records, found.highest)
                pending, pending_bytes, highest = [], 0, self.last
                continue
            if highest is not None and change.number <= highest:
                continue
            record = _record(change.table, change.key, change.row, change.number)
            pending.append(record)
            pending_bytes += len(record.key or b"") + len(record.value or b"")
            highest = change.number
            if pending_bytes >= _APPEND_BYTES:
                appended += self._write(pending, highest)
                pending, pending_bytes = [], 0
        appended += self._write(pending, highest)
        self.log.flush()
        return appended

    def append_copy(self, rows: Iterable[tuple[str, tuple[Any, ...], Row]], number: Number) -> int:
        """Append rows that were there before there were changes. The log has this number when it has all of them.

        A copy that was cut off has no number, and its rows are copied again.
        """
        copied = 0
        records: list[duralog.Record] = []
        for table, key, row in rows:
            records.append(_record(table, key, row, ()))
            copied += 1
            if len(records) == _COPIED_AT_ONCE:
                self.log.append(records, codec="lz4")
                records = []
        self.log.append([*records, _captured(number)], codec="lz4")
        self.log.flush()
        self.last = number
        return copied

    def _write(self, records: list[duralog.Record], highest: Number | None) -> int:
        if records and highest is not None:
            self.log.append([*records, _captured(highest)], codec="lz4")
            self.last = highest
        return len(records)

    def _tombstones(self, emptied: Emptied) -> _Tombstones:
        """For each row that is there. If an append of them was cut off, the rest gets the numbers that follow."""
        number, last = emptied.number, self.last or ()
        is_begun = last[: len(number)] == number and len(last) > len(number)
        if last >= number and not is_begun:
            return _Tombstones([], self.last)
        first = last[len(number)] + 1 if is_begun else 0
        keys = [key for table, key in latest_rows(self.log) if table == emptied.table]
        numbers = [(*number, first + index) for index in range(len(keys))]
        records = [_record(emptied.table, key, None, number) for key, number in zip(keys, numbers, strict=True)]
        return _Tombstones(records, numbers[-1] if numbers else self.last)


class _Tombstones(NamedTuple):
    records: list[duralog.Record]
    highest: Number | None


def last_captured(log: duralog.PartitionLog) -> Number | None:
    """The number of the last change in the log. It is near the end: segments are looked at from the last one back."""
    for segment in reversed(log.segments):
        records = log.read(max(segment.base_offset, log.start_offset))
        if highest := max((number_of(record) for record in records), default=()):
            return highest
    return None


def number_of(record: duralog.Record) -> Number:
    """Empty for a row that was copied."""
    if record.key == _CAPTURED_KEY:
        return _parsed(record.value or b"")
    return next((_parsed(value or b"") for name, value in record.headers if name == _NUMBER_HEADER), ())


def read_changes(log: duralog.PartitionLog, offset: int) -> Iterator[tuple[int, Change]]:
    """The changes from an offset on, each with its own: what a cache or an index follows."""
    for record in log.read(offset):
        if record.key is not None and record.key != _CAPTURED_KEY:
            table, *key = json.loads(record.key)
            row = None if record.value is None else json.loads(record.value)
            yield record.offset, Change(number_of(record), table, tuple(key), row)


def latest_rows(log: duralog.PartitionLog) -> dict[tuple[str, tuple[Any, ...]], Row]:
    """The whole database as the log knows it."""
    rows: dict[tuple[str, tuple[Any, ...]], Row] = {}
    for _, change in read_changes(log, log.start_offset):
        # Removed first: a row that comes again stands behind the others, as it does in the log.
        rows.pop((change.table, change.key), None)
        if change.row is not None:
            rows[change.table, change.key] = change.row
    return rows


def _record(table: str, key: tuple[Any, ...], row: Row | None, number: Number) -> duralog.Record:
    return duralog.Record(
        key=_json((table, *key)),
        value=None if row is None else _json(row),
        headers=[(_NUMBER_HEADER, _number_text(number))] if number else [],
    )


def _captured(number: Number) -> duralog.Record:
    return duralog.Record(key=_CAPTURED_KEY, value=_number_text(number))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _number_text(number: Number) -> bytes:
    return ".".join(map(str, number)).encode()


def _parsed(text: bytes) -> Number:
    return tuple(int(part) for part in text.split(b"."))
