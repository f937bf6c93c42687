"""Event sourcing: bank accounts whose only store is the log of what happened to them.

A command (deposit, withdraw, ...) is checked against the state, becomes an event in the log, and the event changes the
state: there is no other way to change it. So the state is never more than a fold over events, and can be had again for
any point in time: by reading the log with the store, by a query of Spark over its files, and, since each event also
carries the balance it led to, by Spark's snapshot job, which takes the last event of each account.

All events of an account are in one partition, in order. Their times never go back in a partition, so that "before noon"
is a prefix of it, found by the time index.

    python -m examples.event_sourcing
"""

from __future__ import annotations

import argparse
import json
import random
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duralog
from examples.own_folder import make_anew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "account.events"
PARTITIONS = 3
HOUR_MS = 3_600_000
_KEEP_ALL = {"retention.ms": -1, "retention.bytes": -1}


class Refused(ValueError):
    """The state does not allow the command. Nothing happened."""


class Account(NamedTuple):
    cents: int = 0
    is_open: bool = False


Accounts = dict[str, Account]


class Event(NamedTuple):
    account: str
    kind: str
    """`opened`, `deposited`, `withdrawn` or `closed`."""
    cents: int = 0


def apply(account: Account, event: Event) -> Account:
    """What an event makes of an account. It must hold for every event that was ever written."""
    match event.kind:
        case "opened":
            return Account(0, is_open=True)
        case "deposited":
            return account._replace(cents=account.cents + event.cents)
        case "withdrawn":
            return account._replace(cents=account.cents - event.cents)
        case "closed":
            return account._replace(is_open=False)
    raise ValueError(f"an event of kind {event.kind!r}")


class Bank:
    """Takes commands. When it starts, it reads what happened so far."""

    def __init__(self, store: duralog.Store, clock: Callable[[], int]) -> None:
        if TOPIC not in store.topics():
            store.create_topic(TOPIC, PARTITIONS, _KEEP_ALL)
        self._logs = [store.partition(TOPIC, number) for number in store.partitions(TOPIC)]
        self._clock = clock
        self._last_ms = max((record.timestamp_ms for record in _records(store)), default=0)
        self.accounts = state_of(store)

    def open(self, account: str) -> None:
        if account in self.accounts:
            raise Refused(f"there was an account {account} before")
        self._write(Event(account, "opened"))

    def deposit(self, account: str, cents: int) -> None:
        self._check_open(account, cents)
        self._write(Event(account, "deposited", cents))

    def withdraw(self, account: str, cents: int) -> None:
        if self._check_open(account, cents).cents < cents:
            raise Refused(f"account {account} has less than {cents}")
        self._write(Event(account, "withdrawn", cents))

    def close(self, account: str) -> None:
        if self._check_open(account, 1).cents:
            raise Refused(f"account {account} is not empty")
        self._write(Event(account, "closed"))

    def _check_open(self, name: str, cents: int) -> Account:
        account = self.accounts.get(name, Account())
        if not account.is_open:
            raise Refused(f"account {name} is not open")
        if cents <= 0:
            raise Refused(f"{cents} is not an amount")
        return account

    def _write(self, event: Event) -> None:
        # First the log, then the state: what is not written did not happen.
        after = apply(self.accounts.get(event.account, Account()), event)
        self._last_ms = max(self._last_ms, self._clock())
        value = {"kind": event.kind, "cents": event.cents, "balance": after.cents, "is_open": after.is_open}
        record = duralog.Record(
            key=event.account.encode(), value=json.dumps(value).encode(), timestamp_ms=self._last_ms
        )
        self._logs[zlib.crc32(event.account.encode()) % len(self._logs)].append([record])
        self.accounts[event.account] = after


def state_of(store: duralog.Store, before_ms: int | None = None) -> Accounts:
    """The accounts as they were at this time, before whatever happened in that millisecond; or as they are now."""
    accounts: Accounts = {}
    for record in _records(store, before_ms):
        event = event_of(record)
        accounts[event.account] = apply(accounts.get(event.account, Account()), event)
    return accounts


def _records(store: duralog.Store, before_ms: int | None = None) -> Iterator[duralog.Record]:
    for number in store.partitions(TOPIC):
        log = store.partition(TOPIC, number)
        end = None if before_ms is None else log.offset_for_timestamp(before_ms)
        for record in log.read(log.start_offset):
            if end is not None and record.offset >= end.offset:
                break
            yield record


def history_of(store: duralog.Store, account: str) -> Iterator[tuple[int, Event, int]]:
    """When what happened, and what the balance was then."""
    log = store.partition(TOPIC, zlib.crc32(account.encode()) % len(store.partitions(TOPIC)))
    for record in log.read(log.start_offset):
        if record.key == account.encode():
            yield record.timestamp_ms, event_of(record), json.loads(record.value or b"")["balance"]


def event_of(record: duralog.Record) -> Event:
    value = json.loads(record.value or b"")
    return Event((record.key or b"").decode(), value["kind"], value["cents"])


# With Spark: the same from the files of a live store, for logs that are too long to be read by one process.


def state_with_spark(spark: SparkSession, path: str, before_ms: int | None = None) -> Accounts:
    """A query: deposits less withdrawals of each account, and whether its last event closed it."""
    from pyspark.sql import functions as f

    reader = spark.read.format("duralog").option("subscribe", TOPIC).option("columns", "key,value,offset")
    if before_ms is not None:
        reader = reader.option("endingTimestamp", str(before_ms))
    event = f.from_json(f.col("value").cast("string"), "kind string, cents long")
    events = reader.load(path).select(f.col("key").cast("string").alias("account"), event.alias("event"), "offset")
    signed = f.when(f.col("event.kind") == "withdrawn", -f.col("event.cents")).otherwise(f.col("event.cents"))
    accounts = events.groupBy("account").agg(
        f.sum(signed).alias("balance"), (f.max_by("event.kind", "offset") != "closed").alias("is_open")
    )
    return _collected(accounts)


def state_by_snapshot(spark: SparkSession, path: str, target: str, before_ms: int | None = None) -> Accounts:
    """The snapshot job: the last event of each account, which carries the balance. A table that others may use, too."""
    from pyspark.sql import functions as f

    from duralog.spark.jobs.snapshot import snapshot

    report = snapshot(spark, path, target, topics=[TOPIC], as_of_ms=before_ms, full=True)
    last = f.from_json(f.col("value").cast("string"), "balance long, is_open boolean")
    accounts = spark.read.parquet(report.tables[0].path).select(
        f.col("key").cast("string").alias("account"), last.alias("last")
    )
    return _collected(accounts.select("account", "last.balance", "last.is_open"))


def _collected(accounts: DataFrame) -> Accounts:
    return {row.account: Account(row.balance, row.is_open) for row in accounts.collect()}


# The demonstration


class RandomDay:
    """Customers who come at random, a minute or two after each other; some want what cannot be."""

    def __init__(self, seed: int, start_ms: int) -> None:
        self._chance = random.Random(seed)
        self.now_ms = start_ms

    def clock(self) -> int:
        return self.now_ms

    def commands(self, count: int, names: int) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
        for _ in range(count):
            self.now_ms += self._chance.choice((0, 0, 1, 30_000, 120_000))
            name = f"account-{self._chance.randrange(names)}"
            match self._chance.choice("oddddwwwwc"):
                case "o":
                    yield "open", name, ()
                case "d":
                    yield "deposit", name, (self._chance.randrange(1, 50_000),)
                case "w":
                    yield "withdraw", name, (self._chance.randrange(1, 30_000),)
                case _:
                    yield "close", name, ()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.event_sourcing", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--data", default="build/event_sourcing", help="where everything goes: a new folder, or one of an earlier run"
    )
    parser.add_argument("--commands", type=int, default=20_000)
    arguments = parser.parse_args()
    show(Path(arguments.data), arguments.commands)


def show(folder: Path, commands: int) -> None:
    """A month of the bank, its state in the middle and at the end, in three ways."""
    from duralog.spark.session import active_session, local_session

    make_anew(folder)
    start_ms = int(time.time() * 1000) - 30 * 24 * HOUR_MS
    day = RandomDay(7, start_ms)
    with duralog.open(folder / "log") as store:
        bank = Bank(store, day.clock)
        refused = 0
        for command, account, values in day.commands(commands, names=300):
            try:
                getattr(bank, command)(account, *values)
            except Refused:
                refused += 1
        print(f"{commands - refused:,} events; {refused:,} commands were refused")
        running = active_session()
        spark = running or local_session("local[2]", "event-sourcing", {"spark.driver.memory": "1g"})
        try:
            for what, before_ms in (("in the middle", (start_ms + day.now_ms) // 2), ("at the end", None)):
                _compare(store, spark, folder, what, before_ms)
        finally:
            if running is None:
                spark.stop()
        name = max(bank.accounts, key=lambda name: bank.accounts[name].cents)
        print(f"the last that happened to {name}:")
        for at_ms, event, balance in list(history_of(store, name))[-3:]:
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_ms / 1000))
            print(f"  {when}  {event.kind:9}  {event.cents / 100:10,.2f}  balance {balance / 100:10,.2f}")


def _compare(store: duralog.Store, spark: SparkSession, folder: Path, what: str, before_ms: int | None) -> None:
    log = str(folder / "log")
    states = {
        "store": state_of(store, before_ms),
        "query of Spark": state_with_spark(spark, log, before_ms),
        "snapshot job": state_by_snapshot(spark, log, str(folder / "snapshot"), before_ms),
    }
    for way, accounts in states.items():
        cents = sum(account.cents for account in accounts.values())
        print(f"{what}, by the {way}: {len(accounts)} accounts with {cents / 100:,.2f}")
    if any(accounts != states["store"] for accounts in states.values()):
        raise SystemExit("the three ways do not agree")


if __name__ == "__main__":
    main()
