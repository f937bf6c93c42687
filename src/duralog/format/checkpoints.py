"""The checkpoint files: small text files with one offset for each partition, or with a partition's leader epochs.

The first line is the version (0), the second the number of entries, then there is one entry on each line. An empty
file has no entries. A writer makes the whole file new, under another name, and renames it into place: a crash
leaves the old one or the new one. So anything that does not fit is damage, and nothing of the file is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from duralog.errors import CorruptRecord
from duralog.format.varint import Bytes

CHECKPOINT_VERSION = 0

# What Java's readLine takes for the end of a line, and its \s for a space.
_LINE_END = re.compile(r"\r\n|\n|\r")
_SPACES = re.compile(r"[ \t\n\x0b\f\r]+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """An entry of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochStart:
    """An entry of a leader-epoch checkpoint: the first offset that a leader wrote."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    position: int
    text: str

    def wrong(self, expected: str) -> CorruptRecord:
        return CorruptRecord(
            f"line {self.number} of a checkpoint is wrong",
            position=self.position,
            expected=expected,
            found=repr(self.text[:200]),
        )

    def integer(self, text: str, bits: int, what: str) -> int:
        """The number as Java's parseInt and parseLong read it: a sign, digits, nothing around them."""
        if _INTEGER.fullmatch(text):
            number = int(text)
            if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                return number
        raise self.wrong(f"{what}, a number of {bits} bits")

    def fields(self, expected: str) -> list[str]:
        """The words of the line: as many as `expected` has. Spaces at the end are ignored."""
        words = _SPACES.split(self.text)
        while words and words[-1] == "":
            words.pop()
        if len(words) != len(expected.split()):
            raise self.wrong(expected)
        return words


def decode_offset_checkpoint(data: Bytes) -> list[PartitionOffset]:
    """The entries in the file's order, which means nothing. Where a partition is named twice, the last one counts."""
    entries = []
    for line in _entry_lines(data):
        topic, partition, offset = line.fields("topic partition offset")
        entries.append(
            PartitionOffset(topic, line.integer(partition, 32, "partition"), line.integer(offset, 64, "offset"))
        )
    return entries


def decode_leader_epoch_checkpoint(data: Bytes) -> list[EpochStart]:
    entries = []
    for line in _entry_lines(data):
        epoch, start_offset = line.fields("epoch start_offset")
        entries.append(EpochStart(line.integer(epoch, 32, "epoch"), line.integer(start_offset, 64, "start offset")))
    return entries


def encode_offset_checkpoint(entries: Iterable[PartitionOffset]) -> bytes:
    return _encode([f"{entry.topic} {entry.partition} {entry.offset}" for entry in entries])


def encode_leader_epoch_checkpoint(entries: Iterable[EpochStart]) -> bytes:
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(lines)), *lines)).encode("utf-8")


def _entry_lines(data: Bytes) -> Iterator[_Line]:
    """The lines after the first two; raises after the last one if there are not as many as the second line says."""
    lines = _lines(data)
    version_line = next(lines, None)
    if version_line is None:
        return
    version = version_line.integer(version_line.text, 32, "version")
    if version != CHECKPOINT_VERSION:
        raise version_line.wrong(f"version {CHECKPOINT_VERSION}")
    count_line = next(lines, None)
    if count_line is None:
        return
    count = count_line.integer(count_line.text, 32, "number of entries")
    found = 0
    for line in lines:
        yield line
        found += 1
    if found != count:
        raise CorruptRecord(
            f"line {count_line.number} of a checkpoint has a wrong number of entries",
            position=count_line.position,
            expected=count,
            found=found,
        )


def _lines(data: Bytes) -> Iterator[_Line]:
    raw = bytes(data)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(
            "a checkpoint is not text", position=error.start, expected="UTF-8", found=f"byte {raw[error.start]:#04x}"
        ) from error
    number, start, position = 0, 0, 0
    while start < len(text):
        end = _LINE_END.search(text, start)
        stop, following = (end.start(), end.end()) if end else (len(text), len(text))
        number += 1
        yield _Line(number, position, text[start:stop])
        position += len(text[start:following].encode("utf-8"))
        start = following
