"""The output of a command: either text for people, or one JSON object per line.

A finding means that bytes are wrong: a line that starts with `!`, or an object with `error`. A note is for information,
such as a skipped file: a line that starts with `#`, or an object with `note`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from duralog.cli.voice.failures import CannotWrite
from duralog.config.error_text import describe, printable
from duralog.errors import CorruptRecord
from duralog.storage.checks.findings import Note

_FLUSH_BYTES = 1 << 18
_BOLD, _RED, _DIM, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


class Output:
    """Collects small lines and passes large blocks straight through, in order."""

    before_writing: Callable[[], None] | None = None
    """Called before anything is written, so that a progress bar on the same terminal can be removed."""

    def __init__(
        self,
        stream: BinaryIO,
        *,
        as_json: bool = False,
        colour: bool = False,
        quiet: bool = False,
        width: int | None = None,
    ) -> None:
        """`width` is that of the terminal, which tables must fit; None for a pipe or a file, where nothing is left
        out.
        """
        self.as_json = as_json
        self.quiet = quiet
        self.width = width
        self.findings = 0
        self._stream = stream
        self._colour = colour
        self._lines: list[str] = []
        self._pending = 0
        self._has_written = False
        self._left_out: set[str] = set()

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Finished lines as bytes."""
        self._has_written = True
        self._write_lines()
        self._to_stream(block)

    def line(self, text: str) -> None:
        """One line of text. Names from a disk must have gone through `printable`."""
        self._lines.append(text)
        self._has_written = True
        self._pending += len(text) + 1
        if self._pending > _FLUSH_BYTES:
            self._write_lines()

    def object(self, fields: Mapping[str, Any]) -> None:
        self.line(json.dumps(fields, separators=(",", ":")))

    def heading(self, text: str) -> None:
        """The heading of the lines below. Text only: JSON objects name their file."""
        if not self.as_json and not self.quiet:
            if self._has_written:
                self.line("")
            self.line(f"{_BOLD}{text}{_PLAIN}" if self._colour else text)

    def columns(self, text: str) -> None:
        """The names of the columns below."""
        if not self.as_json and not self.quiet:
            self.line(f"{_DIM}{text}{_PLAIN}" if self._colour else text)

    def left_out(self, names: Sequence[str]) -> None:
        """Columns that do not fit on the terminal. They are named once, even if several tables lack them."""
        listed = ", ".join(names)
        if names and listed not in self._left_out:
            self._left_out.add(listed)
            self.columns(f"(no room for {listed}; --json has all)")

    def finding(self, error: CorruptRecord) -> None:
        self.findings += 1
        if self.as_json:
            self.object(error.to_dict())
        else:
            self._write_wrong(str(error))

    def damage(self, text: str) -> None:
        """A finding in words, for people. In JSON it is part of an object."""
        self.findings += 1
        if not self.as_json:
            self._write_wrong(text)

    def _write_wrong(self, text: str) -> None:
        text = f"! {printable(text)}"
        self.line(f"{_RED}{text}{_PLAIN}" if self._colour else text)

    def note(self, file: str, message: str, /, **fields: Any) -> None:
        if self.as_json:
            self.object(Note(file, message, fields).to_dict())
        elif not self.quiet:
            text = f"# {printable(file)}: {printable(message)}"
            self.line(f"{_DIM}{text}{_PLAIN}" if self._colour else text)

    def flush(self) -> None:
        """Write everything that is buffered."""
        self._write_lines()
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(f"cannot write to standard output: {describe(error)}") from error

    def _write_lines(self) -> None:
        if self._lines:
            text = "\n".join(self._lines) + "\n"
            # Emptied first: if the reader of a pipe has closed it, nothing may be written twice.
            self._lines.clear()
            self._pending = 0
            self._to_stream(text.encode("utf-8", "surrogateescape"))

    def _to_stream(self, block: bytes | bytearray | memoryview) -> None:
        if self.before_writing is not None:
            self.before_writing()
        try:
            self._stream.write(block)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(f"cannot write to standard output: {describe(error)}") from error
