"""The changes of a database are in the topic once each and in order, and the copies equal the database."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duralog
from examples.change_capture.__main__ import TOPIC, capture_all, capture_once
from examples.change_capture.change_topic import Change, ChangeTopic, Emptied, latest_rows, number_of, read_changes
from examples.change_capture.copies import Cache, SearchIndex
from examples.change_capture.pgoutput import BadMessage, Decoder
from examples.change_capture.postgres_changes import PostgresChanges, PostgresError
from examples.change_capture.postgres_cluster import postgres_cluster, server_binaries
from examples.change_capture.shop import (
    POSTGRES_SCHEMA,
    SQLITE_SCHEMA,
    TABLES,
    RandomShop,
    run_in_postgres,
    run_in_sqlite,
)
from examples.change_capture.sqlite_changes import OlderDatabase, SqliteChanges, UnsuitableTable
from tests.support.places import ROOT

WHEN_ASKED = {"log.cleaner.enable": False, "log.segment.bytes": 1 << 20}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[duralog.Store]:
    with duralog.open(tmp_path / "log", WHEN_ASKED) as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(tmp_path / "shop.db", timeout=60, isolation_level=None)
    database.executescript(SQLITE_SCHEMA)
    yield database
    database.close()


def sqlite_rows(database: sqlite3.Connection) -> dict[tuple[str, tuple[Any, ...]], dict[str, Any]]:
    rows = {}
    for table, key in (("products", ("id",)), ("orders", ("customer", "number"))):
        cursor = database.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        for values in cursor:
            row = dict(zip(names, values, strict=True))
            rows[table, tuple(row[column] for column in key)] = row
    return rows


def from_json(row: dict[str, Any]) -> dict[str, Any]:
    """With the bytes and infinities that JSON holds as objects."""
    return {column: _value(value) for column, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        [(kind, text)] = value.items()
        return bytes.fromhex(text) if kind == "blob" else float(text)
    return value


def assert_index_is_of(index: SearchIndex, rows: dict[tuple[str, tuple[Any, ...]], dict[str, Any]]) -> None:
    """Every word finds the rows that have it in their texts, and no others."""
    expected: dict[str, set[tuple[str, tuple[Any, ...]]]] = {}
    for named, row in rows.items():
        texts = " ".join(value for value in row.values() if isinstance(value, str) and not value.startswith("\\x"))
        for word in re.findall(r"[^\W\d]+", texts.lower()):
            expected.setdefault(word, set()).add(named)
    for word in ("red", "kettle", "straße", "茶", "best", "customer"):
        assert index.search(word) == expected.get(word, set()), word
    assert index.search("red kettle") == expected["red"] & expected["kettle"]
    assert index.search("nowhere") == set()
    assert len(index) == len(rows)


def captured_numbers(log: duralog.PartitionLog) -> list[tuple[int, ...]]:
    return [change.number for _, change in read_changes(log, log.start_offset)]


def test_a_follower_that_is_killed_again_and_again_loses_and_repeats_nothing(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    chance = random.Random(3)
    random_shop = RandomShop(seed=3)
    log_path = tmp_path / "log"
    command = [sys.executable, "-m", "examples.change_capture", "follow", "--tables", "products,orders"]
    command += ["--database", str(tmp_path / "shop.db"), "--store", str(log_path)]
    run_in_sqlite(shop, random_shop.transactions(50))
    for kill in range(4):
        follower = subprocess.Popen(command, cwd=ROOT)
        try:
            # It has begun: what it found is in the log. From there on it is killed at any moment.
            seen = _end_offset(log_path)
            run_in_sqlite(shop, random_shop.transactions(300))
            while _end_offset(log_path) == seen:
                assert follower.poll() is None
                time.sleep(0.01)
            run_in_sqlite(shop, random_shop.transactions(chance.randrange(400)))
        finally:
            follower.kill()
            follower.wait()
        assert follower.returncode == -9, kill
    with duralog.open(log_path) as store:
        topic = ChangeTopic(store, TOPIC)
        source = SqliteChanges(str(tmp_path / "shop.db"), TABLES, captured=topic.last)
        capture_all(source, topic)
        source.close()
        (last,) = shop.execute("SELECT seq FROM sqlite_sequence WHERE name = 'duralog_changes'").fetchone()
        assert captured_numbers(topic.log) == [(number,) for number in range(1, last + 1)]
        assert shop.execute("SELECT count(*) FROM duralog_changes").fetchone() == (0,)
        cache = Cache()
        cache.follow(topic.log)
    assert {named: from_json(row) for named, row in cache.rows.items()} == sqlite_rows(shop)


def _end_offset(path: Path) -> int:
    try:
        with duralog.open(path, read_only=True) as store:
            return store.partition(TOPIC, 0).end_offset
    except duralog.DuralogError:
        return 0


def test_copies_equal_the_database_with_compaction_in_between(
    tmp_path: Path, shop: sqlite3.Connection, store: duralog.Store
) -> None:
    random_shop = RandomShop(seed=4)
    run_in_sqlite(shop, random_shop.transactions(100))  # These are there before anybody captures.
    source = SqliteChanges(str(tmp_path / "shop.db"), TABLES)
    topic = ChangeTopic(store, TOPIC)
    along, index_along = Cache(), SearchIndex(str(tmp_path / "along.db"))
    went = 0
    for part in range(4):
        run_in_sqlite(shop, random_shop.transactions(800))
        capture_all(source, topic)
        if part % 2:
            along.follow(topic.log)
            index_along.follow(topic.log)
        topic.log.roll()
        report = store.compact(TOPIC, 0)
        went += report.records_before - report.records_after
    along.follow(topic.log)
    index_along.follow(topic.log)
    source.close()
    anew, index_anew = Cache(), SearchIndex(str(tmp_path / "anew.db"))
    anew.follow(topic.log)
    index_anew.follow(topic.log)

    rows = sqlite_rows(shop)
    assert went > 1_000
    assert len(rows) > 100
    assert {named: from_json(row) for named, row in anew.rows.items()} == rows
    assert along.rows == anew.rows == latest_rows(topic.log)
    for index in (index_along, index_anew):
        assert_index_is_of(index, rows)
        index.close()


def test_values_come_back_as_they_were(tmp_path: Path, store: duralog.Store) -> None:
    chance = random.Random(5)
    doubles = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(500)]
    values: list[Any] = [
        0,
        -1,
        2**63 - 1,
        -(2**63),
        0.1,
        1e300,
        5e-324,
        float("inf"),
        -float("inf"),
        None,
        b"",
        b"\0\xff",
    ]
    values += [
        "",
        "a\0b",
        "quotes \" ' \\",
        '{"blob": "00"}',
        "[1]",
        "\u2028\n\t\x01",
        "茶",
        *(d for d in doubles if d == d),
    ]
    database = sqlite3.connect(tmp_path / "values.db", isolation_level=None)
    database.execute('CREATE TABLE "odd ""name\'s" (id INTEGER PRIMARY KEY, "the \'value"" " ANY)')
    database.executemany('INSERT INTO "odd ""name\'s" VALUES (?, ?)', list(enumerate(values)))
    source = SqliteChanges(str(tmp_path / "values.db"), ["odd \"name's"])
    topic = ChangeTopic(store, "values")
    capture_all(source, topic)
    rows = latest_rows(topic.log)
    assert [_value(rows["odd \"name's", (number,)]["the 'value\" "]) for number in range(len(values))] == values
    source.close()
    database.close()


def test_a_table_of_many_columns(tmp_path: Path, store: duralog.Store) -> None:
    names = [f"c{number}" for number in range(130)]
    database = sqlite3.connect(tmp_path / "wide.db", isolation_level=None)
    database.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(names)})")
    source = SqliteChanges(str(tmp_path / "wide.db"), ["wide"])
    database.execute(f"INSERT INTO wide VALUES (1, {', '.join('?' * 130)})", [f"}},{{ {n}" for n in range(130)])
    topic = ChangeTopic(store, "wide")
    assert capture_once(source, topic) == 1
    assert latest_rows(topic.log)["wide", (1,)] == {"id": 1, **{f"c{n}": f"}},{{ {n}" for n in range(130)}}
    source.close()
    database.close()


def test_replaced_cascaded_and_renumbered_rows(tmp_path: Path, store: duralog.Store) -> None:
    database = sqlite3.connect(tmp_path / "odd.db", isolation_level=None)
    database.executescript(
        """
        PRAGMA foreign_keys = ON;
        PRAGMA recursive_triggers = ON;
        CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
        CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents ON DELETE CASCADE);
        """
    )
    source = SqliteChanges(str(tmp_path / "odd.db"), ["parents", "children"], has_recursive_triggers=True)
    database.executescript(
        """
        INSERT INTO parents VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four');
        INSERT INTO children VALUES (10, 1), (11, 1), (12, 2), (13, 3);
        INSERT OR REPLACE INTO parents VALUES (5, 'four');     -- 4 goes, since the name is taken over
        INSERT OR REPLACE INTO parents VALUES (3, 'third');    -- and 13 with the old 3
        DELETE FROM parents WHERE id = 1;                      -- 10 and 11 go with it
        UPDATE parents SET id = id + 100 WHERE id = 5;
        INSERT OR IGNORE INTO parents VALUES (6, 'third');
        BEGIN; DELETE FROM parents; ROLLBACK;
        """
    )
    topic = ChangeTopic(store, "odd")
    capture_all(source, topic)
    rows = {(table, key[0]): row for (table, key), row in latest_rows(topic.log).items()}
    assert rows == {
        ("parents", 2): {"id": 2, "name": "two"},
        ("parents", 3): {"id": 3, "name": "third"},
        ("parents", 105): {"id": 105, "name": "four"},
        ("children", 12): {"id": 12, "parent": 2},
    }
    database.execute("DELETE FROM parents")
    capture_all(source, topic)
    assert latest_rows(topic.log) == {}
    source.close()
    database.close()


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("t (a INTEGER)", "no primary key"),
        ("t (a TEXT PRIMARY KEY)", "may be NULL"),
        ("t (a REAL NOT NULL PRIMARY KEY)", "neither integer nor text"),
        ("t (a NOT NULL PRIMARY KEY)", "of type unknown"),
        ("t (a TEXT NOT NULL COLLATE NOCASE PRIMARY KEY)", "collation"),
        ("t (a INTEGER PRIMARY KEY, b UNIQUE)", "INSERT OR REPLACE"),
        ("u (a INTEGER PRIMARY KEY)", "no table t"),
    ],
)
def test_tables_whose_changes_could_be_lost_are_refused(tmp_path: Path, definition: str, reason: str) -> None:
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute(f"CREATE TABLE {definition}")
    database.close()
    with pytest.raises(UnsuitableTable, match=reason):
        SqliteChanges(str(tmp_path / "x.db"), ["t"])
    database = sqlite3.connect(tmp_path / "x.db")
    assert database.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'duralog%'").fetchone() == (0,)
    database.close()


def test_a_database_from_before_the_log_is_refused(
    tmp_path: Path, shop: sqlite3.Connection, store: duralog.Store
) -> None:
    """Its next changes would get numbers that the log has already, and be taken for old ones."""
    topic = ChangeTopic(store, TOPIC)
    topic.append([Change((10,), "products", (1,), {"id": 1})])
    with pytest.raises(OlderDatabase, match="has change 10, the last one of the database is 0"):
        SqliteChanges(str(tmp_path / "shop.db"), TABLES, captured=topic.last)
    run_in_sqlite(shop, RandomShop(seed=1).transactions(50))
    with pytest.raises(OlderDatabase):
        SqliteChanges(str(tmp_path / "missing.db"), [], captured=topic.last)
    SqliteChanges(str(tmp_path / "shop.db"), TABLES, captured=topic.last).close()
    (first,) = shop.execute("SELECT min(number) FROM duralog_changes").fetchone()
    assert first == 11


def changes_of(numbers: range) -> list[Change]:
    return [Change((number,), "t", (number % 7,), {"n": number} if number % 3 else None) for number in numbers]


def test_an_append_that_was_cut_off_is_completed(store: duralog.Store) -> None:
    topic = ChangeTopic(store, "t")
    topic.append(changes_of(range(1, 20)))
    records = [*topic.log.read(0)]
    topic.append(changes_of(range(20, 40)))
    for kept in range(len(records), topic.log.end_offset):
        store.create_topic(f"cut-{kept}", 1, {"cleanup.policy": "compact"})
        store.partition(f"cut-{kept}", 0).append([*topic.log.read(0)][:kept])
        cut = ChangeTopic(store, f"cut-{kept}")
        cut.append(changes_of(range(10, 40)))
        assert captured_numbers(cut.log) == [(number,) for number in range(1, 40)]


def test_the_last_number_outlives_every_change(store: duralog.Store) -> None:
    """Even if all that is left of the last change is a tombstone, and that expires."""
    store.create_topic("t", 1, {"cleanup.policy": "compact", "delete.retention.ms": 0})
    topic = ChangeTopic(store, "t")
    topic.append([*changes_of(range(1, 20)), Change((20,), "t", (6,), None)])
    topic.log.roll()
    for _ in range(3):
        store.compact("t", 0, again=True)
    assert all(change.row is not None for _, change in read_changes(topic.log, 0))
    assert max(captured_numbers(topic.log)) < (20,)
    again = ChangeTopic(store, "t")
    assert again.last == (20,)
    assert again.append(changes_of(range(15, 21))) == 0


def test_large_changes_are_appended_in_pieces(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "log", {"log.segment.bytes": 4 << 20}) as store:
        topic = ChangeTopic(store, "t")
        chance = random.Random(6)
        changes = [Change((n,), "t", (n,), {"text": chance.randbytes(50_000).hex()}) for n in range(100)]
        assert topic.append(changes) == 100
        assert captured_numbers(topic.log) == [(number,) for number in range(100)]
        assert len(topic.log.segments) > 1


@pytest.mark.parametrize("kept", range(5))
def test_a_table_that_is_emptied(store: duralog.Store, kept: int) -> None:
    """Its tombstones come once each, also if only some of them got into the log before a crash."""
    rows = [Change((1, n), "t", (n,), {"n": n}) for n in range(4)] + [Change((1, 4), "other", (1,), {"n": 1})]
    story: list[Change | Emptied] = [*rows, Emptied((2, 1), "t"), Change((2, 2), "t", (9,), {"n": 9})]
    whole = ChangeTopic(store, "whole")
    whole.append(story)
    store.create_topic("cut", 1, {"cleanup.policy": "compact"})
    store.partition("cut", 0).append([*whole.log.read(0)][: len(rows) + 1 + kept])
    cut = ChangeTopic(store, "cut")
    cut.append(story)
    cut.append(story)
    for topic in (whole, cut):
        assert latest_rows(topic.log) == {("other", (1,)): {"n": 1}, ("t", (9,)): {"n": 9}}
        numbers = captured_numbers(topic.log)
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 10


def test_keys_and_values_are_readable_json(tmp_path: Path, shop: sqlite3.Connection, store: duralog.Store) -> None:
    source = SqliteChanges(str(tmp_path / "shop.db"), TABLES)
    shop.execute("INSERT INTO products VALUES (1, 'Straße', NULL, 9.5, x'00ff')")
    shop.execute("DELETE FROM products")
    topic = ChangeTopic(store, TOPIC)
    capture_once(source, topic)
    source.close()
    first, second, captured = topic.log.read(0)
    assert first.key == second.key == b'["products",1]'
    assert first.value == '{"id":1,"name":"Straße","note":null,"price":9.5,"picture":{"blob":"00ff"}}'.encode()
    assert second.value is None
    assert [number_of(record) for record in (first, second, captured)] == [(1,), (2,), (2,)]


# PostgreSQL


@pytest.fixture(scope="module")
def binaries() -> Path:
    found = server_binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed: initdb, pg_ctl and postgres are not found")
    return found


@pytest.fixture(scope="module")
def cluster(binaries: Path) -> Iterator[str]:
    with postgres_cluster(binaries) as connection:
        yield connection


class Postgres:
    """A database of its own in the cluster."""

    def __init__(self, binaries: Path, cluster: str, name: str) -> None:
        self.psql = str(binaries / "psql")
        run_in_postgres(self.psql, cluster, f"CREATE DATABASE {name};")
        self.name = name
        self.connection = cluster.replace("dbname=postgres", f"dbname={name}")
        self.run(POSTGRES_SCHEMA)

    def run(self, *scripts: str) -> str:
        return run_in_postgres(self.psql, self.connection, *scripts)

    def changes(self) -> PostgresChanges:
        tables = [f"public.{table}" for table in TABLES]
        return PostgresChanges(self.connection, tables, name=self.name, psql=self.psql)

    def rows(self) -> dict[tuple[str, tuple[Any, ...]], dict[str, Any]]:
        found = {}
        for table, key in (("products", ("id",)), ("orders", ("customer", "number"))):
            for line in self.run(f"SELECT row_to_json(t) FROM (SELECT {COLUMNS[table]} FROM {table}) t;").split("\n"):
                if line:
                    row = json.loads(line)
                    found[f"public.{table}", tuple(row[column] for column in key)] = row
        return found


COLUMNS = {
    "products": "id::text, name, note, price::text, picture::text",
    "orders": "customer, number::text, note, amount::text",
}


def test_postgres_copies_equal_the_database(tmp_path: Path, binaries: Path, cluster: str, store: duralog.Store) -> None:
    postgres = Postgres(binaries, cluster, "equal")
    shop = RandomShop(seed=9)
    postgres.run(*shop.postgres_transactions(100))
    source = postgres.changes()
    topic = ChangeTopic(store, TOPIC)
    index = SearchIndex(str(tmp_path / "index.db"))
    for part in range(3):
        postgres.run(*shop.postgres_transactions(400))
        assert source.follow(topic, limit=100) > 100
        index.follow(topic.log)
        topic.log.roll()
        report = store.compact(TOPIC, 0)
        assert report.records_after < report.records_before, part
    assert source.follow(topic) == 0
    rows = postgres.rows()
    assert len(rows) > 100
    cache = Cache()
    cache.follow(topic.log)
    assert cache.rows == rows
    assert_index_is_of(index, rows)
    index.close()


def test_postgres_changes_that_come_again_are_left_out(
    binaries: Path, cluster: str, store: duralog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the append to the log and the word to the slot."""
    postgres = Postgres(binaries, cluster, "again")
    source = postgres.changes()
    topic = ChangeTopic(store, TOPIC)
    assert source.follow(topic) == 0
    shop = RandomShop(seed=10)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        postgres.run(*shop.postgres_transactions(150))
        killed = postgres.changes()
        monkeypatch.setattr(killed, "_release", die)
        with pytest.raises(KeyboardInterrupt):
            killed.follow(ChangeTopic(store, TOPIC))
    source = postgres.changes()
    assert source.follow(ChangeTopic(store, TOPIC)) == 0
    numbers = captured_numbers(topic.log)
    assert numbers == sorted(set(numbers))
    assert latest_rows(topic.log) == postgres.rows()


def test_postgres_truncated_tables_large_values_and_odd_texts(
    binaries: Path, cluster: str, store: duralog.Store
) -> None:
    postgres = Postgres(binaries, cluster, "odd")
    postgres.run("INSERT INTO orders VALUES ('before', 1, 'x', 1), ('before', 2, NULL, 2);")
    source = postgres.changes()
    topic = ChangeTopic(store, TOPIC)
    # A value of a megabyte that does not compress is stored out of line, and not sent again when it stays.
    large = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 20000) i)"
    postgres.run(
        f"INSERT INTO products VALUES (1, E'a\\n\\u2028''\"', {large}, 'NaN', '\\x00');",
        "UPDATE products SET price = 'Infinity';",
        "UPDATE products SET id = 2;",
        "TRUNCATE orders;",
        "INSERT INTO orders VALUES ('after', 1, '', 0.10);",
    )
    source.follow(topic)
    rows = latest_rows(topic.log)
    assert rows == postgres.rows()
    assert set(rows) == {("public.products", ("2",)), ("public.orders", ("after", "1"))}
    assert len(rows["public.products", ("2",)]["note"]) == 640_000


def test_a_postgres_server_from_before_the_log_is_refused(binaries: Path, cluster: str, store: duralog.Store) -> None:
    postgres = Postgres(binaries, cluster, "older")
    topic = ChangeTopic(store, TOPIC)
    topic.append([Change((2**60, 1), "public.products", ("1",), None)])
    with pytest.raises(PostgresError, match="an old copy"):
        postgres.changes().follow(topic)


def test_postgres_tables_without_a_key_are_refused(binaries: Path, cluster: str) -> None:
    postgres = Postgres(binaries, cluster, "keyless")
    postgres.run("CREATE TABLE keyless (a integer);")
    for table in ("public.keyless", "public.none"):
        with pytest.raises(PostgresError, match=f"no table {table} with a primary key"):
            PostgresChanges(postgres.connection, ["public.orders", table], name="keyless", psql=postgres.psql)
    # Nothing was begun: a slot that nobody follows would keep PostgreSQL's log for ever.
    assert postgres.run("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'keyless';") == "0"
    assert postgres.run("SELECT count(*) FROM pg_publication;") == "0"


RELATION = b"R" + struct.pack(">I", 7) + b"public\0t\0f" + struct.pack(">H", 2)
RELATION += b"\1id\0" + bytes(8) + b"\0note\0" + bytes(8)
INSERT = b"I" + struct.pack(">I", 7) + b"N" + struct.pack(">H", 2) + b"t" + struct.pack(">i", 2) + b"17" + b"n"
UPDATE = b"U" + struct.pack(">I", 7) + b"N" + struct.pack(">H", 2) + b"t" + struct.pack(">i", 2) + b"17" + b"u"
BEGIN = b"B" + struct.pack(">QQI", 5, 0, 1)


def test_messages_of_postgres_that_are_cut_off_or_unknown_are_refused() -> None:
    keys = {"public.t": ["id"]}
    [change] = Decoder(keys).decode([BEGIN, RELATION, INSERT])
    assert change == Change((5, 1), "public.t", ("17",), {"id": "17", "note": None})
    for message, before in ((BEGIN[:9], []), (RELATION, []), (INSERT, [RELATION])):
        for size in range(len(message)):
            with pytest.raises(BadMessage):
                list(Decoder(keys).decode([*before, message[:size]]))
    for messages, reason in (
        ([INSERT], "never described"),
        ([b"Z"], "kind"),
        ([RELATION, UPDATE], "REPLICA IDENTITY FULL"),
        ([RELATION, INSERT.replace(b"N", b"X")], "marked"),
    ):
        with pytest.raises(BadMessage, match=reason):
            list(Decoder(keys).decode(messages))
    with pytest.raises(BadMessage, match="no primary key"):
        list(Decoder({}).decode([RELATION]))


def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.change_capture", "--data", str(tmp_path / "data"), "--changes", "500"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "SQLite" in done.stdout
    assert "changes captured" in done.stdout
