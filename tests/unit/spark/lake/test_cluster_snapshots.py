"""Snapshots of a cluster's directories: the state of what consumers were served, whichever directories are given."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import duralog
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.spark.jobs.snapshot import SnapshotTable, snapshot
from duralog.spark.jobs.snapshots.basis import GAPS
from duralog.spark.lake.table_state import StateRefused
from tests.support.cluster.made import (
    TOPIC,
    copy_directory,
    flip,
    lead,
    logs,
    three_nodes,
    write_epochs,
    write_high_watermark,
    write_high_watermarks,
    write_meta,
)
from tests.support.cluster.recorded import consumed, unpack
from tests.support.schemas.change_events import topic_of
from tests.support.spark.change_log import write_events
from tests.support.spark.lake_directory import FORMATS, rows_of, run_here, table_of

BATCH = 300
"""Some byte within the second batch of a segment."""

State = dict[bytes, tuple[int, bytes]]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch, importlib.import_module("duralog.spark.jobs.snapshot"))


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Three equal directories, 60 records each, of three keys and leader epochs 0 to 3. The first one is chosen."""
    return three_nodes(tmp_path)


class Lake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, paths: Any, **options: Any) -> SnapshotTable:
        given = [str(path) for path in paths] if isinstance(paths, list) else str(paths)
        (table,) = snapshot(None, given, str(self.folder), **options).tables  # type: ignore[arg-type]
        return table


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def rows(table: SnapshotTable) -> State:
    found = rows_of(table.format, table.path)
    state = {row["key"]: (row["offset"], row["value"]) for row in found}
    assert len(state) == len(found) == table.live_keys
    return state


def state_of(directory: Path, end: int) -> State:
    """By reading a log from its start, record by record."""
    state: State = {}
    with duralog.open(str(directory), read_only=True) as store:
        log = store.partition(TOPIC, 0)
        for record in log.read(log.start_offset):
            if record.offset < end and record.key is not None:
                state.pop(record.key, None)
                if record.value is not None:
                    state[record.key] = (record.offset, record.value)
    return state


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_latest_state_of_what_consumers_were_served(nodes: list[Path], lake: Lake, table_format: str) -> None:
    write_high_watermarks(nodes, 34)
    first = lake.take(nodes, format=table_format)
    assert rows(first) == state_of(nodes[0], 34)
    assert (first.end_offsets, first.why_full) == ({0: 34}, "there is no snapshot yet")
    write_high_watermarks(nodes, 50)
    second = lake.take(nodes[1:], format=table_format)
    assert (second.why_full, second.records_read, second.start_offsets) == (None, 16, {0: 34})
    assert rows(second) == state_of(nodes[0], 50)
    third = lake.take(nodes[:1], format=table_format)
    assert (third.why_full, third.records_read) == (None, 0)
    assert rows(third) == rows(second)


def test_a_cluster_of_kafka_in_parts(tmp_path: Path) -> None:
    """First the disks of some nodes, then all: the state of what consumers read, in full where it must be."""
    truth = unpack(tmp_path)
    reasons = {}
    for first in ("1", "2", "13"):
        for topic in ("orders", "unclean", "users", "payments", "again"):
            lake = Lake(tmp_path / first / topic)
            lake.take(f"{tmp_path}/broker-[{first}]/data*", topics=[topic])
            try:
                table = lake.take(f"{tmp_path}/broker-*/data*", topics=[topic])
            except StateRefused as error:
                reasons[first, topic] = str(error)
                continue
            reasons[first, topic] = table.why_full or ""
            expected: dict[tuple[int, bytes], int] = {}
            for number in table.end_offsets:
                for offset, key, value in consumed(truth, f"{topic}-{number}", "read_committed"):
                    expected.pop((number, key), None)
                    if value:
                        expected[number, key] = offset
            found = {(row["partition"], row["key"]): row["offset"] for row in rows_of("parquet", table.path)}
            assert found == expected, (first, topic)
    refused = {place for place, reason in reasons.items() if reason not in ("", GAPS)}
    assert refused == {("1", "unclean"), ("13", "unclean"), ("1", "again")}
    assert reasons["1", "users"] == GAPS


def test_damage_is_read_from_other_copies_and_reported(nodes: list[Path], lake: Lake) -> None:
    expected = state_of(nodes[2], 60)
    write_high_watermarks(nodes, 20)
    lake.take(nodes)
    write_high_watermarks(nodes, 60)
    flip(logs(nodes[0])[1], BATCH)
    flip(logs(nodes[1])[2], BATCH)
    for path in logs(nodes[0])[2:]:
        flip(path, BATCH)
    table = lake.take(nodes)
    assert table.is_incremental
    assert rows(table) == expected
    assert [each.split(" were")[0] for each in table.healed] == [
        "orders-0: offsets 20 to 20",
        "orders-0: offsets 33 to 35",
        "orders-0: offsets 48 to 50",
    ]


def test_damage_is_read_through_where_keys_are_shuffled(
    nodes: list[Path], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read instead is found before, so the tasks of the shuffle have the same slices."""
    module = importlib.import_module("duralog.spark.jobs.snapshot")
    flip(logs(nodes[0])[1], BATCH)
    seen: list[Any] = []

    def shuffled(_: Any, task: Any) -> Any:
        seen.append(task)
        return module.snapshot_partition(task)

    def too_large(task: Any, _: Any = None) -> Any:
        return module.PartitionOutcome(partition=task.partition, is_too_large=True)

    monkeypatch.setattr(module, "snapshot_by_shuffle", shuffled)
    run = module.SparkExecutor.run

    def run_too_large(executor: Any, items: Any, function: Any, **options: Any) -> Any:
        is_last = options["name"] == "snapshot"
        if is_last:
            return [too_large(item) for item in items]
        return run(executor, items, function, **options)

    monkeypatch.setattr(module.SparkExecutor, "run", run_too_large)
    assert rows(lake.take(nodes)) == state_of(nodes[2], 60)
    assert {found.location.url for found in seen[0].slices} == {str(nodes[0]), str(nodes[1])}


def test_damage_in_all_copies_is_an_error(nodes: list[Path], lake: Lake) -> None:
    for node in nodes:
        flip(logs(node)[1], BATCH)
    with pytest.raises(CorruptRecord):
        lake.take(nodes)


def test_a_high_watermark_that_is_known_no_more(nodes: list[Path], lake: Lake) -> None:
    write_high_watermarks(nodes, 48)
    before = rows(lake.take(nodes))
    write_high_watermarks(nodes, 40)
    held = lake.take(nodes)
    assert (held.why_full, held.records_read, held.end_offsets) == (None, 0, {0: 48})
    assert rows(held) == before
    earlier = lake.take(nodes, as_of_offsets={TOPIC: {0: 39}})
    assert earlier.why_full == "the last one is of a later point"
    assert rows(earlier) == state_of(nodes[0], 39)
    with pytest.raises(OffsetOutOfRange, match="offset 41 was asked for, but the log goes from 0 to 40"):
        lake.take(nodes, as_of_offsets={TOPIC: {0: 41}})


def test_as_of_a_time_ends_at_the_high_watermark(nodes: list[Path], lake: Lake) -> None:
    write_high_watermarks(nodes, 33)
    assert lake.take(nodes, as_of_ms=2**60).end_offsets == {0: 33}
    assert lake.take(nodes, as_of_ms=1).end_offsets == {0: 0}


def test_another_history_after_an_unclean_election(nodes: list[Path], lake: Lake) -> None:
    lake.take(nodes)
    lead(nodes[2], 3, 9, 39, 4)
    write_high_watermark(nodes[2], 43)
    with pytest.raises(StateRefused, match=r"is in the last snapshot up to offset 60.* epoch 9\..*Take a full one"):
        lake.take(nodes)
    found = lake.take(nodes, full=True)
    assert rows(found) == state_of(nodes[2], 43)
    assert lake.take(nodes[2:]).records_read == 0


def test_from_one_directory_to_its_cluster_and_back(nodes: list[Path], lake: Lake) -> None:
    """One directory goes beyond the high watermark, and its clock says when tombstones go."""
    write_high_watermarks(nodes, 33)
    assert lake.take(nodes[0]).end_offsets == {0: 60}
    found = lake.take(nodes)
    assert found.why_full == "the last one is of a later point"
    assert rows(found) == state_of(nodes[0], 33)
    assert lake.take(nodes[0]).why_full == "the last one was made from the directories of a cluster"
    write_high_watermarks(nodes, 60)
    assert lake.take(nodes).why_full == "the last one was made from one directory"
    assert lake.take(nodes).why_full is None


def test_copies_that_begin_earlier(nodes: list[Path], lake: Lake) -> None:
    """Retention has not been there yet."""
    for path in logs(nodes[0])[:2]:
        path.unlink()
    write_epochs(nodes[0], (2, 30), (3, 45))
    lake.take(nodes[:1])
    found = lake.take(nodes[1:])
    assert found.why_full == "partition 0 begins earlier than at the last one: it has records that this one had not"
    assert lake.take(nodes[:1]).why_full is None


def test_a_partition_without_a_copy(tmp_path: Path, lake: Lake) -> None:
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, 2)
        for number in range(2):
            store.partition(TOPIC, number).append([duralog.Record(key=b"%d" % number, value=b"x")] * 4)
    whole = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    half = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    shutil.rmtree(half / f"{TOPIC}-1")
    assert lake.take([whole, half]).live_keys == 2
    with pytest.raises(StateRefused, match="partition 1 is in the last snapshot, and has no copy here"):
        lake.take([half])
    assert lake.take([half, whole]).live_keys == 2
    assert lake.take([half], full=True).live_keys == 1


def test_the_table_of_a_database(tmp_path: Path) -> None:
    """Its events, and their schemas, of damaged copies: values that were left out come from earlier events."""
    write_events(tmp_path / "source", "avro_confluent", ["pages"], end=2)
    write_events(tmp_path / "source", "avro_confluent", ["pages"], first=2)
    topic = topic_of("pages")
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2)]
    flip(logs(nodes[0], topic)[0], BATCH)
    flip(logs(nodes[1], "_schemas")[0], 80)
    options: dict[str, Any] = {"topics": [topic], "unwrap": "debezium", "as_of_offsets": {topic: {0: 3}}}
    expected = Lake(tmp_path / "expected").take(tmp_path / "source", **options)
    found = Lake(tmp_path / "lake").take(nodes, **options)
    assert (found.live_keys, found.unavailable_rows) == (expected.live_keys, expected.unavailable_rows)
    tables = [table_of("parquet", each.path).sort_by("id") for each in (found, expected)]
    assert tables[0].num_rows > 0
    assert tables[0].equals(tables[1])
    assert found.healed


class CompactedCluster:
    """A log that grows, and copies of it that are cleaned whenever they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "source"
        self.copies = 0
        with self._open(self.source) as store:
            config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
            store.create_topic(TOPIC, 1, config)

    def append(self, *records: tuple[bytes, bytes | None], roll: bool = False) -> int:
        with self._open(self.source) as store:
            log = store.partition(TOPIC, 0)
            log.append([duralog.Record(key=key, value=value) for key, value in records])
            if roll:
                log.roll()
            return log.end_offset

    def copy(self, node_id: int, high_watermark: int, cleanings: int = 0) -> Path:
        """The second cleaning removes tombstones that the first one has seen. A cleaner may know a later watermark."""
        self.copies += 1
        made = self.folder / f"copy-{self.copies}"
        shutil.copytree(self.source, made, ignore=shutil.ignore_patterns(".lock"))
        for _ in range(cleanings):
            with self._open(made) as store:
                store.compact(TOPIC, 0, again=True)
        shutil.rmtree(made / "__cluster_metadata-0")
        write_meta(made, node_id)
        write_high_watermark(made, high_watermark)
        return made

    @staticmethod
    def _open(path: Path) -> duralog.Store:
        return duralog.open(path, config={"log.cleaner.enable": "false", "log.cleaner.delete.retention.ms": "0"})


def test_a_tombstone_that_was_compacted_away_since(tmp_path: Path, lake: Lake) -> None:
    """Of an old backup: no clock tells when it went, but its offset is missing."""
    cluster = CompactedCluster(tmp_path)
    end = cluster.append((b"a", b"1"), (b"b", b"1"))
    assert set(rows(lake.take([cluster.copy(1, end)]))) == {b"a", b"b"}
    cluster.append((b"a", None), roll=True)
    end = cluster.append((b"c", b"1"))
    cleaned = cluster.copy(2, end, cleanings=2)
    with duralog.open(cleaned, read_only=True) as store:
        assert [record.key for record in store.partition(TOPIC, 0).read(0)] == [b"b", b"c"]
    found = lake.take([cleaned])
    assert found.why_full == GAPS
    assert set(rows(found)) == {b"b", b"c"}
    end = cluster.append((b"b", None))
    last = lake.take([cluster.copy(1, end)])
    assert (last.why_full, set(rows(last))) == (None, {b"c"})


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_give_what_a_full_snapshot_gives(tmp_path: Path, lake: Lake, seed: int) -> None:
    """Copies that are cleaned or not, damaged or not, and a high watermark that is known or older."""
    rng = Random(seed)
    cluster = CompactedCluster(tmp_path)
    taken, kinds = 0, set()
    end = cluster.append((b"k0", b"first"))
    for round_number in range(7):
        for _ in range(rng.randint(0, 4)):
            keys = [b"k%d" % rng.randrange(12) for _ in range(rng.randint(1, 5))]
            records = [(key, None if rng.random() < 0.3 else b"%d" % round_number) for key in keys]
            end = cluster.append(*records, roll=rng.random() < 0.6)
        watermark = rng.choice((end, end, rng.randint(0, end)))
        given = [
            cluster.copy(node, watermark, cleanings=rng.choice((0, 0, 1, 2)))
            for node in rng.sample((1, 2, 3), rng.randint(1, 3))
        ]
        if len(given) > 1 and rng.random() < 0.5:
            flip(logs(given[0])[0], rng.randrange(17, logs(given[0])[0].stat().st_size))
        table = lake.take(given)
        kinds.add(table.is_incremental)
        assert table.end_offsets[0] >= max(taken, watermark)
        taken = table.end_offsets[0]
        assert rows(table) == state_of(cluster.source, taken), f"round {round_number}"
    assert kinds == {True, False}
