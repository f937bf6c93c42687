"""Tables of a cluster's directories: what consumers were served, once, whichever directories are given to a run."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import duralog
from duralog.errors import CorruptRecord, OffsetOutOfRange, UnknownTopic
from duralog.spark.jobs.export import ExportReport, export
from duralog.spark.lake.parquet_table import ParquetTable
from duralog.spark.lake.table_state import StateRefused
from duralog.spark.lake.tables import LakeTable, TableRefused
from tests.support.cluster.made import (
    TOPIC,
    copy_directory,
    cut,
    flip,
    lead,
    logs,
    three_nodes,
    write_epochs,
    write_high_watermark,
    write_high_watermarks,
    write_log,
    write_meta,
)
from tests.support.cluster.recorded import consumed, scanned, unpack
from tests.support.spark.lake_directory import FORMATS, Killed, rows_of, run_here
from tests.support.typed_log import schema_record, write_typed_log

BATCH = 300
"""Some byte within the second batch of a segment."""
STATE = "_duralog_export.json"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch, importlib.import_module("duralog.spark.jobs.export"))


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Three equal directories, 60 records each, of leader epochs 0 to 3. The first one is chosen."""
    return three_nodes(tmp_path)


@pytest.fixture
def described(tmp_path: Path) -> list[Path]:
    """The same with the cluster metadata, which says that the topic is not compacted."""
    source = write_log(tmp_path / "source")
    found = [copy_directory(source, tmp_path / f"broker-{node}", node, with_metadata=node == 1) for node in (1, 2, 3)]
    write_high_watermarks(found, 60)
    return found


class Lake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, paths: Any, **options: Any) -> ExportReport:
        given = [str(path) for path in paths] if isinstance(paths, list) else paths
        return export(None, given, str(self.folder), **options)  # type: ignore[arg-type]

    def offsets(self, table_format: str = "parquet") -> list[int]:
        return [row["offset"] for row in rows_of(table_format, self.folder / TOPIC)]

    def rows(self) -> list[tuple[int, bytes, bytes]]:
        return [(row["offset"], row["key"], row["value"]) for row in rows_of("parquet", self.folder / TOPIC)]

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / TOPIC / STATE).read_text())
        return found

    def write_state(self, state: dict[str, Any]) -> None:
        (self.folder / TOPIC / STATE).write_text(json.dumps(state))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.mark.parametrize("table_format", FORMATS)
def test_every_record_that_consumers_were_served_is_there_once(
    nodes: list[Path], lake: Lake, table_format: str
) -> None:
    """Up to a high watermark that rises, from other directories each time, given in other ways."""
    expected = scanned([str(node) for node in nodes], TOPIC)
    write_high_watermarks(nodes, 33)
    first = lake.take(nodes, format=table_format)
    assert (first.records, first.tables[0].end_offsets) == (33, {0: 33})
    assert (first.tables[0].healed, first.problems) == ((), ())
    write_high_watermarks(nodes, 45)
    assert lake.take(str(nodes[0].parent / "broker-[23]"), format=table_format).records == 12
    manifest = nodes[0].parent / "backup.json"
    manifest.write_text(json.dumps({"directories": ["broker-1"]}))
    assert lake.take(str(manifest), format=table_format).records == 0
    write_high_watermarks(nodes, 60)
    assert lake.take([nodes[2], nodes[1]], format=table_format).tables[0].start_offsets == {0: 45}
    assert lake.take(nodes, format=table_format).records == 0
    rows = rows_of(table_format, lake.folder / TOPIC)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == expected


def test_a_cluster_of_kafka(tmp_path: Path, lake: Lake) -> None:
    """With an unclean election, cleaners, retention and a topic that was made again."""
    truth = unpack(tmp_path)
    report = lake.take(f"{tmp_path}/broker-*/data*", isolation="read_uncommitted")
    for table in report.tables:
        expected = [
            record
            for number in table.end_offsets
            for record in consumed(truth, f"{table.topic}-{number}", "read_uncommitted")
        ]
        rows = rows_of("parquet", table.path)
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == expected
    assert lake.take(f"{tmp_path}/broker-*/data*", isolation="read_uncommitted").records == 0


def test_a_cluster_of_kafka_in_parts(tmp_path: Path) -> None:
    """First the disks of some nodes, then all: what consumers read, or a refusal for a reason."""
    truth = unpack(tmp_path)
    refused = set()
    for first in ("1", "2", "3", "12", "13", "23"):
        for topic in ("orders", "unclean", "users", "payments", "again"):
            lake = Lake(tmp_path / first / topic)
            options: dict[str, Any] = {"topics": [topic], "isolation": "read_uncommitted"}
            try:
                lake.take(f"{tmp_path}/broker-[{first}]/data*", **options)
            except UnknownTopic:
                assert (first, topic) == ("3", "unclean")
                continue
            try:
                (table,) = lake.take(f"{tmp_path}/broker-*/data*", **options).tables
            except (StateRefused, OffsetOutOfRange):
                refused.add((first, topic))
                continue
            partitions = table.end_offsets
            expected = [
                record for number in partitions for record in consumed(truth, f"{topic}-{number}", "read_uncommitted")
            ]
            rows = [(row["offset"], row["key"], row["value"]) for row in rows_of("parquet", table.path)]
            if topic == "users":
                # A copy that was compacted less has more of the history.
                assert set(expected) <= set(rows)
                assert len({offset for offset, _, _ in rows}) == len(rows)
            else:
                assert rows == expected, (first, topic)
    # Node 1 was the leader before the unclean election, and was down when the topic was made again.
    assert refused == {("1", "unclean"), ("13", "unclean"), ("1", "again")}


def test_damage_is_read_from_other_copies_and_reported(nodes: list[Path], lake: Lake) -> None:
    expected = scanned([str(node) for node in nodes], TOPIC)
    flip(logs(nodes[0])[1], BATCH)
    logs(nodes[0])[0].unlink()
    report = lake.take(nodes, isolation="read_uncommitted")
    assert lake.rows() == expected
    (by_plan, by_task) = report.tables[0].healed
    assert by_plan.startswith(f"orders-0: offsets 0 to 14 were read from {nodes[1]}: ")
    assert by_task.startswith(f"orders-0: offsets 18 to 20 were read from {nodes[1]}: ")
    assert any(
        "this copy starts at offset 15, after its first leader epoch" in each for each in report.tables[0].findings
    )
    assert report.to_dict()["tables"][0]["healed"] == (by_plan, by_task)


def test_damage_in_all_copies_is_an_error_and_nothing_is_written(nodes: list[Path], lake: Lake) -> None:
    for node in nodes:
        flip(logs(node)[1], BATCH)
    with pytest.raises(CorruptRecord, match="offsets 18 to 20 of orders-0 cannot be read from any copy"):
        lake.take(nodes)
    assert lake.state()["run"] == 0


def test_what_no_copy_has_is_data_loss(described: list[Path], lake: Lake) -> None:
    for node in described:
        logs(node)[1].unlink()
    with pytest.raises(OffsetOutOfRange, match=r"orders-0: offsets 15 to 29 were asked for, but no copy has them"):
        lake.take(described)
    report = lake.take(described, fail_on_data_loss=False)
    assert report.tables[0].lost == ("orders-0: offsets 15 to 29 were asked for, but no copy has them",)
    assert lake.offsets() == [*range(15), *range(30, 60)]


def test_what_lies_between_the_files_of_all_copies_is_data_loss(described: list[Path], lake: Lake) -> None:
    """The chosen copy begins after them, and the others end before."""
    for path in logs(described[0])[:2]:
        path.unlink()
    for node in described[1:]:
        for path in logs(node)[1:]:
            path.unlink()
    with pytest.raises(OffsetOutOfRange, match=r"orders-0: offsets 15 to 29 were asked for, but no copy has them"):
        lake.take(described)
    assert lake.state()["run"] == 0


def test_what_may_be_compacted_is_not_data_loss(nodes: list[Path], lake: Lake) -> None:
    """Without the cluster metadata, nothing says that it is not."""
    for node in nodes:
        logs(node)[1].unlink()
    assert lake.take(nodes).tables[0].lost == ()
    assert lake.offsets() == [*range(15), *range(30, 60)]


def test_a_high_watermark_that_is_known_no_more(nodes: list[Path], lake: Lake) -> None:
    """Checkpoints of an older backup. What the table has was below it, so nothing is read until it is passed."""
    write_high_watermarks(nodes, 48)
    lake.take(nodes)
    write_high_watermarks(nodes, 40)
    held = lake.take(nodes)
    assert (held.records, held.tables[0].end_offsets) == (0, {0: 48})
    assert held.tables[0].findings == (
        "orders: partition 0 is in the table up to offset 48, and can be read up to 40 here: nothing is new until more"
        " can be read",
    )
    write_high_watermarks(nodes, 51)
    assert lake.take(nodes).tables[0].start_offsets == {0: 48}
    assert lake.offsets() == list(range(51))


def test_directories_that_are_older_than_the_table(nodes: list[Path], lake: Lake, tmp_path: Path) -> None:
    older = copy_directory(nodes[2], tmp_path / "older" / "broker-3", 3)
    for path in logs(older)[2:]:
        path.unlink()
    write_high_watermark(older, 30)
    lake.take(nodes)
    with pytest.raises(
        OffsetOutOfRange,
        match=r"orders-0 was exported up to offset 60, but in these directories the log ends at 30: directories are"
        r" missing, or these are older .* Give another target",
    ):
        lake.take([older])
    assert lake.take([older, nodes[1]]).records == 0


@pytest.mark.parametrize("records", [1, 30])
def test_another_history_after_an_unclean_election(nodes: list[Path], lake: Lake, records: int) -> None:
    """The new leader had the log up to offset 39 only, and has written more or less since."""
    lake.take(nodes)
    lead(nodes[2], 3, 9, 39, records)
    write_high_watermarks(nodes[2:], 39 + records)
    for given in (nodes, nodes[1:], nodes[2:]):
        with pytest.raises(StateRefused, match=r"leader epoch 3 wrote offset 59, .* of epoch 9\. Another copy counts"):
            lake.take(given)
    assert lake.take(nodes[:2]).records == 0
    assert lake.offsets() == list(range(60))


def test_what_was_not_exported_may_diverge(nodes: list[Path], lake: Lake) -> None:
    write_high_watermarks(nodes, 39)
    lake.take(nodes)
    lead(nodes[2], 3, 9, 39, 5)
    write_high_watermarks(nodes[2:], 44)
    assert lake.take(nodes).records == 5
    assert [value for _, _, value in lake.rows()[39:]] == [b"new-%d" % number for number in range(5)]


def test_a_leader_that_took_over_cleanly(nodes: list[Path], lake: Lake) -> None:
    lake.take(nodes)
    lead(nodes[1], 2, 7, 60, 4)
    write_high_watermarks(nodes[1:2], 64)
    assert lake.take(nodes[1:]).tables[0].end_offsets == {0: 64}
    assert lake.take(nodes).records == 0
    assert lake.offsets() == list(range(64))


def test_a_topic_that_was_made_again(nodes: list[Path], lake: Lake, tmp_path: Path) -> None:
    lake.take(nodes)
    with duralog.open(tmp_path / "again") as store:
        store.create_topic(TOPIC, 1)
        store.partition(TOPIC, 0).append([duralog.Record(value=b"x")] * 90)
    again = copy_directory(tmp_path / "again", tmp_path / "broker-4", 4)
    with pytest.raises(StateRefused, match="topic orders was deleted and made again since"):
        lake.take([again])


def test_batches_of_another_log_are_noticed_where_nothing_names_the_cluster(nodes: list[Path], lake: Lake) -> None:
    """Epochs are the same, checksums are not."""

    def forget(node: Path) -> None:
        (node / "meta.properties").unlink()
        (node / f"{TOPIC}-0" / "partition.metadata").unlink()

    for node in nodes:
        forget(node)
    lake.take(nodes)
    assert lake.take(nodes[1:]).records == 0
    lead(nodes[2], 3, 3, 57, 20, b"other")
    write_high_watermarks(nodes[2:], 77)
    forget(nodes[2])
    with pytest.raises(StateRefused, match="the batch with offset 59 goes to 59 and has checksum"):
        lake.take(nodes[2:])


def compacted(source: Path, target: Path, node_id: int) -> Path:
    """A copy of the directory that its cleaner has compacted."""
    directory = copy_directory(source, target, node_id)
    with duralog.open(directory, config={"log.cleaner.enable": "false"}) as store:
        if TOPIC not in store.topics():
            raise AssertionError("no topic")
        store.alter_topic_config(TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        log = store.partition(TOPIC, 0)
        log.append([duralog.Record(key=b"k%d" % number, value=b"last") for number in range(2)])
        log.roll()
        store.compact(TOPIC, 0)
        log.truncate_to(60)
    shutil.rmtree(directory / "__cluster_metadata-0", ignore_errors=True)
    write_meta(directory, node_id)
    write_high_watermark(directory, 60)
    return directory


def test_copies_that_are_compacted_at_different_times(nodes: list[Path], lake: Lake, tmp_path: Path) -> None:
    """The last batch of three records is whole in one copy, and has one record in the other."""
    cleaned = compacted(nodes[1], tmp_path / "cleaned" / "broker-2", 2)
    assert [offset for offset, _, _ in scanned([str(cleaned)], TOPIC)] == [59]
    lake.take(nodes[:1])
    assert lake.take([cleaned]).records == 0
    assert lake.take(nodes[:1]).records == 0
    other = Lake(tmp_path / "other")
    other.take([cleaned])
    assert other.state()["details"]["log_ends"]["0"]["batch"]["record_count"] == 1
    assert other.take(nodes[:1]).records == 0
    write_meta(nodes[0], 1, cluster_id="another-cluster-abcdeQ")
    with pytest.raises(StateRefused, match=r"the batch with offset 59 .* has checksum"):
        other.take(nodes[:1])
    assert lake.take(nodes[:1]).records == 0


def test_from_one_directory_to_its_cluster_and_not_back(nodes: list[Path], lake: Lake) -> None:
    write_high_watermarks(nodes, 48)
    assert lake.take(str(nodes[1])).records == 60
    held = lake.take(nodes)
    assert held.records == 0
    assert "up to offset 60, and can be read up to 48 here" in held.tables[0].findings[0]
    lead(nodes[0], 1, 7, 60, 5)
    write_high_watermarks(nodes[:1], 65)
    assert lake.take(nodes).tables[0].start_offsets == {0: 60}
    with pytest.raises(StateRefused, match=r"exported from the directories of a cluster, .* also if only one is left"):
        lake.take(str(nodes[0]))
    assert lake.offsets() == list(range(65))


def test_a_state_that_does_not_name_the_end_of_the_log(nodes: list[Path], lake: Lake) -> None:
    """As an older version left it, of one directory: an id of the topic is not enough."""
    lake.take(str(nodes[0]))
    state = lake.state()
    lake.write_state({**state, "details": {"log_ends": state["details"]["log_ends"]}})
    assert lake.take(nodes).records == 0
    lake.write_state({**state, "details": {}})
    with pytest.raises(StateRefused, match=r"nothing shows that they are the same: the state of .* has no batch"):
        lake.take(nodes)
    for wrong in (7, {"is_cluster": 1, "cluster_id": None}, {"is_cluster": True, "cluster_id": 5}):
        lake.write_state({**state, "details": {**state["details"], "made_from": wrong}})
        with pytest.raises(StateRefused, match="is not what a table was made from"):
            lake.take(nodes)


def test_the_end_of_the_log_is_damaged_in_the_copy_that_counts(nodes: list[Path], lake: Lake) -> None:
    lake.take(nodes)
    last = logs(nodes[0])[3]
    cut(last, last.stat().st_size - 10)
    flip(logs(nodes[1])[3], last.stat().st_size)
    assert lake.take(nodes).records == 0


def test_retention_is_data_loss(nodes: list[Path], lake: Lake) -> None:
    write_high_watermarks(nodes, 10)
    lake.take(nodes)
    write_high_watermarks(nodes, 60)
    for node in nodes:
        logs(node)[0].unlink()
        write_epochs(node, (1, 15), (2, 30), (3, 45))
    with pytest.raises(OffsetOutOfRange, match="offset 10 was asked for, but the log goes from 15 to 60"):
        lake.take(nodes)
    report = lake.take(nodes, fail_on_data_loss=False)
    assert report.tables[0].lost
    assert lake.offsets() == [*range(10), *range(15, 60)]


def test_a_partition_without_a_copy_in_a_later_run(tmp_path: Path, lake: Lake) -> None:
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, 2)
        for number in range(2):
            store.partition(TOPIC, number).append([duralog.Record(value=b"%d" % number)] * 4)
    whole = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    half = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    shutil.rmtree(half / f"{TOPIC}-1")
    lake.take([whole, half])
    report = lake.take([half])
    assert report.tables[0].findings == (
        "orders: partition 1 is in the table, and has no copy here: nothing new was read of it",
    )
    assert lake.state()["next_offsets"] == {"0": 4, "1": 4}
    assert lake.take([whole]).records == 0


def test_what_the_metadata_has_and_no_directory(tmp_path: Path, lake: Lake) -> None:
    """A disk of a node was left out: the node is there, some of its partitions are not."""
    with duralog.open(tmp_path / "source") as store:
        for topic in (TOPIC, "payments"):
            store.create_topic(topic, 3)
            for number in range(3):
                store.partition(topic, number).append([duralog.Record(value=b"x")])
    node = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1, with_metadata=True)
    for folder in ("orders-1", "orders-2", "payments-0", "payments-1", "payments-2"):
        shutil.rmtree(node / folder)
    report = lake.take([node])
    assert [table.topic for table in report.tables] == [TOPIC]
    assert report.tables[0].findings == (
        "orders: the cluster metadata has 2 partitions without a copy here, which could not be read: 1, 2. Give all"
        " directories",
    )
    assert report.problems[-1] == (
        "payments: the cluster metadata has this topic, and no directory a copy: give all directories"
    )
    assert not any(each.startswith("payments") for each in lake.take([node], topics=[TOPIC]).problems)


def test_the_problems_of_directories_are_in_the_report(nodes: list[Path], lake: Lake) -> None:
    report = lake.take([nodes[0], nodes[0], nodes[1]])
    (problem,) = report.problems
    assert problem.endswith(f"this is {nodes[0]}, which was given before: it counts once")
    assert report.to_dict()["problems"] == report.problems


def test_the_table_lies_outside_of_all_directories(nodes: list[Path]) -> None:
    with pytest.raises(TableRefused, match="the table would lie in the log directory"):
        Lake(nodes[2] / "lake").take(nodes)


def test_a_run_that_dies_is_made_good_from_other_directories(
    nodes: list[Path], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have other offsets than those of the next run."""
    write_high_watermarks(nodes, 20)
    lake.take(nodes)
    write_high_watermarks(nodes, 50)
    for step in ("commit", "_commit"):
        with monkeypatch.context() as patched:

            def killed(*_: Any) -> None:
                raise Killed

            patched.setattr(LakeTable if step == "commit" else ParquetTable, step, killed)
            with pytest.raises(Killed):
                lake.take(nodes[1:], max_slice_bytes=700)
    write_high_watermarks(nodes, 44)
    flip(logs(nodes[0])[1], BATCH)
    report = lake.take(nodes)
    assert report.tables[0].leftover_files > 0
    assert report.records == 24
    assert lake.offsets() == list(range(44))


def test_columns_by_the_schemas_of_the_cluster(tmp_path: Path) -> None:
    """The copy of the schemas that counts is damaged."""
    write_typed_log(tmp_path / "source")
    with duralog.open(tmp_path / "source") as store:
        store.partition("_schemas", 0).append([schema_record("others-value", 1, 9, {"type": "string"})])
    nodes = [copy_directory(tmp_path / "source", tmp_path / f"broker-{node}", node) for node in (1, 2)]
    flip(logs(nodes[0], "_schemas")[0], 80)
    options: dict[str, Any] = {"topics": ["orders"], "decode": {"value.format": "avro", "key.format": "string"}}
    report = Lake(tmp_path / "lake").take(nodes, **options)
    expected = Lake(tmp_path / "expected").take(str(tmp_path / "source"), **options)
    found, wanted = (rows_of("parquet", each.tables[0].path) for each in (report, expected))
    assert found == wanted
    assert found[7]["value"] == {"id": 2, "customer": {"name": "x"}}
    assert any("schemas: _schemas-0: offsets 0 to 3 were read from" in each for each in report.tables[0].findings)


def test_what_consumers_were_served_and_no_copy_has_yet(nodes: list[Path], lake: Lake, tmp_path: Path) -> None:
    """The end of every copy is cut. A directory that is found later has it."""
    found_later = tmp_path / "later"
    shutil.copytree(nodes[2], found_later)
    for node in nodes:
        logs(node)[3].unlink()
    report = lake.take(nodes)
    assert report.records == 45
    assert any(
        "consumers were served offsets 45 to 59, and no copy has them" in each for each in report.tables[0].findings
    )
    assert lake.take([*nodes, found_later]).tables[0].start_offsets == {0: 45}
    assert lake.offsets() == list(range(60))


class LivingCluster:
    """Three directories: a leader that writes, followers that lag, elections, and backups that are kept."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.rng = rng
        self.folder = folder
        self.epoch = self.written = self.high_watermark = 0
        first = write_log(folder / "source", segments=1, batches=1)
        self.nodes = {node: copy_directory(first, folder / f"node-{node}", node) for node in (1, 2, 3)}
        self.leader = 1
        self.ends = dict.fromkeys(self.nodes, 3)
        self.backups: list[tuple[int, Path]] = []

    def step(self) -> None:
        rng = self.rng
        self._change(self.leader, self._write)
        for node in self.nodes:
            if node != self.leader and rng.random() < 0.7:
                self._follow(node)
        in_sync = [end for end in self.ends.values() if end >= self.high_watermark]
        self.high_watermark = max(self.high_watermark, min(in_sync))
        for node, directory in self.nodes.items():
            write_high_watermark(directory, min(self.ends[node], self.high_watermark - rng.choice((0, 0, 2))))
        if rng.random() < 0.4:
            self._elect(rng.choice([node for node in self.nodes if node != self.leader]))

    def _write(self, log: duralog.PartitionLog) -> None:
        log.become_leader(self.epoch)
        for _ in range(self.rng.randint(1, 3)):
            count = self.rng.randint(1, 4)
            log.append([duralog.Record(key=b"k", value=b"%d" % (self.written + number)) for number in range(count)])
            self.written += count
        if self.rng.random() < 0.3:
            log.roll()
        self.ends[self.leader] = log.end_offset

    def _follow(self, node: int) -> None:
        shutil.rmtree(self.nodes[node])
        copy_directory(self.nodes[self.leader], self.nodes[node], node)
        is_slow = self.rng.random() < 0.4

        def lag(log: duralog.PartitionLog) -> None:
            if is_slow:
                log.truncate_to(self.rng.randint(min(self.ends[node], log.end_offset), log.end_offset))
            self.ends[node] = log.end_offset

        self._change(node, lag)

    def _elect(self, node: int) -> None:
        """Also of a node that does not have all that consumers were served: an unclean one."""
        self.leader = node
        self.epoch += 1
        self.high_watermark = min(self.high_watermark, self.ends[node])

    def _change(self, node: int, work: Callable[[duralog.PartitionLog], None]) -> None:
        directory = self.nodes[node]
        with duralog.open(directory, config={"log.cleaner.enable": "false"}) as store:
            work(store.partition(TOPIC, 0))
        shutil.rmtree(directory / "__cluster_metadata-0", ignore_errors=True)
        write_meta(directory, node)

    def given(self) -> list[Path]:
        """Directories as they are, or as they were in an earlier run."""
        found = []
        for node, directory in self.nodes.items():
            made = self.folder / f"backup-{len(self.backups)}"
            shutil.copytree(directory, made)
            self.backups.append((node, made))
            older = [path for owner, path in self.backups if owner == node]
            choice = self.rng.random()
            if choice < 0.75:
                found.append(made if choice < 0.6 else self.rng.choice(older))
        return found or [self.backups[-1][1]]


@pytest.mark.parametrize("seed", [3, 5, 6, 7])
def test_random_histories(tmp_path: Path, lake: Lake, seed: int) -> None:
    """What the table has is what the copy that counts has, without a gap and once, or the run is refused."""
    rng = Random(seed)
    cluster = LivingCluster(tmp_path, rng)
    for _ in range(8):
        for _ in range(rng.randint(1, 2)):
            cluster.step()
        given = cluster.given()
        rng.shuffle(given)
        before = lake.rows() if lake.folder.exists() else []
        try:
            lake.take(given)
        except (StateRefused, OffsetOutOfRange):
            assert lake.rows() == before
            continue
        rows = lake.rows()
        assert [offset for offset, _, _ in rows] == list(range(len(rows)))
        assert rows[: len(before)] == before
        there = scanned(given, TOPIC, to_end=True)
        assert rows == there[: len(rows)]
    assert lake.rows()
