"""The file of the audit log: JSON lines, written by a thread of its own and rotated by size.

`AuditLog.write` never blocks and never fails. Entries wait in a bounded queue. If the queue is full, or the file cannot
be written, entries are dropped, counted, and the number is written as an entry of its own as soon as that is possible.
Only changes may use the last half of the queue: clients without permissions cause the other entries.

The file and the rotated ones (`audit.log.1` is the youngest) can be read by their owner only. If the process dies, the
entries in the queue are lost; entries that were written stay. A line that was cut by a crash or a full disk is ended
when the file is opened again, and skipped by readers.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duralog.errors import StorageError

DEFAULT_MAX_BYTES = 100 << 20
DEFAULT_MAX_FILES = 10
_MOST_WAITING = 10_000
_MOST_AT_ONCE = 500
_WARNING_INTERVAL_MS = 10_000
_LONGEST_TEXT = 1_000
_READ_BACK_BYTES = 1 << 16
_MOST_READ_BYTES = 64 << 20

Entry = Mapping[str, Any]
CHANGE = "change"
_logger = logging.getLogger(__name__)


class AuditLog:
    """Any thread may write. Opening fails if the file cannot be written: no change may go unrecorded unnoticed."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock_ms: Callable[[], int],
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_files: int = DEFAULT_MAX_FILES,
    ) -> None:
        """`max_files` is the number of rotated files that are kept."""
        self.path = Path(path)
        self.written = 0
        """Entries in the file."""
        self.dropped = 0
        """Entries that were lost or left out: the queue was full, the disk failed, or there were too many."""
        self._clock_ms = clock_ms
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._queue: queue.Queue[Entry | None] = queue.Queue(_MOST_WAITING)
        self._counting = threading.Lock()
        self._unreported: Counter[str | None] = Counter()
        """Dropped entries that the file does not report yet, by the reason."""
        self._unlogged = 0
        self._warned_ms: int | None = None
        self._has_failed = False
        self._descriptor = -1
        try:
            self._open()
        except OSError as error:
            raise StorageError(f"the audit log {self.path} cannot be written: {error.strerror}") from None
        self._thread = threading.Thread(target=self._serve, name="duralog-audit", daemon=True)
        self._thread.start()

    def write(self, entry: Entry) -> None:
        """Queue an entry. Its time is now."""
        if entry.get("event", CHANGE) != CHANGE and self._queue.qsize() >= _MOST_WAITING // 2:
            self.drop(1)
            return
        try:
            self._queue.put_nowait({"time": _time_text(self._clock_ms()), **entry})
        except queue.Full:
            self.drop(1)

    def close(self) -> None:
        """Write what is queued, and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._warn_of_dropped(is_last=True)
        self._close_file()

    def drop(self, count: int, reason: str | None = None) -> None:
        """Count entries that are not written. The next line that is written reports them."""
        with self._counting:
            self.dropped += count
            self._unreported[reason] += count

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

    def _write(self, entries: Sequence[Entry]) -> None:
        with self._counting:
            lost, self._unreported = self._unreported, Counter()
        lines = [_line(self._report(count, reason)) for reason, count in lost.items()]
        lines += [_line(entry) for entry in entries]
        try:
            self._append(lines)
        except OSError as error:
            with self._counting:
                self.dropped += len(entries)
                self._unreported.update(lost)
                self._unreported[None] += len(entries)
            self._close_file()
            if not self._has_failed:
                _logger.error("the audit log %s cannot be written, entries are lost: %s", self.path, error.strerror)
            self._has_failed = True
            return
        self._unlogged += lost.total()
        self._warn_of_dropped()
        self._has_failed = False
        self.written += len(entries)

    def _report(self, count: int, reason: str | None) -> Entry:
        report = {"time": _time_text(self._clock_ms()), "event": "dropped", "count": count}
        return report if reason is None else {**report, "detail": reason}

    def _warn_of_dropped(self, *, is_last: bool = False) -> None:
        """One line in ten seconds: clients can cause it."""
        now_ms = self._clock_ms()
        is_due = is_last or self._warned_ms is None or abs(now_ms - self._warned_ms) >= _WARNING_INTERVAL_MS
        if self._unlogged and is_due:
            _logger.warning("%d entries of the audit log %s were lost or left out", self._unlogged, self.path)
            self._unlogged, self._warned_ms = 0, now_ms

    def _append(self, lines: Sequence[bytes]) -> None:
        if self._descriptor < 0:
            self._open()
        block = bytearray()
        room = self._max_bytes - os.fstat(self._descriptor).st_size
        for line in lines:
            if len(block) + len(line) > room:
                self._write_block(block)
                block = bytearray()
                # A line that is larger than the limit gets a file of its own.
                if os.fstat(self._descriptor).st_size:
                    self._rotate()
                room = self._max_bytes
            block += line
        self._write_block(block)

    def _write_block(self, block: bytearray) -> None:
        left = memoryview(block)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _rotate(self) -> None:
        os.fsync(self._descriptor)
        self._close_file()
        for number in range(self._max_files - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(rotated(self.path, number), rotated(self.path, number + 1))
        if self._max_files:
            os.replace(self.path, rotated(self.path, 1))
        else:
            os.unlink(self.path)
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(self._descriptor, 0o600)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            # The last line was cut. The next one must not become a part of it.
            os.write(self._descriptor, b"\n")

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def read_last(path: str | Path, count: int) -> list[dict[str, Any]]:
    """The last entries, the newest first, rotated files included. What is not an entry is skipped.

    At most 64 MiB are read.
    """
    found: list[dict[str, Any]] = []
    for line in _lines_backwards(Path(path)):
        if len(found) >= count:
            break
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _lines_backwards(path: Path) -> Iterator[bytes]:
    left = _MOST_READ_BYTES
    number = 0
    while left > 0:
        try:
            file = (rotated(path, number) if number else path).open("rb")
        except FileNotFoundError:
            if number:
                return
            number += 1
            continue
        with file:
            position = file.seek(0, os.SEEK_END)
            rest = b""
            while position > 0 and left > 0:
                size = min(_READ_BACK_BYTES, position)
                position -= size
                left -= size
                file.seek(position)
                first, *lines = (file.read(size) + rest).split(b"\n")
                yield from (line for line in reversed(lines) if line)
                rest = first
            if rest and position == 0:
                yield rest
        number += 1


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(entry: Entry) -> bytes:
    """One line of ASCII: what clients choose cannot end a line, and long texts are cut."""
    return json.dumps({name: _cut(value) for name, value in entry.items()}).encode() + b"\n"


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
    return value
