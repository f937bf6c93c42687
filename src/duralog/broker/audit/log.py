"""The files of the audit log: JSON lines, written by a separate thread.

Changes are in one file; failed changes, refusals and failed logins in another next to it: clients without permissions
cause those, and must not be able to rotate out the history of changes.

`AuditLog.write` never blocks and never fails. Entries wait in a bounded queue. If the queue is full, or a file cannot
be written, entries are dropped, counted, and their number is written in an entry as soon as possible.
Only changes may use the last half of the queue.

If the process dies, the entries in the queue are lost; entries that were written stay. Readers skip truncated lines
(`duralog.broker.audit.rotated_file`).
"""

from __future__ import annotations

import heapq
import json
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from duralog.broker.audit.rotated_file import RotatedFile, lines_backwards
from duralog.errors import StorageError

DEFAULT_MAX_BYTES = 100 << 20
DEFAULT_MAX_FILES = 10
_MOST_WAITING = 20_000
_MOST_AT_ONCE = 500
_WARNING_INTERVAL_MS = 10_000
_LONGEST_TEXT = 1_000
_MOST_READ_BYTES = 64 << 20

Entry = Mapping[str, Any]
CHANGE = "change"
_logger = logging.getLogger(__name__)


class AuditLog:
    """Any thread may write. Opening fails if a file cannot be written: no change may go unrecorded unnoticed."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock_ms: Callable[[], int],
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_files: int = DEFAULT_MAX_FILES,
    ) -> None:
        """The limits are for each of the two files; `max_files` is the number of rotated ones that are kept."""
        self.path = Path(path)
        self.written = 0
        """Entries in the files."""
        self.dropped = 0
        """Entries that were lost or left out: the queue was full, the disk failed, or there were too many."""
        self._clock_ms = clock_ms
        self._queue: queue.Queue[Entry | None] = queue.Queue(_MOST_WAITING)
        self._counting = threading.Lock()
        self._unreported: Counter[tuple[bool, str | None]] = Counter()
        """Dropped entries that no file reports yet, by whether they were changes, and the reason."""
        self._unlogged = 0
        self._warned_ms: int | None = None
        try:
            self._changes = RotatedFile(self.path, max_bytes=max_bytes, max_files=max_files)
            # A terminal or a pipe can always be written to.
            self._refusals = self._changes
            if self.path.is_file():
                self._refusals = RotatedFile(refusals_of(self.path), max_bytes=max_bytes, max_files=max_files)
        except OSError as error:
            raise StorageError(f"the audit log {error.filename} cannot be written: {error.strerror}") from None
        self._thread = threading.Thread(target=self._serve, name="duralog-audit", daemon=True)
        self._thread.start()

    def write(self, entry: Entry) -> None:
        """Queue an entry. Its time is now. Long texts are truncated: what waits in the queue is bounded."""
        if not _is_change(entry) and self._queue.qsize() >= _MOST_WAITING // 2:
            self.drop(1)
            return
        try:
            cut = {name: _cut(value) for name, value in entry.items()}
            self._queue.put_nowait({"time": _time_text(self._clock_ms()), **cut})
        except queue.Full:
            self.drop(1, are_changes=_is_change(entry))

    def close(self) -> None:
        """Write what is queued, and close the files."""
        self._queue.put(None)
        self._thread.join()
        self._warn_of_dropped(is_last=True)
        self._close_files()

    def drop(self, count: int, reason: str | None = None, *, are_changes: bool = False) -> None:
        """Count entries that are not written. The next line that is written reports them."""
        with self._counting:
            self.dropped += count
            self._unreported[are_changes, reason] += count

    def _serve(self) -> None:
        is_open = True
        while is_open:
            entries = [self._queue.get()]
            with suppress(queue.Empty):
                while len(entries) < _MOST_AT_ONCE:
                    entries.append(self._queue.get_nowait())
            if None in entries:
                is_open = False
            self._write([entry for entry in entries if entry is not None])

    def _write(self, entries: list[Entry]) -> None:
        with self._counting:
            lost, self._unreported = self._unreported, Counter()
        for are_changes, file in ((True, self._changes), (False, self._refusals)):
            self._write_to(
                file,
                [entry for entry in entries if _is_change(entry) is are_changes],
                Counter({each: count for each, count in lost.items() if each[0] is are_changes}),
                are_changes=are_changes,
            )

    def _write_to(
        self, file: RotatedFile, entries: list[Entry], lost: Counter[tuple[bool, str | None]], *, are_changes: bool
    ) -> None:
        lines = [_line(self._report(count, reason)) for (_, reason), count in lost.items()]
        lines += [_line(entry) for entry in entries]
        if not lines:
            return
        has_failed = file.has_failed
        try:
            file.append(lines)
        except OSError as error:
            with self._counting:
                self.dropped += len(entries)
                self._unreported.update(lost)
                self._unreported[are_changes, None] += len(entries)
            if not has_failed:
                _logger.error("the audit log %s cannot be written, entries are lost: %s", file.path, error.strerror)
            return
        self._unlogged += lost.total()
        self._warn_of_dropped()
        self.written += len(entries)

    def _report(self, count: int, reason: str | None) -> Entry:
        report = {"time": _time_text(self._clock_ms()), "event": "dropped", "count": count}
        return report if reason is None else {**report, "detail": reason}

    def _warn_of_dropped(self, *, is_last: bool = False) -> None:
        """At most one line in ten seconds, since clients can cause it."""
        now_ms = self._clock_ms()
        is_due = is_last or self._warned_ms is None or abs(now_ms - self._warned_ms) >= _WARNING_INTERVAL_MS
        if self._unlogged and is_due:
            _logger.warning("%d entries of the audit log %s were lost or left out", self._unlogged, self.path)
            self._unlogged, self._warned_ms = 0, now_ms

    def _close_files(self) -> None:
        self._changes.close()
        self._refusals.close()


def refusals_of(path: Path) -> Path:
    """The file for failed changes, refusals and failed logins: `audit-refusals.log` next to `audit.log`."""
    return path.with_name(f"{path.stem}-refusals{path.suffix}")


def read_last(path: str | Path, count: int) -> list[dict[str, Any]]:
    """The last entries of both files, the newest first, rotated files included. What is not an entry is skipped.

    At most 64 MiB are read.
    """
    changes = Path(path)
    found = (_entries_backwards(each) for each in (refusals_of(changes), changes))
    merged = heapq.merge(*found, key=lambda entry: str(entry.get("time", "")), reverse=True)
    return list(islice(merged, count))


def _entries_backwards(path: Path) -> Iterator[dict[str, Any]]:
    for line in lines_backwards(path, _MOST_READ_BYTES // 2):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def _is_change(entry: Entry) -> bool:
    return bool(entry.get("event", CHANGE) == CHANGE)


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(entry: Entry) -> bytes:
    """One line of ASCII: input of clients cannot end a line."""
    return json.dumps(entry).encode() + b"\n"


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
    return value
