"""The changes of a SQLite database, by triggers that write each one to a table in the same transaction.

A change is in that table if and only if its transaction was committed, and since SQLite has one writer at a time, the
numbers of the table are the order of the commits. What was captured and is safe in the log is deleted from it; its
numbers are never given again.

Values that JSON cannot hold are objects: `{"blob": "00ff"}` for bytes, `{"real": "Inf"}` for infinities. Real numbers
are written with enough digits to be read back as they were.

A table must have a primary key that tells rows apart in the same way as its JSON text does. And nothing may delete a
row behind the triggers' back: `INSERT OR REPLACE` does that where another unique index is violated, unless every
connection that writes has set `PRAGMA recursive_triggers`. Tables for which this is not certain are refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from examples.change_capture.change_topic import Change, Number

_OUTBOX = "duralog_changes"
_COLUMNS_OF_ONE_OBJECT = 50
"""SQLite's functions take 127 arguments."""


class UnsuitableTable(ValueError):
    """The changes of this table could be lost."""


class OlderDatabase(ValueError):
    """The log has changes that the database has not made: it is another one, or an old copy."""


class _Table(NamedTuple):
    name: str
    columns: list[str]
    key: list[str]


class SqliteChanges:
    """Captures the named tables. Rows that are there already count as the first changes."""

    def __init__(
        self,
        path: str,
        tables: Sequence[str],
        *,
        captured: Number | None = None,
        has_recursive_triggers: bool = False,
    ) -> None:
        """`captured` is the number that the log has; the changes up to it are forgotten.

        `has_recursive_triggers`: every connection that writes to the database has set that pragma.
        """
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._has_recursive_triggers = has_recursive_triggers
        try:
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:
                self._install([self._describe(name) for name in tables])
                if captured is not None:
                    self._check_given(captured)
                    self.forget(captured)
        except BaseException:
            self.close()
            raise

    def read(self, after: Number | None, limit: int = 5_000) -> list[Change]:
        """The changes behind a number, oldest first."""
        rows = self._database.execute(
            f"SELECT number, of_table, key, row FROM {_OUTBOX} WHERE number > ? ORDER BY number LIMIT ?",
            (after[0] if after else 0, limit),
        )
        return [
            Change((number,), table, tuple(json.loads(key)), None if row is None else json.loads(row))
            for number, table, key, row in rows
        ]

    def forget(self, number: Number) -> None:
        """Delete what is safe elsewhere."""
        self._database.execute(f"DELETE FROM {_OUTBOX} WHERE number <= ?", (number[0],))

    def close(self) -> None:
        self._database.close()

    def _check_given(self, number: Number) -> None:
        found = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (_OUTBOX,)).fetchone()
        last = found[0] if found else 0
        if number[0] > last:
            raise OlderDatabase(f"the log has change {number[0]}, the last one of the database is {last}")

    def _describe(self, name: str) -> _Table:
        columns = self._database.execute(
            'SELECT name, type, pk, "notnull" FROM pragma_table_xinfo(?) WHERE hidden = 0', (name,)
        ).fetchall()
        if not columns:
            raise UnsuitableTable(f"there is no table {name}")
        key = sorted((place, column, type_, not_null) for column, type_, place, not_null in columns if place)
        if not key:
            raise UnsuitableTable(f"table {name} has no primary key: nothing tells which row a change is of")
        is_rowid = len(key) == 1 and key[0][2].upper() == "INTEGER"
        for _, column, type_, not_null in key:
            if not any(word in type_.upper() for word in ("INT", "CHAR", "CLOB", "TEXT")):
                raise UnsuitableTable(
                    f"{name}.{column} is a key of type {type_ or 'unknown'}: neither integer nor text"
                )
            if not (not_null or is_rowid):
                raise UnsuitableTable(f"{name}.{column} is a key that may be NULL: such rows cannot be told apart")
        self._check_indexes(name)
        return _Table(name, [column for column, *_ in columns], [column for _, column, *_ in key])

    def _check_indexes(self, name: str) -> None:
        indexes = self._database.execute(
            'SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (name,)
        ).fetchall()
        for index, origin in indexes:
            if origin == "pk":
                collations = self._database.execute("SELECT coll FROM pragma_index_xinfo(?) WHERE key", (index,))
                if any(collation != "BINARY" for (collation,) in collations):
                    raise UnsuitableTable(f"the primary key of {name} has a collation: different texts may be one row")
            elif not self._has_recursive_triggers:
                raise UnsuitableTable(
                    f"{name} has another unique index, {index}: INSERT OR REPLACE could delete a row of it without any"
                    " trigger, unless every connection sets PRAGMA recursive_triggers"
                )

    def _install(self, tables: Sequence[_Table]) -> None:
        execute = self._database.execute
        execute(
            f"CREATE TABLE IF NOT EXISTS {_OUTBOX}"
            " (number INTEGER PRIMARY KEY AUTOINCREMENT, of_table TEXT NOT NULL, key TEXT NOT NULL, row TEXT)"
        )
        for table in tables:
            is_new = not execute(
                "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?", (_trigger(table, "insert"),)
            ).fetchone()
            for statement in _triggers(table):
                execute(statement)
            if is_new:
                source = f"{_name(table.name)} AS r"
                execute(f"{_outbox_insert(table, _key_sql(table, 'r'), _row_sql(table, 'r'))} FROM {source}")


def _triggers(table: _Table) -> list[str]:
    """Made anew at every start: the table may have got other columns."""
    old_key, new_key = _key_sql(table, "OLD"), _key_sql(table, "NEW")
    put = _outbox_insert(table, new_key, _row_sql(table, "NEW"))
    remove = _outbox_insert(table, old_key, "NULL")
    bodies = {
        "insert": f"{put};",
        "update": f"{remove} WHERE {old_key} <> {new_key}; {put};",
        "delete": f"{remove};",
    }
    statements = []
    for event, body in bodies.items():
        trigger = _name(_trigger(table, event))
        statements.append(f"DROP TRIGGER IF EXISTS {trigger}")
        statements.append(f"CREATE TRIGGER {trigger} AFTER {event.upper()} ON {_name(table.name)} BEGIN {body} END")
    return statements


def _trigger(table: _Table, event: str) -> str:
    return f"duralog_{table.name}_{event}"


def _outbox_insert(table: _Table, key: str, row: str) -> str:
    return f"INSERT INTO {_OUTBOX} (of_table, key, row) SELECT {_text(table.name)}, {key}, {row}"


def _key_sql(table: _Table, alias: str) -> str:
    return f"json_array({', '.join(_value_sql(alias, column) for column in table.key)})"


def _row_sql(table: _Table, alias: str) -> str:
    pairs = [f"{_text(column)}, {_value_sql(alias, column)}" for column in table.columns]
    size = _COLUMNS_OF_ONE_OBJECT
    objects = [f"json_object({', '.join(pairs[first : first + size])})" for first in range(0, len(pairs), size)]
    if len(objects) == 1:
        return objects[0]
    contents = [f"substr({part}, 2, length({part}) - 2)" for part in objects]
    return " || ".join(["'{'", " || ',' || ".join(contents), "'}'"])


def _value_sql(alias: str, column: str) -> str:
    value = f"{alias}.{_name(column)}"
    return (
        f"CASE typeof({value}) WHEN 'blob' THEN json_object('blob', lower(hex({value})))"
        f" WHEN 'real' THEN iif(abs({value}) < 9e999, json(printf('%!.18g', {value})),"
        f" json_object('real', printf('%s', {value}))) ELSE {value} END"
    )


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _text(literal: str) -> str:
    return "'" + literal.replace("'", "''") + "'"
