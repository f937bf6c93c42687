"""Journaling for high availability: a streaming job whose state survives the machine that it was on.

The job adds up the clicks of each user. Its state is a dictionary in its memory. Every change of the state goes to a
compacted topic as well, the changelog: the user as key, the totals as value, a tombstone when a user is forgotten. When
the job is killed and all it had on its disk is lost, the next one reads the changelog and goes on.

What makes it exact: the changes of a micro-batch and the offsets up to which it had read the clicks are one transaction
of the changelog. Either all of it counts or nothing, and what counts tells where to read on. Spark's own checkpoint is
of no use then: each run has a new one, which is thrown away.

    python -m examples.journaling              a job is killed in the middle of its work, and another one carries on
    python -m examples.journaling work --clicks DIRECTORY --journal DIRECTORY [--until-done]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duralog
from examples.own_folder import make_anew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLICKS = "clicks"
CHANGELOG = "totals.changelog"
CLICK_PARTITIONS = 2
_POSITIONS_KEY = b"positions"
"""Not a JSON text, as the keys of users are."""
_PRODUCER = {"producer_id": 1, "producer_epoch": 0}
_RECORDS_OF_ONE_APPEND = 5_000
_SEQUENCES = 2**31
_EARLIEST = -2
_MOST_STARTS = 5


class Totals(NamedTuple):
    clicks: int
    milliseconds: int


class Change(NamedTuple):
    """What a micro-batch means for a user: forget what was, if `is_forgotten`, then add."""

    user: str
    is_forgotten: bool
    clicks: int
    milliseconds: int


class Journal:
    """The state of the job, and the topic that it can be had from again. The directory's lock keeps others out."""

    def __init__(self, store: duralog.Store) -> None:
        if CHANGELOG not in store.topics():
            store.create_topic(CHANGELOG, 1, {"cleanup.policy": "compact", "segment.bytes": 4 << 20})
        self._log = store.partition(CHANGELOG, 0)
        self._sequence = self._abort_what_was_begun()
        self.totals: dict[str, Totals] = {}
        self.positions: dict[int, int] = {}
        """For each partition of the clicks, the offset of the first one that is not in the totals."""
        self._restore()

    def commit(self, changes: Iterable[Change], positions: Mapping[int, int]) -> None:
        """Change the state, and write down what it became. When this returns, it would survive a loss of power."""
        changed: dict[str, Totals | None] = {}
        for change in changes:
            before = changed[change.user] if change.user in changed else self.totals.get(change.user)
            base = Totals(0, 0) if before is None or change.is_forgotten else before
            after = Totals(base.clicks + change.clicks, base.milliseconds + change.milliseconds)
            changed[change.user] = after if after.clicks else None
        positions = {**self.positions, **positions}
        records = [_state_record(user, totals) for user, totals in changed.items()]
        records.append(duralog.Record(key=_POSITIONS_KEY, value=json.dumps(positions).encode()))
        for first in range(0, len(records), _RECORDS_OF_ONE_APPEND):
            self._append(records[first : first + _RECORDS_OF_ONE_APPEND])
        self._log.end_transaction(_PRODUCER["producer_id"], _PRODUCER["producer_epoch"], commit=True)
        self._log.flush()
        for user, totals in changed.items():
            self._set(user, totals)
        self.positions = positions

    def starting_offsets(self, partitions: Iterable[int]) -> str:
        """For Spark: where to read on. A partition of which nothing is in the totals is read from the beginning."""
        return json.dumps({CLICKS: {str(number): self.positions.get(number, _EARLIEST) for number in partitions}})

    def _append(self, records: list[duralog.Record]) -> None:
        self._log.append(records, codec="lz4", **_PRODUCER, base_sequence=self._sequence, is_transactional=True)
        self._sequence = (self._sequence + len(records)) % _SEQUENCES

    def _abort_what_was_begun(self) -> int:
        """By the process that was killed. Returns the number that the next record gets."""
        for producer in self._log.producers():
            if producer.producer_id == _PRODUCER["producer_id"]:
                if producer.transaction_first_offset >= 0:
                    self._log.end_transaction(producer.producer_id, producer.producer_epoch, commit=False)
                return (producer.last_sequence + 1) % _SEQUENCES
        return 0

    def _restore(self) -> None:
        for record in self._log.read(self._log.start_offset, isolation="read_committed"):
            if record.key == _POSITIONS_KEY:
                self.positions = {int(key): offset for key, offset in json.loads(record.value or b"{}").items()}
            else:
                totals = None if record.value is None else Totals(*json.loads(record.value))
                self._set(json.loads(record.key or b""), totals)

    def _set(self, user: str, totals: Totals | None) -> None:
        if totals is None:
            self.totals.pop(user, None)
        else:
            self.totals[user] = totals


def _state_record(user: str, totals: Totals | None) -> duralog.Record:
    return duralog.Record(key=json.dumps(user).encode(), value=None if totals is None else json.dumps(totals).encode())


def work(
    spark: SparkSession, clicks: str, journal_path: str, *, until_done: bool, clicks_at_once: int = 20_000
) -> dict[str, Totals]:
    """Run the job: until all clicks that are there are in, or until somebody ends it. Returns the totals."""
    with duralog.open(journal_path) as store, tempfile.TemporaryDirectory() as checkpoint:
        journal = Journal(store)
        with duralog.open(clicks, read_only=True) as source:
            starting_offsets = journal.starting_offsets(source.partitions(CLICKS))
        stream = (
            spark.readStream.format("duralog")
            .option("subscribe", CLICKS)
            .option("startingOffsets", starting_offsets)
            .option("maxOffsetsPerTrigger", str(clicks_at_once))
            .load(clicks)
        )
        writer = stream.writeStream.foreachBatch(lambda batch, _: _take_in(batch, journal))
        writer = writer.option("checkpointLocation", checkpoint)
        query = (writer.trigger(availableNow=True) if until_done else writer).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return journal.totals


def _take_in(batch: DataFrame, journal: Journal) -> None:
    """One micro-batch: Spark adds up what its clicks mean for each user, the journal does the rest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # Offsets tell what came first within a partition only.
    of_user = ("key", "partition")
    forgotten = f.max(f.when(f.col("value").isNull(), f.col("offset"))).over(Window.partitionBy(*of_user))
    is_after = f.col("value").isNotNull() & (f.col("forgotten").isNull() | (f.col("offset") > f.col("forgotten")))
    milliseconds = f.col("value").cast("string").cast("long")
    totals = (
        batch.withColumn("forgotten", forgotten)
        .groupBy(*of_user)
        .agg(
            f.max(f.col("forgotten").isNotNull()).alias("is_forgotten"),
            f.count_if(is_after).alias("clicks"),
            f.coalesce(f.sum(f.when(is_after, milliseconds)), f.lit(0)).alias("milliseconds"),
            f.max("offset").alias("last"),
        )
    )
    rows = totals.collect()
    changes = [Change(row.key.decode(), row.is_forgotten, row.clicks, row.milliseconds) for row in rows]
    ends: dict[int, int] = {}
    for row in rows:
        ends[row.partition] = max(ends.get(row.partition, 0), row.last + 1)
    journal.commit(changes, ends)


# The demonstration, and what the tests use


class Clicks:
    """A source of clicks in a live store, and what the totals must be in the end."""

    def __init__(self, store: duralog.Store, seed: int, *, users: int = 2_000) -> None:
        store.create_topic(CLICKS, CLICK_PARTITIONS, {"retention.ms": -1})
        self._logs = [store.partition(CLICKS, number) for number in range(CLICK_PARTITIONS)]
        self._chance = random.Random(seed)
        self._users = users
        self.expected: dict[str, Totals] = {}

    def add(self, count: int) -> None:
        """The value of a click is how long the user stayed; none means that the user is to be forgotten."""
        records: list[list[duralog.Record]] = [[] for _ in self._logs]
        for _ in range(count):
            user = f"user-{int(self._users * self._chance.random() ** 2)}"
            stayed = None if self._chance.random() < 0.01 else self._chance.randrange(1, 60_000)
            if stayed is None:
                self.expected.pop(user, None)
            else:
                clicks, milliseconds = self.expected.get(user, Totals(0, 0))
                self.expected[user] = Totals(clicks + 1, milliseconds + stayed)
            value = None if stayed is None else str(stayed).encode()
            place = zlib.crc32(user.encode()) % len(records)
            records[place].append(duralog.Record(key=user.encode(), value=value))
        for log, of_log in zip(self._logs, records, strict=True):
            log.append(of_log)


class Worker:
    """The job in a process group of its own, so that it can be killed with everything that belongs to it."""

    def __init__(self, clicks: str, journal: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "examples.journaling", "work", "--clicks", clicks, "--journal", journal]
        root = Path(__file__).parents[1]
        self.process = subprocess.Popen([*command, *arguments], cwd=root, start_new_session=True)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def committed_positions(journal: str) -> dict[int, int]:
    """As far as a reader from outside can see."""
    try:
        with duralog.open(journal, read_only=True) as store:
            log = store.partition(CHANGELOG, 0)
            records = [*log.read(log.start_offset, isolation="read_committed")]
    except duralog.DuralogError:
        return {}
    found = next((record.value for record in reversed(records) if record.key == _POSITIONS_KEY), None)
    return {} if found is None else {int(key): offset for key, offset in json.loads(found).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.journaling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", default="build/journaling", help="where everything goes: a new folder, or one of an earlier run"
    )
    commands = parser.add_subparsers(dest="command")
    job = commands.add_parser("work", help="the job itself")
    job.add_argument("--clicks", required=True)
    job.add_argument("--journal", required=True)
    job.add_argument("--clicks-at-once", type=int, default=20_000)
    job.add_argument("--until-done", action="store_true")
    arguments = parser.parse_args()
    if arguments.command != "work":
        _show(Path(arguments.data))
        return
    from duralog.spark.session import local_session

    spark = local_session("local[2]", "journaling", {"spark.driver.memory": "1g"})
    try:
        work(
            spark,
            arguments.clicks,
            arguments.journal,
            until_done=arguments.until_done,
            clicks_at_once=arguments.clicks_at_once,
        )
    finally:
        spark.stop()


def kill_in_the_middle(clicks: Clicks, clicks_path: str, journal: str, *, taken_in: int, at_once: int) -> int:
    """Let a job take in so many clicks or more, while more of them come, and kill it. Returns how many it took in."""
    worker, starts = Worker(clicks_path, journal, "--clicks-at-once", str(at_once)), 1
    try:
        while sum(committed_positions(journal).values()) < taken_in:
            if worker.process.poll() is not None:
                # As whoever runs a job would: Spark gives up on a query that takes ten seconds to start.
                if starts == _MOST_STARTS:
                    raise SystemExit("the job ended by itself, again and again")
                worker, starts = Worker(clicks_path, journal, "--clicks-at-once", str(at_once)), starts + 1
            clicks.add(100)
            time.sleep(0.5)
    finally:
        worker.kill()
    return sum(committed_positions(journal).values())


def _show(folder: Path) -> None:
    make_anew(folder)
    clicks_path, journal = str(folder / "clicks"), str(folder / "journal")
    with duralog.open(clicks_path) as store:
        clicks = Clicks(store, seed=7)
        clicks.add(100_000)
        print("A job begins to add up the clicks.")
        taken_in = kill_in_the_middle(clicks, clicks_path, journal, taken_in=60_000, at_once=20_000)
        print(f"It is killed when {taken_in:,} are in the totals.")
        clicks.add(20_000)
        print("Another one takes over, with nothing but the changelog.")
        if Worker(clicks_path, journal, "--until-done").process.wait():
            raise SystemExit("the job failed")
    with duralog.open(journal) as store:
        found = Journal(store).totals
        written = store.partition(CHANGELOG, 0).end_offset
    print(f"{written:,} records were written to the changelog, for {len(found):,} users.")
    if found != clicks.expected:
        raise SystemExit("The totals are wrong.")
    print("The totals are what they must be.")


if __name__ == "__main__":
    main()
