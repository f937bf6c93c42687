"""What is built from the topic and can be built again: a cache, and a search index.

Each follows the log from the offset where it stopped, and an empty one becomes complete by following it from the start:
a compacted topic has the last value of every row, for ever. One that was away for longer than the topic's
`delete.retention.ms` must start anew, since tombstones may be gone that it has not seen.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import duralog
from examples.change_capture.change_topic import Row, read_changes


class Cache:
    """Rows by table and key, in memory: lost with the process, and rebuilt when the next one starts."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, tuple[Any, ...]], Row] = {}
        self._next_offset = 0

    def follow(self, log: duralog.PartitionLog) -> int:
        """Take in what is new. Returns how many changes that were."""
        count = 0
        for offset, change in read_changes(log, max(self._next_offset, log.start_offset)):
            if change.row is None:
                self.rows.pop((change.table, change.key), None)
            else:
                self.rows[change.table, change.key] = change.row
            self._next_offset = offset + 1
            count += 1
        return count


class SearchIndex:
    """Full text search over the rows, in a file. Its place in the log changes with its contents or not at all."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            """
            CREATE TABLE IF NOT EXISTS place (next_offset INTEGER NOT NULL);
            INSERT INTO place SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM place);
            CREATE TABLE IF NOT EXISTS documents (
                id INTEGER PRIMARY KEY, of_table TEXT, key TEXT, UNIQUE (of_table, key)
            );
            CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (text);
            """
        )

    def follow(self, log: duralog.PartitionLog) -> int:
        execute = self._database.execute
        count = 0
        execute("BEGIN IMMEDIATE")
        with self._database:
            (next_offset,) = execute("SELECT next_offset FROM place").fetchone()
            for offset, change in read_changes(log, max(next_offset, log.start_offset)):
                named = (change.table, json.dumps(change.key))
                for (document,) in execute(
                    "DELETE FROM documents WHERE of_table = ? AND key = ? RETURNING id", named
                ).fetchall():
                    execute("DELETE FROM words WHERE rowid = ?", (document,))
                if change.row is not None:
                    text = " ".join(value for value in change.row.values() if isinstance(value, str))
                    document = execute("INSERT INTO documents (of_table, key) VALUES (?, ?)", named).lastrowid
                    execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (document, text))
                next_offset = offset + 1
                count += 1
            execute("UPDATE place SET next_offset = ?", (next_offset,))
        return count

    def search(self, text: str) -> set[tuple[str, tuple[Any, ...]]]:
        """Table and key of the rows that have all of these words in their texts."""
        words = re.findall(r"\w+", text)
        found = self._database.execute(
            "SELECT of_table, key FROM words JOIN documents ON documents.id = words.rowid WHERE words MATCH ?",
            (" ".join(f'"{word}"' for word in words),),
        )
        return {(table, tuple(json.loads(key))) for table, key in found} if words else set()

    def __len__(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM words").fetchone()
        return int(count)

    def close(self) -> None:
        self._database.close()
