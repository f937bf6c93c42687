r"""The format of `duralog consume --format`: the one of kcat's `-f`.

| token | stands for |
|---|---|
| `%t` `%p` `%o` | topic, partition, offset |
| `%k` `%K` | key, and its size in bytes; -1 without a key |
| `%s` `%S` | value, and its size in bytes; -1 for a tombstone |
| `%R` | the size of the value as four bytes, big endian |
| `%T` | timestamp, milliseconds since 1970; -1 without one |
| `%h` | headers, `name=value` with commas in between |
| `%%` | a percent sign |
| `\n` `\r` `\t` | a line feed, a carriage return, a tab |
| `\xHH` `\NNN` | a byte by its hexadecimal, octal or decimal number |
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from duralog.format.record import Record

_Piece = Callable[[str, int, Record], bytes]

_NULL = b"NULL"
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-9]{1,3})|(.))", re.DOTALL)
_CHARACTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (_NULL if value is None else value)
        for name, value in record.headers
    )


_TOKENS: dict[str, _Piece] = {
    "t": lambda topic, _partition, _record: topic.encode(),
    "p": lambda _topic, partition, _record: b"%d" % partition,
    "o": lambda _topic, _partition, record: b"%d" % record.offset,
    "k": lambda _topic, _partition, record: record.key or b"",
    "K": lambda _topic, _partition, record: b"%d" % _size(record.key),
    "s": lambda _topic, _partition, record: record.value or b"",
    "S": lambda _topic, _partition, record: b"%d" % _size(record.value),
    "R": lambda _topic, _partition, record: struct.pack(">i", _size(record.value)),
    "T": lambda _topic, _partition, record: b"%d" % record.timestamp_ms,
    "h": lambda _topic, _partition, record: _headers(record),
}


class RecordFormat:
    def __init__(self, text: str) -> None:
        """Raises `ValueError` with a sentence for the user."""
        self._pieces: list[_Piece] = []
        literal, *rest = re.split(r"%(.?)", text, flags=re.DOTALL)
        self._add(_unescaped(literal))
        for token, literal in zip(rest[::2], rest[1::2], strict=True):
            if token == "%":
                self._add(b"%")
            elif token in _TOKENS:
                self._pieces.append(_TOKENS[token])
            else:
                listed = " ".join(f"%{name}" for name in _TOKENS)
                raise ValueError(f"%{token} in {text!r} is unknown: there are {listed} and %%")
            self._add(_unescaped(literal))

    def _add(self, literal: bytes) -> None:
        if literal:
            self._pieces.append(lambda _topic, _partition, _record: literal)

    def render(self, topic: str, partition: int, record: Record) -> bytes:
        return b"".join(piece(topic, partition, record) for piece in self._pieces)


def _unescaped(literal: str) -> bytes:
    return _ESCAPE.sub(_character, literal.encode("utf-8", "surrogateescape"))


def _character(found: re.Match[bytes]) -> bytes:
    hexadecimal, number, character = found.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if number is not None:
        base = 8 if number.startswith(b"0") and not set(number) & set(b"89") else 10
        return bytes([int(number, base) & 0xFF])
    return _CHARACTERS.get(character, character)
