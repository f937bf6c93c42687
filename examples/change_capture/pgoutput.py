"""PostgreSQL's logical replication messages (`pgoutput`, protocol version 1) to changes of rows.

Values are the texts that PostgreSQL itself would print for them, `None` for NULL. A value that is stored out of line
and was not changed is not sent again: it is taken from the old row, which a table with `REPLICA IDENTITY FULL` sends.
Anything else than a known message, or one that ends too early, is an error: nothing is guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from examples.change_capture.change_topic import Change, Emptied, Row

_UNCHANGED = object()
_IGNORED = b"OYM"
"""Origin, type, and messages of applications."""


class BadMessage(ValueError):
    """The bytes are not what the protocol says."""


class Committed(NamedTuple):
    """A transaction is complete. Everything up to this position of PostgreSQL's log was handed out."""

    end_lsn: int


class _Relation(NamedTuple):
    name: str
    columns: list[str]
    key: list[str]


class _Message:
    """One message, read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise BadMessage(f"a message {self._data[:1]!r} of {len(self._data)} bytes ends before byte {end}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def text(self) -> str:
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise BadMessage(f"a message {self._data[:1]!r} has a name without an end")
        taken = self.take(end - self._position)
        self.take(1)
        return taken.decode()

    def row(self) -> list[object]:
        values: list[object] = []
        for _ in range(self.number(">H")):
            kind = self.take(1)
            if kind == b"t":
                values.append(self.take(self.number(">i")).decode())
            elif kind in (b"n", b"u"):
                values.append(None if kind == b"n" else _UNCHANGED)
            else:
                raise BadMessage(f"a column of kind {kind!r}")
        return values


class Decoder:
    """Goes through the messages of a slot, which come as whole transactions in the order of their commits."""

    def __init__(self, primary_keys: Mapping[str, list[str]]) -> None:
        """`primary_keys` by `schema.table`: with a full replica identity, the messages do not tell them."""
        self._primary_keys = primary_keys
        self._relations: dict[int, _Relation] = {}
        self._commit_lsn = 0
        self._count = 0

    def decode(self, messages: Iterable[bytes]) -> Iterator[Change | Emptied | Committed]:
        for data in messages:
            message = _Message(data)
            kind = message.take(1)
            if kind == b"B":
                self._commit_lsn, self._count = message.number(">Q"), 0
            elif kind == b"R":
                self._define(message)
            elif kind == b"I":
                relation = self._relation(message)
                self._expect(message, b"N")
                yield self._put(relation, self._row(relation, message))
            elif kind == b"U":
                yield from self._update(message)
            elif kind == b"D":
                relation = self._relation(message)
                self._expect(message, b"KO")
                yield self._remove(relation, self._row(relation, message))
            elif kind == b"T":
                count, _options = message.number(">I"), message.number(">B")
                for _ in range(count):
                    yield Emptied(self._next_number(), self._relation(message).name)
            elif kind == b"C":
                _flags, _commit_lsn = message.number(">B"), message.number(">Q")
                yield Committed(message.number(">Q"))
            elif kind not in _IGNORED:
                raise BadMessage(f"a message of kind {kind!r}")

    def _update(self, message: _Message) -> Iterator[Change]:
        relation = self._relation(message)
        old: Row | None = None
        if (kind := self._expect(message, b"KON")) != b"N":
            old = self._row(relation, message)
            self._expect(message, b"N")
        new = self._row(relation, message)
        for column, value in new.items():
            if value is _UNCHANGED:
                if kind != b"O" or old is None:
                    raise BadMessage(f"{relation.name}.{column} was not sent: set REPLICA IDENTITY FULL for the table")
                new[column] = old[column]
        if old is not None and self._key(relation, old) != self._key(relation, new):
            yield self._remove(relation, old)
        yield self._put(relation, new)

    def _put(self, relation: _Relation, row: Row) -> Change:
        return Change(self._next_number(), relation.name, self._key(relation, row), row)

    def _remove(self, relation: _Relation, row: Row) -> Change:
        return Change(self._next_number(), relation.name, self._key(relation, row), None)

    def _next_number(self) -> tuple[int, int]:
        self._count += 1
        return self._commit_lsn, self._count

    @staticmethod
    def _key(relation: _Relation, row: Row) -> tuple[object, ...]:
        return tuple(row[column] for column in relation.key)

    @staticmethod
    def _row(relation: _Relation, message: _Message) -> Row:
        values = message.row()
        if len(values) != len(relation.columns):
            raise BadMessage(f"a row of {len(values)} columns for {relation.name}, which has {len(relation.columns)}")
        return dict(zip(relation.columns, values, strict=True))

    @staticmethod
    def _expect(message: _Message, kinds: bytes) -> bytes:
        kind = message.take(1)
        if kind not in kinds:
            raise BadMessage(f"a row marked {kind!r}, where one of {kinds!r} belongs")
        return kind

    def _relation(self, message: _Message) -> _Relation:
        number = message.number(">I")
        if number not in self._relations:
            raise BadMessage(f"table {number} was never described")
        return self._relations[number]

    def _define(self, message: _Message) -> None:
        number = message.number(">I")
        name = f"{message.text()}.{message.text()}"
        message.take(1)
        columns = []
        for _ in range(message.number(">H")):
            message.take(1)
            columns.append(message.text())
            message.take(8)
        key = self._primary_keys.get(name)
        if not key or not set(key) <= set(columns):
            raise BadMessage(f"{name} has no primary key among its columns {columns}")
        self._relations[number] = _Relation(name, columns, key)
