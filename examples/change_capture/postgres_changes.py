"""The changes of a PostgreSQL database, by logical decoding through a replication slot.

The slot keeps PostgreSQL's own log until it is told that a position is not needed any more. That is told only after the
changes up to there are safe in the topic; after a crash in between, they come again, and the topic leaves them out by
their numbers: position of the commit, and place in the transaction.

Rows from before the slot are copied once, after the slot was made. What was changed while they were copied comes from
the slot as well: in the end each row has its last value, since the slot's changes follow the copy. Until the copy is
complete the log has no number, so that a copy that was cut off begins anew.

`psql` does the talking, one JSON array a line.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from examples.change_capture.change_topic import Change, ChangeTopic, Emptied
from examples.change_capture.pgoutput import Committed, Decoder

_PRIMARY_KEYS = """
SELECT json_build_array(
    n.nspname || '.' || c.relname,
    json_agg(a.attname ORDER BY array_position(i.indkey::int[], a.attnum::int))
)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
WHERE i.indisprimary AND n.nspname || '.' || c.relname IN (SELECT json_array_elements_text(:'tables'))
GROUP BY n.nspname, c.relname;
"""
_PEEK = """
SELECT json_build_array(encode(data, 'hex')) FROM pg_logical_slot_peek_binary_changes(
    :'slot', NULL, :limit, 'proto_version', '1', 'publication_names', :'publication');
"""


class PostgresError(RuntimeError):
    """What psql said, or why a database cannot be captured."""


class PostgresChanges:
    """Captures tables, named `schema.table`, with a publication and a slot of this name."""

    def __init__(self, connection: str, tables: Sequence[str], *, name: str = "duralog", psql: str = "psql") -> None:
        self._connection = connection
        self._psql = psql
        self._name = name
        self._tables = tables
        self._primary_keys: dict[str, list[str]] = dict(self._rows(_PRIMARY_KEYS, tables=json.dumps(tables)))
        for table in tables:
            if table not in self._primary_keys:
                raise PostgresError(f"there is no table {table} with a primary key, which tells what a change is of")
        self._install(tables)

    def follow(self, topic: ChangeTopic, *, limit: int = 5_000) -> int:
        """Bring what is new into the topic, about so many changes at once. Returns how many."""
        appended = 0
        if topic.last is None:
            appended = self._copy(topic)
        elif topic.last[0] > (position := self._position("pg_current_wal_lsn()")):
            raise PostgresError(
                f"the log has changes up to position {topic.last[0]}, the server is at {position}: it is another one,"
                " or an old copy"
            )
        while True:
            messages = (
                bytes.fromhex(data)
                for (data,) in self._rows(_PEEK, slot=self._name, limit=limit, publication=self._name)
            )
            changes: list[Change | Emptied] = []
            end_lsn = 0
            for event in Decoder(self._primary_keys).decode(messages):
                if isinstance(event, Committed):
                    end_lsn = event.end_lsn
                else:
                    changes.append(event)
            if not end_lsn:
                return appended
            appended += topic.append(changes)
            self._release(end_lsn)

    def _copy(self, topic: ChangeTopic) -> int:
        confirmed = "confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = :'slot'"
        position = self._position(f"(SELECT {confirmed})")
        # Below every number that the slot gives: a transaction in it is committed behind this position.
        return topic.append_copy(self._existing_rows(), (position, 0))

    def _position(self, lsn: str) -> int:
        """A place in PostgreSQL's log as a number."""
        [[position]] = self._rows(f"SELECT json_build_array({lsn} - '0/0'::pg_lsn);", slot=self._name)
        return int(position)

    def _existing_rows(self) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        for table in self._tables:
            for (row,) in self._read(
                f"SELECT json_build_array({_texts_sql(self._columns(table))}) FROM {_name(table)} AS r;"
            ):
                yield table, tuple(row[column] for column in self._primary_keys[table]), row

    def _columns(self, table: str) -> list[str]:
        return [
            column
            for (column,) in self._rows(
                "SELECT json_build_array(attname) FROM pg_attribute WHERE attrelid = :'table'::regclass"
                " AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum;",
                table=_name(table),
            )
        ]

    def _release(self, end_lsn: int) -> None:
        self._rows(
            "SELECT json_build_array(pg_replication_slot_advance(:'slot', :'lsn')::text);",
            slot=self._name,
            lsn=f"{end_lsn >> 32:X}/{end_lsn & 0xFFFFFFFF:X}",
        )

    def _install(self, tables: Sequence[str]) -> None:
        """Each step only where it was not done yet. The slot comes last: it starts to count when all else is there."""
        if not self._rows("SELECT json_build_array(1) FROM pg_publication WHERE pubname = :'name';", name=self._name):
            full = "".join(f"ALTER TABLE {_name(table)} REPLICA IDENTITY FULL;" for table in tables)
            published = ", ".join(_name(table) for table in tables)
            self._rows(f'BEGIN; {full} CREATE PUBLICATION :"name" FOR TABLE {published}; COMMIT;', name=self._name)
        if not self._rows(
            "SELECT json_build_array(1) FROM pg_replication_slots WHERE slot_name = :'name';", name=self._name
        ):
            self._rows(
                "SELECT json_build_array(lsn::text) FROM pg_create_logical_replication_slot(:'name', 'pgoutput');",
                name=self._name,
            )

    def _rows(self, sql: str, **variables: object) -> list[Any]:
        return list(self._read(sql, **variables))

    def _read(self, sql: str, **variables: object) -> Iterator[Any]:
        """Every row of the answer is one JSON array. Values go in as variables, which psql quotes."""
        command = [self._psql, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"]
        for name, value in variables.items():
            command += ["--set", f"{name}={value}"]
        command += ["--set", "FETCH_COUNT=1000", "--dbname", self._connection, "--file", "-"]
        with (
            tempfile.TemporaryFile("w+") as script,
            tempfile.TemporaryFile("w+") as errors,
        ):
            script.write(sql)
            script.seek(0)
            with subprocess.Popen(command, stdin=script, stdout=subprocess.PIPE, stderr=errors) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if line != b"\n":
                        yield json.loads(line)
            if process.returncode:
                errors.seek(0)
                raise PostgresError(errors.read().strip())


def _texts_sql(columns: Sequence[str]) -> str:
    """A JSON object of the row with every value as text, as the slot has them."""
    names = ", ".join(_text(column) for column in columns)
    values = ", ".join(f'r."{_doubled(column)}"::text' for column in columns)
    return f"json_object(ARRAY[{names}], ARRAY[{values}])"


def _name(table: str) -> str:
    return ".".join(f'"{_doubled(part)}"' for part in table.split(".", 1))


def _doubled(identifier: str) -> str:
    return identifier.replace('"', '""')


def _text(literal: str) -> str:
    return "'" + literal.replace("'", "''") + "'"
