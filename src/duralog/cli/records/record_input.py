"""Reads records from lines of text. A thread reads ahead, so that available records are written without waiting.

A line that is not a record ends the input with an error that names its number, as does a failed read; the records
before it are written. Read-ahead is bounded, in lines and in bytes. The thread may still wait for a line when the
command ends.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from duralog.cli.records.shown_records import from_json
from duralog.cli.voice.progress import CountingBar
from duralog.client.producing import LARGEST_VALUE_BYTES, Placed
from duralog.errors import InvalidRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Header, Record

if TYPE_CHECKING:
    from duralog.operations.records.encoded import Encoders

_READ_AHEAD_LINES = 10_000
_READ_AHEAD_BYTES = 16 << 20
_LARGEST_GROUP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    key: bytes | None
    key_separator: str | None
    headers: Sequence[Header]
    timestamp_ms: int | None
    from_json: bool
    encoders: Encoders | None = None
    """How keys and values of lines become bytes; `key` is encoded already."""

    def parse(self, line: bytes) -> Placed:
        if self.from_json:
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise InvalidRecord(f"not UTF-8: {error.reason} at byte {error.start}") from None
            partition, record = from_json(text, self.encoders)
            return partition, record
        key, value = self.key, line
        if self.key_separator is not None:
            separator = self.key_separator.encode()
            key, found, value = line.partition(separator)
            if not found:
                raise InvalidRecord(f"no {self.key_separator!r} between a key and a value")
            if self.encoders is not None and self.encoders.key is not None:
                key = self.encoders.key.encode_text(key)
        if self.encoders is not None and self.encoders.value is not None:
            value = self.encoders.value.encode_text(value)
        timestamp_ms = NO_TIMESTAMP if self.timestamp_ms is None else self.timestamp_ms
        return None, Record(key=key, value=value, timestamp_ms=timestamp_ms, headers=self.headers)


def one_record(
    key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp_ms: int | None
) -> list[list[Placed]]:
    time_ms = NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
    return [[(None, Record(key=key, value=value, timestamp_ms=time_ms, headers=headers))]]


class RecordLines:
    """Yields groups of records: all that are available, up to a size."""

    def __init__(
        self, path: str, standard_input: BinaryIO, line_format: LineFormat, *, progress: CountingBar | None = None
    ) -> None:
        """`progress` counts bytes; its total is known if the input is a file."""
        self._stream = _own_stream(standard_input) if path == "-" else open(path, "rb")  # noqa: SIM115
        self._format = line_format
        self._lines = _ReadAhead()
        self._progress = CountingBar(None, wanted=False) if progress is None else progress
        if size := _size_left(self._stream):
            self._progress.expect(size)

    def __iter__(self) -> Iterator[list[Placed]]:
        threading.Thread(target=self._read, name="duralog-input", daemon=True).start()
        number = 0
        is_open = True
        while is_open:
            group: list[Placed] = []
            size = 0
            line = self._lines.get()
            while line is not None:
                if isinstance(line, OSError):
                    if group:
                        yield group
                    raise line
                number += 1
                try:
                    if len(line) > LARGEST_VALUE_BYTES:
                        raise InvalidRecord(f"longer than {LARGEST_VALUE_BYTES:,} bytes")
                    group.append(self._format.parse(line))
                except InvalidRecord as error:
                    if group:
                        yield group
                    raise InvalidRecord(f"line {number:,}: {error}") from None
                size += len(line)
                if size > _LARGEST_GROUP_BYTES or self._lines.is_empty:
                    break
                line = self._lines.get()
            is_open = line is not None
            if group:
                yield group
            self._progress.advance(size + len(group))

    def _read(self) -> None:
        end = None
        try:
            while line := self._stream.readline(LARGEST_VALUE_BYTES + 2):
                self._lines.put(line.removesuffix(b"\n").removesuffix(b"\r"))
        except OSError as error:
            end = error
        finally:
            self._lines.put(end)


class _ReadAhead:
    """A bounded queue of lines between two threads. The last item is the error that ended them, or None."""

    def __init__(self) -> None:
        self._lines: deque[bytes | OSError | None] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def put(self, line: bytes | OSError | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._lines) < _READ_AHEAD_LINES and self._bytes < _READ_AHEAD_BYTES)
            self._lines.append(line)
            self._bytes += _size(line)
            self._changed.notify()

    def get(self) -> bytes | OSError | None:
        with self._changed:
            self._changed.wait_for(lambda: self._lines)
            line = self._lines.popleft()
            self._bytes -= _size(line)
            self._changed.notify()
            return line


def _size(line: bytes | OSError | None) -> int:
    return len(line) if isinstance(line, bytes) else 0


def _size_left(stream: BinaryIO) -> int:
    """The bytes left to read of a file; 0 for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
        return status.st_size - stream.tell() if stat.S_ISREG(status.st_mode) else 0
    except (OSError, ValueError):
        return 0


def _own_stream(standard_input: BinaryIO) -> BinaryIO:
    """A second reader of standard input: at exit, the interpreter would block on closing the first."""
    try:
        return open(os.dup(standard_input.fileno()), "rb")
    except OSError:
        return standard_input  # Not a file: a test has replaced it.
