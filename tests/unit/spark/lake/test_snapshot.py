"""Snapshots without Spark: the latest state of keys; going on from the last one gives the same as a full one."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.errors import DuralogError, InvalidConfig, OffsetOutOfRange
from duralog.scanning.keyed_offsets import is_among, live_offsets, marks_of
from duralog.spark.jobs.snapshot import SnapshotReport, SnapshotTable, snapshot
from duralog.spark.jobs.snapshots.partition_task import PartitionTask
from duralog.spark.jobs.snapshots.task import snapshot_partition
from duralog.spark.lake.tables import LakeTable
from duralog.storage.store import Store
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import FORMATS, START_MS, Death, Killed, rows_of, run_here

snapshot_module = importlib.import_module("duralog.spark.jobs.snapshot")
DAY_MS = 86_400_000


class Snapshots:
    """A log directory with a topic `users`, and a folder for its snapshots."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.target = folder / "lake"

    def run(self, **options: Any) -> SnapshotTable:
        (table,) = self.report(topics=["users"], **options).tables
        return table

    def report(self, **options: Any) -> SnapshotReport:
        target = options.pop("target", self.target)
        return snapshot(None, str(self.data), str(target), **options)  # type: ignore[arg-type]

    def open(self) -> Store:
        return duralog.open(str(self.data), config={"log.cleaner.enable": "false"})

    def create(self, partitions: int = 1, **config: str) -> None:
        with self.open() as store:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            store.create_topic("users", partitions, {"cleanup.policy": "compact", **settings})

    def append(self, *records: tuple[str, str | None], partition: int = 0, time_ms: int = START_MS) -> None:
        with self.open() as store:
            store.partition("users", partition).append(
                [
                    duralog.Record(
                        key=key.encode(), value=None if value is None else value.encode(), timestamp_ms=time_ms
                    )
                    for key, value in records
                ]
            )


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshots:
    run_here(monkeypatch, snapshot_module)
    return Snapshots(tmp_path)


def state(table_format: str, table: SnapshotTable) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    rows = rows_of(table_format, table.path)
    found = {(row["partition"], row["key"]): (row["offset"], row["value"]) for row in rows}
    assert len(found) == len(rows) == table.live_keys
    return found


def expected(
    path: Path, topic: str = "users", ends: dict[int, int] | None = None
) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    """The same, by reading the log from its start to its end, record by record."""
    latest: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    with duralog.open(str(path), read_only=True) as store:
        for number in store.partitions(topic):
            log = store.partition(topic, number)
            for record in log.read(log.start_offset, isolation="read_committed"):
                if record.key is None or record.offset >= (ends or {}).get(number, 2**62):
                    continue
                latest.pop((number, record.key), None)
                if record.value is not None:
                    latest[number, record.key] = (record.offset, record.value)
    return latest


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_last_record_of_each_key(job: Snapshots, table_format: str) -> None:
    job.create(partitions=2)
    job.append(("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), ("b", None))
    job.append(("a", "of another partition"), partition=1)
    first = job.run(format=table_format)
    assert state(table_format, first) == {
        (0, b"a"): (3, b"2"),
        (0, b"c"): (2, b"1"),
        (1, b"a"): (0, b"of another partition"),
    }
    assert (first.live_keys, first.deleted_keys, first.records_read) == (3, 1, 6)
    assert (first.is_incremental, first.why_full) == (False, "there is no snapshot yet")
    job.append(("b", "back"), ("c", None), ("d", "new"))
    second = job.run(format=table_format)
    assert (second.is_incremental, second.records_read, second.start_offsets) == (True, 3, {0: 5, 1: 1})
    assert state(table_format, second) == {
        (0, b"a"): (3, b"2"),
        (0, b"b"): (5, b"back"),
        (0, b"d"): (7, b"new"),
        (1, b"a"): (0, b"of another partition"),
    }
    third = job.run(format=table_format)
    assert (third.is_incremental, third.records_read, third.files, third.live_keys) == (True, 0, 0, 4)
    assert state(table_format, third) == state(table_format, second)


def test_records_without_a_key_are_counted(job: Snapshots) -> None:
    with job.open() as store:
        store.create_topic("users", 1)
        store.partition("users", 0).append([duralog.Record(value=b"x"), duralog.Record(key=b"", value=b"y")])
    table = job.run()
    assert (table.keyless_records, table.records_read) == (1, 2)
    assert state("parquet", table) == {(0, b""): (1, b"y")}


def test_as_of_offsets(job: Snapshots) -> None:
    job.create(partitions=2)
    job.append(("a", "1"), ("a", "2"), ("a", None), ("a", "4"))
    job.append(("b", "1"), ("b", "2"), partition=1)
    found = [
        state("parquet", job.run(target=job.target / str(end), as_of_offsets={"users": {0: end}})) for end in range(5)
    ]
    assert [of_end.get((0, b"a")) for of_end in found] == [None, (0, b"1"), (1, b"2"), None, (3, b"4")]
    assert {of_end[1, b"b"] for of_end in found} == {(1, b"2")}


def test_as_of_a_time(job: Snapshots) -> None:
    """What is before the first offset whose timestamp is that time or later; one behind it may have an earlier one."""
    job.create()
    for value, age in (("1", 0), ("2", 10), ("3", 20), ("4", 5), ("5", 30)):
        job.append(("a", value), time_ms=START_MS + age)
    found = {
        age: state("parquet", job.run(target=job.target / str(age), as_of_ms=START_MS + age))
        for age in (0, 1, 10, 15, 20, 25, 31)
    }
    values = {age: found_at[0, b"a"][1] if found_at else None for age, found_at in found.items()}
    assert values == {0: None, 1: b"1", 10: b"1", 15: b"2", 20: b"2", 25: b"4", 31: b"5"}


def test_an_earlier_point_makes_a_full_one(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"), ("a", "2"))
    job.run()
    table = job.run(as_of_offsets={"users": {0: 1}})
    assert (table.is_incremental, table.why_full) == (False, "the last one is of a later point")
    assert state("parquet", table) == {(0, b"a"): (0, b"1")}


def test_transactions_count_when_they_are_committed(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"))
    with job.open() as store:
        log = store.partition("users", 0)
        for producer, commit in ((1, False), (2, True)):
            log.append(
                [duralog.Record(key=b"a", value=b"by %d" % producer)],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            log.end_transaction(producer, 0, commit=commit)
        log.append(
            [duralog.Record(key=b"a", value=b"open")],
            producer_id=3,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    table = job.run()
    assert state("parquet", table) == {(0, b"a"): (3, b"by 2")}
    assert table.end_offsets == {0: 5}
    uncommitted = job.run(target=job.target / "all", isolation="read_uncommitted")
    assert state("parquet", uncommitted) == {(0, b"a"): (5, b"open")}


@pytest.mark.parametrize("table_format", FORMATS)
def test_logs_that_kafka_compacted(job: Snapshots, table_format: str) -> None:
    job.data = GOLDEN / "compaction" / "after"
    report = job.report(topics=["c-none", "c-tomb", "c-txn"], format=table_format)
    for table in report.tables:
        assert state(table_format, table) == expected(job.data, table.topic) != {}


def test_a_log_of_kafka_with_transactions(job: Snapshots) -> None:
    job.data = GOLDEN / "compaction" / "before"
    (table,) = job.report().tables
    assert table.topic == "c-txn"
    assert state("parquet", table) == expected(job.data, "c-txn") != {}


# From the last snapshot


def test_files_that_are_not_touched_stay(job: Snapshots) -> None:
    job.create(partitions=2)
    job.append(("a", "1"), ("b", "1"))
    job.append(("c", "1"), partition=1)
    job.run(format="delta")
    before = set((job.target / "users").rglob("*.parquet"))
    job.append(("d", "1"))
    second = job.run(format="delta")
    assert (second.files, second.removed_files) == (1, 0)
    job.append(("d", "2"))
    third = job.run(format="delta")
    assert (third.files, third.removed_files) == (1, 1)
    assert before < set((job.target / "users").rglob("*.parquet"))
    assert state("delta", third) == expected(job.data)


def test_many_small_files_become_one(job: Snapshots) -> None:
    job.create()
    for number in range(19):
        job.append((f"k{number}", "v"))
        table = job.run(format="delta")
    assert table.removed_files == 0
    assert job_files(job) == 2
    assert state("delta", table) == expected(job.data)


def job_files(job: Snapshots) -> int:
    from deltalake import DeltaTable

    return len(DeltaTable(str(job.target / "users")).file_uris())


def test_parquet_keeps_the_last_two(job: Snapshots) -> None:
    job.create()
    for number in range(4):
        job.append((f"k{number}", "v"))
        table = job.run()
    folders = sorted(path.name for path in (job.target / "users").iterdir() if path.is_dir())
    assert folders == ["snapshot-000003", "snapshot-000004"]
    assert table.path == str(job.target / "users" / "snapshot-000004")


def test_what_retention_deleted_is_gone_from_the_snapshot(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"), ("b", "1"), ("c", "1"))
    assert job.run().expired_rows == 0
    with job.open() as store:
        store.partition("users", 0).delete_records(2)
    # Only one of the rows is lost: the other one's key has a newer record.
    job.append(("d", "1"), ("a", "2"), ("e", None))
    table = job.run()
    assert (table.is_incremental, table.expired_rows, table.deleted_keys) == (True, 1, 1)
    assert (
        state("parquet", table)
        == expected(job.data)
        == {
            (0, b"c"): (2, b"1"),
            (0, b"d"): (3, b"1"),
            (0, b"a"): (4, b"2"),
        }
    )
    with job.open() as store:
        store.partition("users", 0).delete_records(6)
    table = job.run()
    assert (state("parquet", table), table.expired_rows, table.deleted_keys) == ({}, 3, 0)


def compact_twice(job: Snapshots, first_ms: int, config: BrokerConfig | None = None) -> None:
    """The first one gives tombstones their horizon, the second one comes two minutes later."""
    for number in range(2):
        with Store(str(job.data), config=config, clock=partial(int, first_ms + number * 120_000)) as store:
            log = store.partition("users", 0)
            log.append([duralog.Record(key=b"x%d" % number, value=b"")])
            log.roll()
            store.compact("users", 0)


def test_tombstones_that_may_have_been_compacted_away(job: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    job.create(delete_retention_ms="1000")
    job.append(("a", "1"), ("b", "1"))
    job.run()
    job.append(("a", None))
    later = snapshot_module.wall_clock_ms() + 10 * DAY_MS
    compact_twice(job, later)
    with duralog.open(str(job.data), read_only=True) as store:
        assert all(record.value is not None for record in store.partition("users", 0).read(0))
    monkeypatch.setattr(snapshot_module, "wall_clock_ms", lambda: later)
    table = job.run()
    assert not table.is_incremental
    assert "tombstones after the last one may have been compacted away since" in (table.why_full or "")
    assert (0, b"a") not in state("parquet", table)


def test_tombstones_that_are_compacted_away_while_a_run_reads(job: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    job.create(delete_retention_ms="100000")
    job.append(("a", "1"), ("b", "1"))
    job.run()
    job.append(("a", None))
    now_ms = snapshot_module.wall_clock_ms()
    times_ms = iter((now_ms + 90_000, now_ms + 130_000))
    run = snapshot_module.SparkExecutor.run

    def run_late(*arguments: Any, **options: Any) -> list[Any]:
        compact_twice(job, now_ms)
        return run(*arguments, **options)  # type: ignore[no-any-return]

    with monkeypatch.context() as patches:
        patches.setattr(snapshot_module, "wall_clock_ms", lambda: next(times_ms))
        patches.setattr(snapshot_module.SparkExecutor, "run", run_late)
        with pytest.raises(DuralogError, match="users: while it was read, tombstones after the last snapshot may"):
            job.run()
    monkeypatch.setattr(snapshot_module, "wall_clock_ms", lambda: now_ms + 130_000)
    table = job.run()
    assert not table.is_incremental
    assert state("parquet", table) == expected(job.data)
    assert (0, b"a") not in state("parquet", table)


@pytest.mark.parametrize("policy", ["compact", "default"])
def test_tombstones_of_a_broker_with_other_defaults(
    job: Snapshots, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in its server.properties stands nowhere in the directory."""
    with job.open() as store:
        store.create_topic("users", 1, {"cleanup.policy": "compact"} if policy == "compact" else {})
    defaults = {"log.cleanup.policy": "compact", "log.cleaner.delete.retention.ms": "100000"}
    config = BrokerConfig.of(defaults)
    job.append(("a", "1"), ("b", "1"))
    job.run(config=config)
    job.append(("a", None))
    now_ms = snapshot_module.wall_clock_ms()
    compact_twice(job, now_ms, config)
    monkeypatch.setattr(snapshot_module, "wall_clock_ms", lambda: now_ms + 130_000)
    table = job.run(config=config)
    assert not table.is_incremental
    assert (0, b"a") not in state("parquet", table)


def test_without_cluster_metadata_tombstone_retention_is_unknown(job: Snapshots) -> None:
    job.create(delete_retention_ms="1000")
    job.append(("a", "1"), ("b", "1"))
    job.run()
    job.append(("a", None))
    compact_twice(job, snapshot_module.wall_clock_ms())
    (job.data / "__cluster_metadata-0").rename(job.data.parent / "elsewhere")
    table = job.run()
    assert not table.is_incremental
    assert (0, b"a") not in state("parquet", table)


def test_a_full_one_can_be_asked_for(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"))
    job.run(format="delta")
    table = job.run(format="delta", full=True)
    assert (table.is_incremental, table.why_full, table.removed_files) == (False, "a full one was asked for", 1)
    assert state("delta", table) == {(0, b"a"): (0, b"1")}


@pytest.mark.slow
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(job: Snapshots, table_format: str, seed: int) -> None:
    """Incremental snapshots at random points are what full ones are, over appends, compaction and retention."""
    chance = random.Random(seed)
    job.create(partitions=2, min_cleanable_dirty_ratio="0.01", index_interval_bytes="64")
    for run in range(6):
        for _ in range(chance.randrange(4)):
            step(job, chance)
        table = job.run(format=table_format)
        assert table.is_incremental is (run > 0)
        full = job.run(format="parquet", target=job.target / f"full-{run}")
        assert state(table_format, table) == state("parquet", full) == expected(job.data)


def step(job: Snapshots, chance: random.Random) -> None:
    number = chance.randrange(2)
    with job.open() as store:
        log = store.partition("users", number)
        kind = chance.random()
        if kind < 0.6:
            records = [
                duralog.Record(
                    key=b"k%d" % chance.randrange(12),
                    value=None if chance.random() < 0.25 else chance.randbytes(chance.randrange(60)),
                    timestamp_ms=START_MS,
                )
                for _ in range(chance.randrange(1, 60))
            ]
            log.append(records, codec=chance.choice(["none", "lz4", "zstd"]))
        elif kind < 0.75:
            producer = log.end_offset + 1
            log.append(
                [duralog.Record(key=b"k%d" % chance.randrange(12), value=b"in a transaction")],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            if chance.random() < 0.8:
                log.end_transaction(producer, 0, commit=chance.random() < 0.5)
        elif kind < 0.9:
            log.roll()
            store.compact("users", number)
        else:
            log.delete_records(chance.randrange(log.start_offset, log.end_offset + 1))


# Crashes


@pytest.mark.slow
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("point", ["task", "commit", "state file"])
@pytest.mark.parametrize("is_first_run", [True, False])
def test_a_run_that_dies_is_made_good(
    job: Snapshots, table_format: str, point: str, is_first_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.create(partitions=2)
    job.append(("a", "1"), ("b", "1"))
    if not is_first_run:
        job.run(format=table_format)
        job.append(("a", "2"), ("c", "1"))
    with monkeypatch.context() as patched:
        if point == "task":
            patched.setattr(snapshot_module.SparkExecutor, "run", _dying(snapshot_module.SparkExecutor.run))
        elif point == "commit":
            patched.setattr(LakeTable, "commit", _dying(LakeTable.commit, does=False))
        else:
            patched.setattr(LakeTable, "commit", _without_state_file)
        with pytest.raises(Killed):
            job.run(format=table_format)
    job.append(("b", None), ("d", "1"))
    table = job.run(format=table_format)
    assert state(table_format, table) == expected(job.data)
    assert state(table_format, job.run(format=table_format)) == expected(job.data)


def _dying(real: Callable[..., Any], *, does: bool = True) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        if does:
            real(*arguments, **options)
        raise Killed

    return run


def _without_state_file(table: LakeTable, *arguments: Any) -> None:
    table._commit(*arguments)
    raise Killed


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("after", [False, True])
def test_a_run_may_die_at_every_file(
    job: Snapshots, table_format: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies one file later than the one before, until one comes through."""
    job.create(partitions=2)
    step = 0
    is_done = False
    while not is_done:
        step += 1
        job.append((f"k{step}", "new"), ("k1", f"{step}"), (f"k{step - 2}", None), partition=step % 2)
        with monkeypatch.context() as patched:
            death = Death(patched, step, after=after)
            try:
                job.run(format=table_format)
                is_done = not death.is_dead
            except Killed:
                assert death.is_dead
    assert step > 3
    table = job.run(format=table_format)
    assert state(table_format, table) == expected(job.data)
    assert not list(job.target.rglob("*.part"))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_task_that_outlives_its_run(job: Snapshots, table_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would bring back a key that was deleted since."""
    job.create()
    job.append(("a", "1"), ("b", "1"))
    left: list[PartitionTask] = []

    def interrupted(_: Any, items: Any, *__: Any, **___: Any) -> list[Any]:
        left.extend(items)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module.SparkExecutor, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run(format=table_format)
    job.append(("a", "2"), ("b", None))
    table = job.run(format=table_format)
    (task,) = left
    with pytest.raises(duralog.StoreLocked, match="the job of this task does not hold"):
        snapshot_partition(task)
    assert state(table_format, table) == expected(job.data)
    if table_format != "parquet":
        # In an object store nobody refuses it, but it writes over nothing that counts.
        snapshot_partition(replace(task, right=replace(task.right, lock_path=None)))
        assert state(table_format, table) == expected(job.data)


# What is refused


def test_wrong_points(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"))
    with pytest.raises(OffsetOutOfRange, match=r"users-0: offset 2 was asked for, but the log goes from 0 to 1"):
        job.run(as_of_offsets={"users": {0: 2}})
    with pytest.raises(InvalidConfig, match="there is no partition 5 of topic users"):
        job.run(as_of_offsets={"users": {5: 0}})
    with pytest.raises(InvalidConfig, match="offsets for topic x, of which no snapshot is taken"):
        job.run(as_of_offsets={"x": {0: 0}})
    with pytest.raises(InvalidConfig, match="as of a time or as of offsets"):
        job.run(as_of_ms=5, as_of_offsets={"users": {0: 0}})


def test_a_log_that_was_cut(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"), ("b", "1"))
    job.run()
    with job.open() as store:
        store.partition("users", 0).truncate_to(0)
    with pytest.raises(OffsetOutOfRange, match="users-0 is in the last snapshot up to offset 2, but the log ends at 0"):
        job.run()


def test_a_table_of_the_export(job: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    export_module = importlib.import_module("duralog.spark.jobs.export")
    run_here(monkeypatch, export_module)
    job.create()
    job.append(("a", "1"))
    for table_format in FORMATS:
        target = job.target / table_format
        export_module.export(None, str(job.data), str(target), format=table_format)
        with pytest.raises(DuralogError, match=r"lake/\w+/users: "):
            job.run(format=table_format, target=target)


def test_a_state_that_says_nothing_of_the_last_run(job: Snapshots) -> None:
    job.create()
    job.append(("a", "1"))
    job.run()
    path = job.target / "users" / "_duralog_snapshot.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "details": {}}))
    assert job.run().why_full == "the state of the last one has no counts of keys or no first offsets"


def test_a_log_that_changes_between_the_passes(job: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_module = importlib.import_module("duralog.spark.jobs.snapshots.latest_rows")
    job.create()
    job.append(("a", "1"), ("b", "1"))
    monkeypatch.setattr(rows_module, "rows_of_log", lambda *_: iter(()))
    with pytest.raises(
        DuralogError, match="users-0: the log was compacted or cut while it was read, 2 records are missing"
    ):
        job.run()


def test_marks_hold_offsets_and_tombstones() -> None:
    import numpy as np

    marks = marks_of(np.array([5, 0, 2**61]), np.array([True, False, False]))
    assert live_offsets(marks).tolist() == [0, 2**61]
    assert is_among(np.array([0, 1, 2**61]), live_offsets(marks)).tolist() == [True, False, True]
    assert is_among(np.array([0]), np.empty(0, np.int64)).tolist() == [False]
