"""A file of lines that is rotated by size: `audit.log.1` is the newest of the rotated ones.

All of them can be read by their owner only. If the process dies, lines that were appended stay. A line that was cut by
a crash or a full disk is ended when the file is opened again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_READ_BACK_BYTES = 1 << 16


class RotatedFile:
    """For one thread. Raises `OSError` if the file cannot be opened or written."""

    def __init__(self, path: Path, *, max_bytes: int, max_files: int) -> None:
        """`max_files` is the number of rotated files that are kept."""
        self.path = path
        self.has_failed = False
        """Whether the last `append` failed."""
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._descriptor = -1
        self._open()

    def append(self, lines: Sequence[bytes]) -> None:
        try:
            self._append(lines)
        except OSError:
            self.has_failed = True
            self.close()
            raise
        self.has_failed = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

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
        self.close()
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


def rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def lines_backwards(path: Path, most_bytes: int) -> Iterator[bytes]:
    """The lines of the file and the rotated ones, the last first, until about `most_bytes` are read."""
    left = most_bytes
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
