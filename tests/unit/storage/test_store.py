"""A whole directory: opening, closing, the lock, what is on disk when, and what a crash or damage leaves."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import duralog
from duralog.errors import StorageError, TopicExists, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.file_system import Entry, LocalFileSystem
from duralog.storage.disk.parallel import Progress
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.open_logs import OpenLogs
from tests.support.storage.store_directory import MARKER, Clock, Directory, contents, records, tree, values


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    yield directory
    for store in directory.opened:
        store.close()


def test_the_way_in_is_duralog_open(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data", config={"log.segment.bytes": 1 << 20}) as store:
        store.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
        assert store.topics() == ["orders"]
        appended = store.partition("orders", 1).append(records("a", "b"), codec="zstd")
        assert (appended.base_offset, appended.last_offset) == (0, 1)
        assert store.background_errors == ()
    with duralog.open(str(tmp_path / "data"), read_only=True) as store:
        assert values(store, "orders", 1) == ["a", "b"]
        assert values(store, "orders", 0) == []


def test_a_directory_may_be_named_in_bytes_but_not_by_nothing(tmp_path: Path) -> None:
    with duralog.open(os.fsencode(tmp_path / "data")) as store:
        assert store.path == str(tmp_path / "data")
    for read_only in (False, True):
        with pytest.raises(StorageError, match="without a name"):
            duralog.open("", read_only=read_only)


def test_what_was_written_is_there_when_the_directory_is_opened_again(directory: Directory) -> None:
    with directory.open() as store:
        topic_id = store.create_topic("orders", 3, {"retention.ms": -1, "max.message.bytes": 5000})
        store.create_topic("others")
        store.partition("orders", 2).append(records("a", "b"))
        cluster_id = store.cluster_id
    with directory.open() as store:
        assert store.topics() == ["orders", "others"]
        assert store.partitions("orders") == [0, 1, 2]
        assert store.topic_id("orders") == topic_id
        assert store.topic_overrides("orders") == {"retention.ms": "-1", "max.message.bytes": "5000"}
        assert store.topic_config("orders").max_message_bytes == 5000
        assert (store.cluster_id, store.node_id) == (cluster_id, 1)
        assert values(store, "orders", 2) == ["a", "b"]
        store.partition("orders", 2).append(records("c"))
        assert values(store, "orders", 2) == ["a", "b", "c"]


def test_a_new_partition_has_the_files_that_kafka_gives_it(directory: Directory) -> None:
    with directory.open() as store:
        topic_id = store.create_topic("orders", 1)
        folder = directory.path / "orders-0"
        assert (folder / "partition.metadata").read_text() == f"version: 0\ntopic_id: {topic_id}"
        assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
        assert (folder / "00000000000000000000.log").stat().st_size == 0
    assert (folder / "00000000000000000000.index").stat().st_size == 0
    assert (folder / "00000000000000000000.timeindex").stat().st_size == 0


def test_num_partitions_counts_where_none_are_given(directory: Directory) -> None:
    with directory.open({"num.partitions": 3}) as store:
        store.create_topic("orders")
        assert store.partitions("orders") == [0, 1, 2]


def test_partitions_can_be_added(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        store.partition("orders", 0).append(records("a"))
        store.add_partitions("orders", 3)
        store.partition("orders", 2).append(records("b"))
        with pytest.raises(duralog.InvalidTopic):
            store.add_partitions("orders", 2)
    with directory.open() as store:
        assert [values(store, "orders", number) for number in store.partitions("orders")] == [["a"], [], ["b"]]


def test_unknown_topics_and_partitions_are_named(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        for ask in (
            lambda: store.partition("other", 0),
            lambda: store.topic_config("other"),
            lambda: store.partitions("other"),
            lambda: store.delete_topic("other"),
            lambda: store.alter_topic_config("other", {}),
        ):
            with pytest.raises(duralog.UnknownTopic, match="other"):
                ask()
        with pytest.raises(duralog.UnknownTopic, match="no partition 1 of orders"):
            store.partition("orders", 1)


def test_changed_configs_are_in_force_at_once_and_stay(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        log.append(records("x" * 300))
        config = store.alter_topic_config("orders", {"max.message.bytes": 200, "retention.ms": 7})
        assert config.retention_ms == 7
        with pytest.raises(duralog.RecordTooLarge):
            log.append(records("x" * 300))
        store.alter_topic_config("orders", {"max.message.bytes": None})
        log.append(records("x" * 300))
        with pytest.raises(duralog.InvalidConfig, match=r"retention\.ms.*at least -1"):
            store.alter_topic_config("orders", {"retention.ms": -2})
    with directory.open() as store:
        assert store.topic_overrides("orders") == {"retention.ms": "7"}


# The lock


def test_a_directory_is_written_by_one_store_only(directory: Directory) -> None:
    with directory.open():
        with pytest.raises(duralog.StoreLocked):
            directory.open()
        program = (
            f"import duralog\ntry: duralog.open({str(directory.path)!r})\nexcept duralog.StoreLocked: print('locked')"
        )
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        assert done.stdout == "locked\n"
        assert not (directory.path / MARKER).exists()
    directory.open().close()


def test_a_store_that_cannot_be_opened_lets_go_of_the_lock(directory: Directory) -> None:
    directory.open().close()
    meta = directory.path / "meta.properties"
    good = meta.read_bytes()
    meta.write_text("version=7\n")
    with pytest.raises(duralog.CorruptRecord, match=r"meta\.properties"):
        directory.open()
    meta.write_bytes(good)
    directory.open().close()


def test_a_directory_of_another_node_is_refused(directory: Directory) -> None:
    directory.open({"node.id": 7}).close()
    with pytest.raises(duralog.InvalidConfig, match="belongs to node 7"):
        directory.open({"node.id": 8})
    with directory.open() as store:
        assert store.node_id == 7


# Reading only


def test_reading_only_changes_nothing_even_during_writes(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        log.append(records("a", "b"))
        before = tree(directory.path)
        with directory.open(read_only=True) as reader:
            assert values(reader, "orders") == ["a", "b"]
            assert reader.topic_id("orders") == store.topic_id("orders")
            log.append(records("c"))
            assert values(reader, "orders") == ["a", "b"]
        with directory.open(read_only=True) as reader:
            assert values(reader, "orders") == ["a", "b", "c"]
        after = tree(directory.path)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed == {"orders-0/00000000000000000000.log"}


def test_a_reader_changes_nothing_by_asking_for_it(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    reader = directory.open(read_only=True)
    attempts: list[Callable[[], object]] = [
        lambda: reader.create_topic("other", 1),
        lambda: reader.add_partitions("orders", 2),
        lambda: reader.delete_topic("orders"),
        lambda: reader.alter_topic_config("orders", {"retention.ms": 1}),
        reader.apply_retention,
        lambda: reader.partition("orders", 0).append(records("a")),
    ]
    before = tree(directory.path)
    for attempt in attempts:
        with pytest.raises(duralog.StorageError, match="reading"):
            attempt()
    assert reader.plan_retention().removals == []
    assert tree(directory.path) == before


def test_a_directory_that_is_not_there_cannot_be_read_and_is_not_made(directory: Directory) -> None:
    with pytest.raises(duralog.StorageError):
        directory.open(read_only=True)
    assert not directory.path.exists()


def test_a_partition_is_loaded_once_for_all_readers(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    reader = directory.open(read_only=True)
    assert reader.partition("orders", 0) is reader.partition("orders", 0)


def test_the_metadata_log_can_be_read(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        assert store.partition("__cluster_metadata", 0).end_offset > 0
        assert store.topics() == ["orders"]
    with directory.open(read_only=True) as reader:
        assert list(reader.partition("__cluster_metadata", 0).read(0))


# The end


def test_the_marker_is_there_only_while_the_directory_is_closed(directory: Directory) -> None:
    store = directory.open()
    assert not (directory.path / MARKER).exists()
    store.close()
    assert (directory.path / MARKER).exists()
    store.close()


def test_a_closed_store_says_so(directory: Directory) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    log = store.partition("orders", 0)
    store.close()
    for ask in (
        lambda: store.partition("orders", 0),
        lambda: store.create_topic("x"),
        store.apply_retention,
        lambda: log.append(records("a")),
    ):
        with pytest.raises(duralog.StorageError, match="closed"):
            ask()


def test_a_clean_close_leaves_nothing_to_recover(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 2)
        store.partition("orders", 0).append(records("a", "b"))
    shown: list[Progress] = []
    with directory.open(show_progress=shown.append) as store:
        assert store.partition("orders", 0).recovery_point == 2
    assert shown[-1] == Progress(partitions_done=2, partitions_total=2, bytes_done=0, bytes_total=0)


def test_after_a_crash_the_logs_are_recovered_and_progress_is_shown(directory: Directory, tmp_path: Path) -> None:
    store = directory.open()
    store.create_topic("orders", 3)
    for number in range(3):
        store.partition("orders", number).append(records("a", "b"))
    crashed = directory.copy(tmp_path / "crashed")
    with (crashed.path / "orders-1" / "00000000000000000000.log").open("ab") as log:
        log.write(b"torn")
    shown: list[Progress] = []
    with crashed.open(show_progress=shown.append) as found:
        assert [values(found, "orders", number) for number in range(3)] == [["a", "b"]] * 3
    sizes = [(directory.path / f"orders-{number}" / "00000000000000000000.log").stat().st_size for number in range(3)]
    assert shown[0].bytes_total == sum(sizes) + 4
    assert shown[-1].partitions_done == 3
    assert shown[-1].bytes_done == sum(sizes)
    assert (crashed.path / MARKER).exists()


@pytest.mark.slow
def test_a_process_that_forgets_to_close_ends_all_the_same(directory: Directory) -> None:
    program = (
        "import duralog\n"
        f"store = duralog.open({str(directory.path)!r})\n"
        "store.create_topic('orders', 1)\n"
        "store.partition('orders', 0).append([duralog.Record(value=b'a')])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert not (directory.path / MARKER).exists()
    with directory.open() as store:
        assert values(store, "orders") == ["a"]


# Damage


def test_one_bad_partition_does_not_stop_the_others(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    with directory.open() as store:
        store.create_topic("orders", 3)
        for number in range(3):
            store.partition("orders", number).append(records("a", "b"))
            store.partition("orders", number).delete_records(1)
    metadata = directory.path / "orders-1" / "partition.metadata"
    good = metadata.read_bytes()
    metadata.write_bytes(b"nonsense")
    with caplog.at_level(logging.ERROR, "duralog"), directory.open() as store:
        assert [*store.offline] == [("orders", 1)]
        assert "orders-1 is offline" in caplog.text
        with pytest.raises(duralog.StorageError, match=r"orders-1 is offline.*partition\.metadata"):
            store.partition("orders", 1)
        assert values(store, "orders", 2) == ["b"]
        assert store.apply_retention().failures.keys() == {("orders", 1)}
    assert "orders 1 1\n" in (directory.path / "log-start-offset-checkpoint").read_text()
    metadata.write_bytes(good)
    with directory.open() as store:
        assert not store.offline
        assert values(store, "orders", 1) == ["b"]


class NoListing(LocalFileSystem):
    """One folder has bad blocks."""

    def list(self, folder: str) -> list[Entry]:
        if folder.endswith("orders-1"):
            raise StorageError(f"{folder}: cannot list: Input/output error")
        return super().list(folder)


def test_a_folder_that_cannot_be_listed_is_offline_whether_or_not_progress_is_shown(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 2)
        store.partition("orders", 0).append(records("a"))
    for show in (None, lambda _: None):
        (directory.path / MARKER).unlink(missing_ok=True)
        with directory.open(file_system=NoListing(), show_progress=show) as store:
            assert [*store.offline] == [("orders", 1)]
            assert values(store, "orders") == ["a"]


def test_a_damaged_quorum_state_is_named_and_costs_no_clean_stop(directory: Directory) -> None:
    directory.open().close()
    (directory.path / "__cluster_metadata-0").mkdir(exist_ok=True)
    (directory.path / "__cluster_metadata-0" / "quorum-state").write_text("nonsense")
    with pytest.raises(duralog.CorruptRecord, match="__cluster_metadata-0/quorum-state: a file is not JSON"):
        directory.open()
    assert (directory.path / MARKER).exists()


def test_a_damaged_bootstrap_is_named(directory: Directory) -> None:
    with directory.open() as store:
        (directory.path / "bootstrap.checkpoint").write_bytes(b"nonsense")
        with pytest.raises(duralog.CorruptRecord, match=r"bootstrap\.checkpoint: position 0: a snapshot"):
            store.create_topic("orders", 1)
        assert store.topics() == []


def test_a_partition_that_could_not_be_recovered_is_not_taken_for_clean_later(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 2)
        store.partition("orders", 1).append(records("a", "b"))
    metadata = directory.path / "orders-1" / "partition.metadata"
    good = metadata.read_bytes()
    metadata.write_bytes(b"nonsense")
    directory.open().close()
    assert (directory.path / MARKER).exists()
    (directory.path / MARKER).unlink()
    with (directory.path / "orders-1" / "00000000000000000000.log").open("ab") as log:
        log.write(b"torn")
    directory.open().close()
    assert not (directory.path / MARKER).exists()
    metadata.write_bytes(good)
    with directory.open() as store:
        assert values(store, "orders", 1) == ["a", "b"]
    assert (directory.path / MARKER).exists()


def test_a_damaged_owner_does_not_keep_anybody_from_reading(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        store.partition("orders", 0).append(records("a"))
    (directory.path / "meta.properties").write_text("version=7\n")
    with directory.open(read_only=True) as store:
        assert values(store, "orders") == ["a"]


def test_a_folder_of_another_topic_of_the_same_name_is_not_served(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    (directory.path / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: kbHEQbtORkGagHr8-qLv1w")
    with directory.open() as store, pytest.raises(duralog.StorageError, match="another topic of this name"):
        store.partition("orders", 0)


def test_a_folder_that_the_metadata_does_not_place_here_is_offline(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    shutil.copytree(directory.path / "orders-0", directory.path / "orders-4")
    with directory.open() as store:
        assert [*store.offline] == [("orders", 4)]
        assert values(store, "orders", 0) == []
    with directory.open(read_only=True) as store:
        assert store.partitions("orders") == [0, 4]


def test_a_directory_of_another_node_by_its_meta_properties_says_so(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    with directory.open() as store:
        store.create_topic("orders", 25)
    meta = directory.path / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    with directory.open() as store:
        assert len(store.offline) == 25
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told[0] == (
        f"{directory.path} belongs to node 7, but the cluster metadata places its partitions on node 1: check node.id"
        " in meta.properties"
    )
    assert sum("is offline: " in each for each in told) == 20
    assert told[-1] == "5 more partitions are offline"


def test_without_its_metadata_a_directory_is_read_but_not_written(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    with directory.open() as store:
        topic_id = store.create_topic("orders", 1, {"retention.ms": -1})
        store.partition("orders", 0).append(records("a"))
    (directory.path / "__cluster_metadata-0" / "00000000000000000005-0000000001.checkpoint").write_bytes(b"damaged")
    before = contents(directory.path)
    for _ in range(2):
        with pytest.raises(duralog.CorruptRecord, match="__cluster_metadata-0"):
            directory.open()
    assert contents(directory.path) == before
    with caplog.at_level(logging.WARNING, "duralog"), directory.open(read_only=True) as store:
        assert values(store, "orders") == ["a"]
        assert store.topic_id("orders") == topic_id
        assert store.topic_overrides("orders") == {}
    assert "the metadata cannot be read" in caplog.text


def test_a_damaged_metadata_log_is_not_cut_off_after_a_clean_stop(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    flip_a_bit(directory.path / "__cluster_metadata-0" / "00000000000000000000.log", 200)
    before = contents(directory.path)
    for _ in range(2):
        with pytest.raises(duralog.CorruptRecord, match=r"__cluster_metadata-0.*checksum"):
            directory.open()
    assert contents(directory.path) == before
    with directory.open(read_only=True) as store:
        assert values(store, "orders") == []


def test_topics_whose_metadata_recovery_had_to_take_out_are_offline(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1, {"retention.ms": -1})
        store.partition("orders", 0).append(records("a"))
    flip_a_bit(directory.path / "__cluster_metadata-0" / "00000000000000000000.log", 200)
    (directory.path / MARKER).unlink()
    for _ in range(2):
        with directory.open() as store:
            assert store.topics() == []
            with pytest.raises(duralog.StorageError, match="its configs are not known"):
                store.partition("orders", 0)
            with pytest.raises(TopicExists, match="orders-0 is in this directory, though it is offline"):
                store.create_topic("orders", 1)
        assert not (directory.path / MARKER).exists()


def flip_a_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# What folders and metadata say of each other


def test_a_folder_of_partition_folders_opens_and_its_topics_are_adopted(directory: Directory, tmp_path: Path) -> None:
    with directory.open() as store:
        topic_id = store.create_topic("orders", 3)
        for number in range(3):
            store.partition("orders", number).append(records(f"a{number}"))
    bare = Directory(tmp_path / "bare", directory.clock)
    for number in (0, 2):
        folder = bare.path / f"orders-{number}"
        shutil.copytree(directory.path / folder.name, folder)
        for file in folder.glob("*index"):
            file.unlink()
    (bare.path / "orders-0" / "partition.metadata").unlink()
    before = tree(bare.path)
    with bare.open({"log.retention.hours": 1}, read_only=True) as store:
        assert store.topics() == ["orders"]
        assert store.partitions("orders") == [0, 2]
        assert values(store, "orders", 2) == ["a2"]
        assert store.topic_config("orders").retention_ms == 3_600_000
        assert store.cluster_id is None
    assert tree(bare.path) == before
    with bare.open() as store:
        assert store.topic_id("orders") == topic_id
        assert [values(store, "orders", number) for number in store.partitions("orders")] == [["a0"], [], ["a2"]]
    assert topic_id in (bare.path / "orders-0" / "partition.metadata").read_text()
    with bare.open(read_only=True) as store:
        assert store.partitions("orders") == [0, 1, 2]
        assert store.partition("__cluster_metadata", 0).end_offset > 0


def test_topics_too_much_alike_are_served_though_kafka_would_not(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.b-0", "a_b-0"):
        (directory.path / name).mkdir(parents=True)
        (directory.path / name / f"{0:020}.log").touch()
    with caplog.at_level(logging.WARNING, "duralog"), directory.open() as store:
        assert store.topics() == ["a.b", "a_b"]
        store.partition("a_b", 0).append(records("x"))
    assert "a_b is not in the cluster metadata" in caplog.text
    with directory.open() as store:
        assert values(store, "a_b") == ["x"]


def test_a_copied_folder_loses_nothing_in_the_background(
    directory: Directory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic may have kept records for ever: a default of seven days must not delete them."""
    with directory.open() as store:
        store.create_topic("orders", 1, {"retention.ms": -1})
        log = store.partition("orders", 0)
        log.append(records("old"))
        log.roll()
        log.append(records("new"))
    for name in ("untold", "told"):
        shutil.copytree(directory.path / "orders-0", tmp_path / name / "orders-0")
    month_ms = 30 * 24 * 3_600_000

    copied = Directory(tmp_path / "untold", directory.clock)
    for _ in range(2):
        with caplog.at_level(logging.WARNING, "duralog"), copied.open() as store:
            copied.pass_time(month_ms)
            assert values(store, "orders") == ["old", "new"]
            assert store.topic_overrides("orders") == {"retention.ms": "-1"}
    assert caplog.text.count("the metadata has no configs for 1 topic, first orders") == 1

    told = Directory(tmp_path / "told", directory.clock)
    with told.open({"log.retention.hours": 1}) as store:
        told.pass_time(month_ms)
        assert values(store, "orders") == []


def test_a_partition_without_its_folder_is_made(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 2)
        store.partition("orders", 1).append(records("a", "b"))
        store.partition("orders", 1).delete_records(1)
    shutil.rmtree(directory.path / "orders-1")
    with directory.open(read_only=True) as store:
        assert store.partitions("orders") == [0]
    with directory.open() as store:
        log = store.partition("orders", 1)
        assert (log.start_offset, log.end_offset) == (0, 0)
        assert "orders 1" not in (directory.path / "log-start-offset-checkpoint").read_text()


def test_a_directory_of_kafka_that_keeps_its_metadata_elsewhere_gets_none_unasked(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    shutil.rmtree(directory.path / "__cluster_metadata-0")
    with directory.open() as store:
        assert store.topics() == ["orders"]
        assert "__cluster_metadata-0" not in directory.names()
        store.alter_topic_config("orders", {"retention.ms": 5})
    with directory.open() as store:
        assert store.topic_overrides("orders") == {"retention.ms": "5"}


def test_the_metadata_of_a_cluster_that_another_node_leads_is_left_alone(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
    (directory.path / "__cluster_metadata-0" / "quorum-state").write_text('{"leaderId":2,"leaderEpoch":9}')
    (directory.path / "copied-0").mkdir()
    (directory.path / "copied-0" / f"{0:020}.log").touch()
    with directory.open() as store:
        assert store.topics() == ["copied", "orders"]
        end_offset = store.partition("__cluster_metadata", 0).end_offset
        for change in (
            lambda: store.create_topic("x", 1),
            lambda: store.alter_topic_config("copied", {"retention.ms": 5}),
            lambda: store.delete_topic("orders"),
        ):
            with pytest.raises(duralog.StorageError, match="node 2 leads the cluster"):
                change()
        assert store.partition("__cluster_metadata", 0).end_offset == end_offset
        assert store.topics() == ["copied", "orders"]


# Deleting topics


def test_a_deleted_topic_is_renamed_and_removed_later(directory: Directory) -> None:
    with directory.open({"log.segment.delete.delay.ms": 1000}) as store:
        store.create_topic("orders", 2)
        store.create_topic("others", 1)
        log = store.partition("orders", 0)
        log.append(records("a", "b"))
        reading = log.read(0)
        assert next(reading).value == b"a"
        store.delete_topic("orders")
        assert store.topics() == ["others"]
        with pytest.raises(duralog.UnknownTopic):
            store.partition("orders", 0)
        renamed = [name for name in directory.names() if name.startswith("orders-")]
        assert len(renamed) == 2
        assert all(name.endswith("-delete") for name in renamed)
        assert [record.value for record in reading] == [b"b"]
        directory.pass_time(999)
        assert len([name for name in directory.names() if name.endswith("-delete")]) == 2
        directory.pass_time(1)
        assert not [name for name in directory.names() if name.startswith("orders")]
        assert store.background_errors == ()


def test_a_new_topic_of_the_same_name_inherits_nothing(directory: Directory) -> None:
    with directory.open() as store:
        first_id = store.create_topic("orders", 1, {"retention.ms": 5})
        store.partition("orders", 0).append(records("a", "b", "c"))
        store.partition("orders", 0).delete_records(2)
    (directory.path / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 2\nothers 0 7\n")
    with directory.open() as store:
        store.delete_topic("orders")
        assert (directory.path / "cleaner-offset-checkpoint").read_text() == "0\n1\nothers 0 7\n"
        assert store.create_topic("orders", 1) != first_id
        store.partition("orders", 0).append(records("new"))
    with directory.open() as store:
        assert store.topic_overrides("orders") == {}
        assert values(store, "orders") == ["new"]


def test_a_partition_that_goes_while_it_is_looked_for_is_unknown(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.open() as store:
        store.create_topic("orders", 2)
        find = OpenLogs.find

        def found_too_late(logs: OpenLogs, partition: TopicPartition) -> PartitionLog | None:
            if partition in logs.by_partition:
                store.delete_topic("orders")
                store.create_topic("orders", 1)
                return None
            return find(logs, partition)

        monkeypatch.setattr(OpenLogs, "find", found_too_late)
        with pytest.raises(UnknownTopic, match="no partition orders-1"):
            store._find_log(TopicPartition("orders", 1))


def test_folders_of_deleted_topics_are_removed_after_the_next_start_too(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        store.delete_topic("orders")
    assert [name for name in directory.names() if name.endswith("-delete")]
    with directory.open() as store:
        assert store.topics() == []
        directory.pass_time(60_000)
        assert not [name for name in directory.names() if name.endswith("-delete")]


def test_a_deletion_that_a_crash_interrupted_is_finished(directory: Directory, tmp_path: Path) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    store.partition("orders", 0).append(records("a"))
    folder = tmp_path / "orders-0"
    shutil.copytree(directory.path / "orders-0", folder)
    store.delete_topic("orders")
    store.close()
    (directory.path / MARKER).unlink()
    folder.rename(directory.path / "orders-0")
    with directory.open() as store:
        assert store.topics() == []
        assert "orders-0" not in directory.names()


def test_a_folder_of_another_topic_does_not_go_with_a_deleted_one_of_its_name(
    directory: Directory, tmp_path: Path
) -> None:
    """A partition of a backup was put next to the leftovers of an interrupted deletion."""
    other = Directory(tmp_path / "other", directory.clock)
    with other.open() as store:
        other_id = store.create_topic("orders", 2)
        store.partition("orders", 1).append(records("kept"))
    store = directory.open()
    store.create_topic("orders", 1)
    shutil.copytree(directory.path / "orders-0", tmp_path / "orders-0")
    store.delete_topic("orders")
    store.close()
    (tmp_path / "orders-0").rename(directory.path / "orders-0")
    shutil.copytree(other.path / "orders-1", directory.path / "orders-1")
    with directory.open() as store:
        assert store.topic_id("orders") == other_id
        assert values(store, "orders", 1) == ["kept"]
        assert values(store, "orders", 0) == []


def test_a_cleaner_checkpoint_is_kept_as_it_is(directory: Directory) -> None:
    directory.open().close()
    checkpoint = directory.path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n2\nz 1 4\na 0 2\n")
    with directory.open() as store:
        store.create_topic("orders", 1)
        store.delete_topic("orders")
    assert checkpoint.read_text() == "0\n2\nz 1 4\na 0 2\n"


# Configs


def test_configs_that_kafka_has_set_for_brokers_while_it_ran_count(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        # With its first records, Kafka 4.3 has this one in the metadata, for all brokers.
        assert store.config.min_insync_replicas == 1
        assert store.config.given == {"log.index.size.max.bytes": store.config.given["log.index.size.max.bytes"]}
    with directory.open() as store:
        assert "min.insync.replicas" in store.config.given


def test_bad_configs_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(duralog.InvalidConfig, match=r"log\.segment\.bytes.*at least 1048576"):
        duralog.open(tmp_path / "data", config={"log.segment.bytes": 5})
    assert not (tmp_path / "data").exists()


def test_a_server_properties_is_taken_as_it_is(tmp_path: Path) -> None:
    config = duralog.BrokerConfig.from_properties(b"node.id=3\nlog.retention.hours=2\nsome.plugin=x\n")
    with duralog.open(tmp_path / "data", config) as store:
        store.create_topic("orders", 1)
        assert store.node_id == 3
        assert store.topic_config("orders").retention_ms == 7_200_000
