"""A shop's database, its changes in a topic, and two copies of it that are lost and come back.

python -m examples.change_capture                                    the whole story, in a new folder
python -m examples.change_capture follow --database shop.db --tables products,orders --store data
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from pathlib import Path

import duralog
from examples.change_capture.change_topic import ChangeTopic
from examples.change_capture.copies import Cache, SearchIndex
from examples.change_capture.postgres_changes import PostgresChanges
from examples.change_capture.postgres_cluster import postgres_cluster, server_binaries
from examples.change_capture.shop import (
    POSTGRES_SCHEMA,
    SQLITE_SCHEMA,
    TABLES,
    RandomShop,
    run_in_postgres,
    run_in_sqlite,
)
from examples.change_capture.sqlite_changes import SqliteChanges
from examples.own_folder import make_anew

TOPIC = "shop.changes"
_PAUSE_SECONDS = 0.02


def follow_sqlite(database: str, tables: list[str], store_path: str) -> None:
    """Capture until the process is ended, in whatever way."""
    with duralog.open(store_path) as store:
        topic = ChangeTopic(store, TOPIC)
        source = SqliteChanges(database, tables, captured=topic.last)
        while True:
            if not capture_once(source, topic):
                time.sleep(_PAUSE_SECONDS)


def capture_once(source: SqliteChanges, topic: ChangeTopic) -> int:
    """First the log has them for good, then the database may forget them."""
    changes = source.read(topic.last)
    appended = topic.append(changes)
    if changes:
        source.forget(changes[-1].number)
    return appended


def capture_all(source: SqliteChanges, topic: ChangeTopic) -> int:
    total = 0
    while appended := capture_once(source, topic):
        total += appended
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.change_capture", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command")
    parser.add_argument(
        "--data", default="build/change_capture", help="where everything goes: a new folder, or one of an earlier run"
    )
    parser.add_argument("--changes", type=int, default=20_000)
    follow = commands.add_parser("follow", help="capture a SQLite database until the process is ended")
    follow.add_argument("--database", required=True)
    follow.add_argument("--tables", required=True, type=lambda text: text.split(","))
    follow.add_argument("--store", required=True)
    arguments = parser.parse_args()
    if arguments.command == "follow":
        follow_sqlite(arguments.database, arguments.tables, arguments.store)
    else:
        _show(Path(arguments.data), arguments.changes)


def _show(folder: Path, changes: int) -> None:
    make_anew(folder)
    with duralog.open(folder / "log", {"log.cleaner.enable": False, "log.segment.bytes": 1 << 20}) as store:
        print("SQLite")
        with sqlite3.connect(folder / "shop.db", isolation_level=None) as shop:
            shop.executescript(SQLITE_SCHEMA)
            source = SqliteChanges(str(folder / "shop.db"), TABLES)
            topic = ChangeTopic(store, TOPIC)
            run_in_sqlite(shop, RandomShop(seed=7).transactions(changes))
            print(f"  {capture_all(source, topic):,} changes captured")
            expected = sum(shop.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)
        _show_copies(store, TOPIC, folder / "search.db", expected)

        binaries = server_binaries()
        if binaries is None:
            print("PostgreSQL: no server is installed here")
            return
        print("PostgreSQL")
        with postgres_cluster(binaries) as connection:
            tables = [f"public.{table}" for table in TABLES]
            psql = str(binaries / "psql")
            run_in_postgres(psql, connection, POSTGRES_SCHEMA)
            postgres = PostgresChanges(connection, tables, psql=psql)
            topic = ChangeTopic(store, "postgres.changes")
            run_in_postgres(psql, connection, *RandomShop(seed=8).postgres_transactions(changes))
            print(f"  {postgres.follow(topic):,} changes captured")
            counted = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in TABLES)
            expected = int(run_in_postgres(psql, connection, f"SELECT sum(count) FROM ({counted}) AS all_tables;"))
        _show_copies(store, "postgres.changes", folder / "search-postgres.db", expected)


def _show_copies(store: duralog.Store, topic: str, index_path: Path, expected: int) -> None:
    log = store.partition(topic, 0)
    log.roll()
    report = store.compact(topic, 0)
    print(f"  {report.records_before:,} records compacted to {report.records_after:,}")
    cache = Cache()
    read = cache.follow(log)
    index = SearchIndex(str(index_path))
    index.follow(log)
    print(f"  from {read:,} of them a cache of {len(cache.rows):,} rows and an index of {len(index):,}")
    print(f"  the database has {expected:,} rows")
    print(f"  'red kettle' is in {len(index.search('red kettle')):,} of them")
    index.close()
    if not len(cache.rows) == expected:
        raise SystemExit("the cache is not what the database is")


if __name__ == "__main__":
    main()
