"""Several directories in one store: where partitions are, what each directory has of its own, what is refused."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError, StoreLocked
from duralog.format.properties import MetaProperties, decode_meta_properties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.store import Store
from tests.support.storage.store_directory import MARKER, records, values

CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def names(disk: Path) -> list[str]:
    return sorted(path.name for path in disk.iterdir() if path.is_dir() and not path.name.startswith("__"))


def meta(disk: Path) -> MetaProperties:
    return decode_meta_properties((disk / "meta.properties").read_bytes())


def checkpoint(disk: Path, name: str) -> list[str]:
    return (disk / name).read_text().splitlines()[2:]


def filled(disks: Sequence[Path], partitions: int = 4) -> None:
    with duralog.open(disks) as store:
        store.create_topic("orders", partitions)
        for number in range(partitions):
            store.partition("orders", number).append(records(f"{number}"))


def quiet(
    disks: Sequence[Path], files: LocalFileSystem | None = None, config: Mapping[str, object] | None = None
) -> tuple[Store, Scheduler]:
    scheduler = Scheduler(lambda: 0, threads=0)
    paths = [str(disk) for disk in disks]
    return Store(paths, config=BrokerConfig.of(config or {}), scheduler=scheduler, file_system=files), scheduler


def test_each_directory_has_its_partitions_its_checkpoints_and_its_id(disks: list[Path]) -> None:
    filled(disks)
    assert [names(disk) for disk in disks] == [["orders-0", "orders-2"], ["orders-1", "orders-3"]]
    assert checkpoint(disks[0], CHECKPOINTS[0]) == ["orders 0 1", "orders 2 1"]
    assert checkpoint(disks[1], CHECKPOINTS[2]) == ["orders 1 1", "orders 3 1"]
    assert all((disk / name).exists() for disk in disks for name in (*CHECKPOINTS, MARKER, ".lock"))
    first, second = map(meta, disks)
    assert (first.cluster_id, first.node_id) == (second.cluster_id, second.node_id)
    assert first.directory_id != second.directory_id
    assert (disks[0] / "__cluster_metadata-0").is_dir()
    assert not (disks[1] / "__cluster_metadata-0").exists()
    with duralog.open(disks) as store:
        topic = store.find_topic("orders")
        assert topic is not None
        assert topic.directory_ids == dict(enumerate([first.directory_id, second.directory_id] * 2))
        assert [values(store, "orders", number) for number in range(4)] == [["0"], ["1"], ["2"], ["3"]]
        assert store.directory_of("orders", 1) == str(disks[1])


def test_a_new_partition_goes_where_the_fewest_are(disks: list[Path]) -> None:
    filled(disks, 3)
    with duralog.open(disks) as store:
        store.create_topic("next")
        store.create_topic("after", 2)
        store.add_partitions("next", 3)
    assert names(disks[0]) == ["after-0", "next-1", "orders-0", "orders-2"]
    assert names(disks[1]) == ["after-1", "next-0", "next-2", "orders-1"]


def test_a_cordoned_directory_gets_no_new_partitions(disks: list[Path]) -> None:
    with duralog.open(disks, {"cordoned.log.dirs": str(disks[0])}) as store:
        store.create_topic("orders", 3)
    assert (names(disks[0]), len(names(disks[1]))) == ([], 3)


def test_a_directory_can_be_added(disks: list[Path]) -> None:
    filled(disks[:1])
    with duralog.open(disks) as store:
        assert len(store.partitions("orders")) == 4
        store.create_topic("next", 3)
    assert names(disks[1]) == ["next-0", "next-1", "next-2"]
    assert meta(disks[1]).cluster_id == meta(disks[0]).cluster_id


def test_log_dirs_of_the_configs_are_meant_together_if_one_of_them_is_opened(disks: list[Path], tmp_path: Path) -> None:
    config = {"log.dirs": f"{disks[0]},{disks[1]}"}
    with duralog.open(disks[1], config) as store:
        assert store.paths == (str(disks[0]), str(disks[1]))
        store.create_topic("orders", 2)
    shutil.copytree(disks[0], tmp_path / "backup")
    with duralog.open(
        tmp_path / "backup", {**config, "metadata.log.dir": str(tmp_path / "c")}, read_only=True
    ) as store:
        assert store.paths == (str(tmp_path / "backup"),)
        assert store.partitions("orders") == [0]


def test_the_metadata_log_may_be_in_a_directory_of_its_own(disks: list[Path], tmp_path: Path) -> None:
    config = {"metadata.log.dir": str(tmp_path / "meta")}
    for again in range(2):
        with duralog.open(disks, config) as store:
            assert store.create_topic("orders", 2, exist_ok=True)
            store.partition("orders", 1).append(records(str(again)))
            with pytest.raises(StoreLocked):
                duralog.open(tmp_path / "meta")
    assert (tmp_path / "meta" / "__cluster_metadata-0").is_dir()
    assert names(tmp_path / "meta") == []
    assert meta(tmp_path / "meta").cluster_id == meta(disks[0]).cluster_id
    with duralog.open(disks, config, read_only=True) as store:
        assert values(store, "orders", 1) == ["0", "1"]


def test_the_order_of_the_directories_does_not_matter_to_the_metadata(disks: list[Path]) -> None:
    filled(disks)
    with duralog.open(disks[::-1]) as store:
        assert store.partitions("orders") == [0, 1, 2, 3]
        store.create_topic("next")
    assert not (disks[1] / "__cluster_metadata-0").exists()


@pytest.mark.parametrize("has_meta", [True, False])
def test_several_directories_can_be_read_by_another_process(disks: list[Path], has_meta: bool) -> None:
    with duralog.open(disks) as store:
        store.create_topic("orders", 3)
        store.partition("orders", 1).append(records("a", "b"))
        store.partition("orders", 1).delete_records(1)
    if not has_meta:
        for disk in disks:
            (disk / "meta.properties").unlink()
        shutil.rmtree(disks[0] / "__cluster_metadata-0")
    with duralog.open(disks, read_only=True) as store:
        assert store.topics() == ["orders"]
        assert store.partitions("orders") == [0, 1, 2]
        assert values(store, "orders", 1) == ["b"]
        if has_meta:
            with duralog.open(disks) as writer:
                writer.partition("orders", 1).append(records("c"))
                view = store.refresh()
                assert list(view.partitions) == [TopicPartition("orders", number) for number in range(3)]
                assert view.log_starts == {("orders", 1): 1}
                assert values(store, "orders", 1) == ["b", "c"]
                assert store.refresh().log_starts is view.log_starts


@pytest.mark.parametrize("again", ["a", "a/", "./a", "link", "a/../a"])
def test_a_directory_that_is_given_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    Path("link").symlink_to("a")
    for read_only in (False, True):
        with pytest.raises(InvalidConfig, match=r"a and .* are the same directory"):
            duralog.open(["a", again], read_only=read_only)
    assert os.listdir("a") == []


def test_a_directory_inside_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"a/b is inside .*a: give separate directories"):
        duralog.open([tmp_path / "a" / "b", tmp_path / "a"])
    with duralog.open([tmp_path / "a", tmp_path / "ab"]) as store:
        store.create_topic("orders", 2)
    with pytest.raises(StorageError, match="without a directory"):
        duralog.open([])


def test_directories_of_different_owners_are_refused(tmp_path: Path) -> None:
    for name, node_id in (("a", 1), ("b", 1), ("c", 2)):
        duralog.open(tmp_path / name, {"node.id": node_id}).close()
    with pytest.raises(InvalidConfig, match=r"a and .*b belong to different owners: cluster\.id is"):
        duralog.open([tmp_path / "a", tmp_path / "b"])
    text = (tmp_path / "a" / "meta.properties").read_text()
    (tmp_path / "c" / "meta.properties").write_text(text.replace("node.id=1", "node.id=2"))
    with pytest.raises(InvalidConfig, match=r"node\.id is 1 and 2"):
        duralog.open([tmp_path / "a", tmp_path / "c"])
    (tmp_path / "c" / "meta.properties").write_text(text)
    with pytest.raises(InvalidConfig, match=r"the same directory\.id"):
        duralog.open([tmp_path / "a", tmp_path / "c"], read_only=True)
    with duralog.open(tmp_path / "a") as store:
        assert store.topics() == []


def test_another_process_has_one_of_the_directories(disks: list[Path]) -> None:
    filled(disks)
    with duralog.open(disks[1]), pytest.raises(StoreLocked, match=str(disks[1])):
        duralog.open(disks)
    with duralog.open(disks) as store:
        assert store.offline == {}


def test_the_same_partition_in_two_directories_is_an_error_that_names_both(disks: list[Path]) -> None:
    filled(disks)
    shutil.copytree(disks[0] / "orders-0", disks[1] / "orders-0")
    for read_only in (False, True):
        with pytest.raises(StorageError, match=r"orders-0 is in two directories, .*a/orders-0 and .*b/orders-0"):
            duralog.open(disks, read_only=read_only)
    shutil.rmtree(disks[1] / "orders-0")
    assert all((disk / MARKER).exists() for disk in disks)


def test_the_metadata_follows_a_folder_that_was_moved_by_hand(disks: list[Path]) -> None:
    filled(disks)
    shutil.move(disks[0] / "orders-0", disks[1] / "orders-0")
    with duralog.open(disks) as store:
        topic = store.find_topic("orders")
        assert topic is not None
        assert topic.directory_ids[0] == meta(disks[1]).directory_id
        assert values(store, "orders", 0) == ["0"]


def test_each_directory_is_recovered_by_its_own_marker(disks: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    filled(disks)
    (disks[1] / MARKER).unlink()
    for number, disk in ((0, disks[0]), (1, disks[1])):
        with (disk / f"orders-{number}" / "00000000000000000000.index").open("wb") as index:
            index.write(b"\1" * 16)
    with duralog.open(disks) as store:
        assert values(store, "orders", 1) == ["1"]
        assert [directory.was_clean for directory in store.log_directories] == [True, False]
    assert (disks[1] / MARKER).exists()


def test_a_directory_that_cannot_be_made_is_offline_and_the_others_serve(
    disks: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    filled(disks)
    os.rename(disks[1], disks[1].with_name("unplugged"))
    disks[1].write_text("a file in place of the mount point")
    with caplog.at_level(logging.ERROR), duralog.open(disks) as store:
        assert f"{disks[1]} is offline" in caplog.text
        assert set(store.offline) == {("orders", 1), ("orders", 3)}
        assert values(store, "orders", 0) == ["0"]
        with pytest.raises(StorageError, match=r"orders-1 is offline: its directory is offline: .*b"):
            store.partition("orders", 1)
        store.create_topic("next", 2)
        assert sorted(store.logs) == [("next", 0), ("next", 1), ("orders", 0), ("orders", 2)]
    disks[1].unlink()
    os.rename(disks[1].with_name("unplugged"), disks[1])
    with duralog.open(disks) as store:
        assert store.offline == {}
        assert values(store, "orders", 3) == ["3"]
    with duralog.open(disks, read_only=True) as store:
        assert len(store.topics()) == 2
        for disk in disks:
            os.rename(disk, disk.with_name("unplugged"))
            served = [number for number in range(4) if (disk == disks[0]) is bool(number % 2)]
            shown = store.refresh().partitions
            assert [partition.partition for partition in shown if partition.topic == "orders"] == served
            assert store.partitions("orders") == served
            os.rename(disk.with_name("unplugged"), disk)
        store.refresh()
        assert store.partitions("orders") == [0, 1, 2, 3]


def test_an_empty_disk_in_place_of_a_dead_one_is_another_directory(disks: list[Path]) -> None:
    filled(disks)
    shutil.rmtree(disks[1])
    with duralog.open(disks) as store:
        assert (store.partitions("orders"), store.partition_count("orders")) == ([0, 1, 2, 3], 4)
        assert set(store.offline) == {("orders", 1), ("orders", 3)}
        store.delete_topic("orders")
        store.create_topic("orders", 4)
    with duralog.open(disks) as store:
        assert store.partitions("orders") == [0, 1, 2, 3]


def test_partitions_of_a_directory_that_is_not_given_are_offline(
    disks: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that count partitions must not see fewer: they would send a key's records to another one."""
    filled(disks)
    wanted = rf"is in the log directory with the id {meta(disks[1]).directory_id}, which was not given"
    with duralog.open(disks[0]) as store:
        assert (store.partitions("orders"), set(store.offline)) == ([0, 1, 2, 3], {("orders", 1), ("orders", 3)})
        with pytest.raises(StorageError, match=wanted):
            store.partition("orders", 1)
        assert sorted(each.name for each in disks[0].glob("orders-*")) == ["orders-0", "orders-2"]
    with duralog.open(disks) as store:
        assert (store.offline, values(store, "orders", 1)) == ({}, ["1"])


def test_a_reader_of_one_of_several_directories_is_warned_once(
    disks: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    filled(disks)
    with duralog.open(disks[0], read_only=True) as store:
        assert store.partitions("orders") == [0, 2]
        (disks[0] / "orders-9").mkdir()
        store.refresh()
    [line] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert line.startswith(f"{disks[0]}: 2 partitions of the node are left out, first orders-1: the metadata places")
    caplog.clear()
    duralog.open(disks, read_only=True).close()
    assert not caplog.records


def test_without_the_directory_of_the_metadata_or_without_any_nothing_is_opened(disks: list[Path]) -> None:
    filled(disks)
    os.rename(disks[0], disks[0].with_name("unplugged"))
    disks[0].write_text("")
    with pytest.raises(StorageError, match=str(disks[0])):
        duralog.open(disks, {"metadata.log.dir": str(disks[0])})
    with pytest.raises(StorageError):
        duralog.open([disks[0], disks[0].with_name("unplugged") / "meta.properties"])
    duralog.open(disks[1]).close()  # Nothing is locked.


def test_a_disk_with_the_metadata_log_that_is_not_mounted_is_missed(disks: list[Path]) -> None:
    """Otherwise the store would begin a new metadata log, without the configs of its topics."""
    filled(disks)
    os.rename(disks[0], disks[0].with_name("unplugged"))
    for config in ({}, {"metadata.log.dir": str(disks[0])}):
        with pytest.raises(InvalidConfig, match=r"a has no metadata log, and .*b belongs to node 1 already: mount"):
            duralog.open(disks, config)
    with duralog.open(disks[::-1]) as store:
        store.alter_topic_config("orders", {"retention.ms": 5})
    shutil.rmtree(disks[0])
    os.rename(disks[0].with_name("unplugged"), disks[0])
    for order in (disks, disks[::-1]):
        with pytest.raises(InvalidConfig, match="has a metadata log, but that of this store is in"):
            duralog.open(order)
        duralog.open(order, read_only=True).close()
    shutil.rmtree(disks[1] / "__cluster_metadata-0")
    with duralog.open(disks) as store:
        assert store.partitions("orders") == [0, 1, 2, 3]


def test_partitions_that_were_restored_to_another_directory_are_served(disks: list[Path], tmp_path: Path) -> None:
    filled(disks, 2)
    (disks[1] / "meta.properties").unlink()
    with duralog.open(disks) as store:
        assert (store.offline, values(store, "orders", 1)) == ({}, ["1"])
    shutil.move(disks[1] / "orders-1", disks[0] / "orders-1")
    with duralog.open([disks[0], tmp_path / "c"]) as store:
        assert (store.offline, values(store, "orders", 1)) == ({}, ["1"])
        topic = store.find_topic("orders")
        assert topic is not None
        assert topic.directory_ids[1] == meta(disks[0]).directory_id


def test_checkpoints_of_a_directory_with_a_longer_name_do_not_count(tmp_path: Path) -> None:
    disks = [tmp_path / "disk10", tmp_path / "disk1"]
    with duralog.open(disks) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        log.append(records("a", "b", "c"))
        log.delete_records(2)
    shutil.copy(disks[0] / CHECKPOINTS[1], disks[1] / CHECKPOINTS[1])
    text = (disks[1] / CHECKPOINTS[1]).read_text()
    (disks[1] / CHECKPOINTS[1]).write_text(text.replace("orders 0 2", "orders 0 1"))
    with duralog.open(disks, read_only=True) as store:
        assert store.refresh().log_starts == {("orders", 0): 2}


class FailingDisk(LocalFileSystem):
    """The local disk, on which operations below a path fail from some time on."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: str | None = None

    def check(self, path: str) -> None:
        if self.failed is not None and path.startswith(self.failed):
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            raise StorageError(f"{path}: {error}") from error

    def sync_folder(self, path: str) -> None:
        self.check(path)
        super().sync_folder(path)

    def write(self, path: str, data: object, *, sync: bool) -> None:
        self.check(path)
        super().write(path, data, sync=sync)  # type: ignore[arg-type]

    def read_all(self, path: str) -> bytes:
        self.check(path)
        return super().read_all(path)


def test_a_disk_that_fails_takes_its_own_partitions_offline_and_no_others(disks: list[Path]) -> None:
    filled(disks)
    files = FailingDisk()
    store, scheduler = quiet(disks, files)
    with store:
        failed: list[StorageError | None] = []
        store.on_failure(lambda: failed.append(store.failure))
        log = store.partition("orders", 1)
        log.append(records("x"))
        log.roll()
        log.append(records("y"))
        files.failed = str(disks[1])
        with pytest.raises(StorageError, match="Input/output error"):
            log.flush()
        scheduler.run_due()
        assert set(store.offline) == {("orders", 1), ("orders", 3)}
        assert sorted(store.logs) == [("orders", 0), ("orders", 2)]
        assert [directory.failure is None for directory in store.log_directories] == [True, False]
        for number in (1, 3):
            with pytest.raises(StorageError, match=rf"orders-{number} is offline: its directory .*b is offline"):
                store.partition("orders", number)
        with pytest.raises(StorageError, match="is offline"):
            log.append(records("z"))
        store.partition("orders", 0).append(records("goes on"))
        store.create_topic("next", 3)
        assert {store.directory_of("next", number) for number in range(3)} == {str(disks[0])}
        assert failed == []
    assert (disks[0] / MARKER).exists()
    assert not (disks[1] / MARKER).exists()
    with duralog.open(disks) as store:
        assert values(store, "orders", 0) == ["0", "goes on"]
        assert values(store, "orders", 1) == ["1", "x", "y"]
        assert values(store, "orders", 3) == ["3"]


def test_a_disk_with_a_relative_path_fails_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = FailingDisk()
    scheduler = Scheduler(lambda: 0, threads=0)
    with Store(["./a", "./b/"], config=BrokerConfig.of({}), scheduler=scheduler, file_system=files) as store:
        store.create_topic("orders", 2)
        log = store.partition("orders", 1)
        log.append(records("x"))
        log.roll()
        files.failed = "./b"
        with pytest.raises(StorageError):
            log.flush()
        scheduler.run_due()
        assert set(store.offline) == {("orders", 1)}


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline(disks: list[Path]) -> None:
    filled(disks)
    files = FailingDisk()
    store, scheduler = quiet(disks, files)
    with store:
        store.partition("orders", 1).append(records("x"))
        store.partition("orders", 0).append(records("x"))
        files.failed = str(disks[1] / "replication")
        store._upkeep.checkpoint_high_watermarks()
        scheduler.run_due()
        assert set(store.offline) == {("orders", 1), ("orders", 3)}
        assert checkpoint(disks[0], CHECKPOINTS[2]) == ["orders 0 2", "orders 2 1"]


def test_a_disk_that_fails_while_partitions_are_loaded_is_offline_as_a_whole(disks: list[Path]) -> None:
    filled(disks)
    files = FailingDisk()
    files.failed = str(disks[1] / "orders-3")
    store, _ = quiet(disks, files)
    with store:
        assert set(store.offline) == {("orders", 1), ("orders", 3)}
        assert store.failure is None


@pytest.mark.parametrize("failing", [["a"], ["b", "a"]])
def test_without_the_metadata_directory_or_any_other_the_store_cannot_go_on(
    disks: list[Path], failing: list[str]
) -> None:
    metadata = {} if len(failing) == 1 else {"metadata.log.dir": str(disks[0].with_name("meta"))}
    files = FailingDisk()
    store, scheduler = quiet(disks, files, metadata)
    called: list[bool] = []
    with store:
        store.create_topic("orders", 2)
        store.on_failure(lambda: called.append(True))
        for name in failing:
            assert not called
            log = store.partition("orders", "ab".index(name))
            log.append(records("x"))
            log.roll()
            files.failed = os.path.dirname(log.folder)
            with pytest.raises(StorageError):
                log.flush()
            scheduler.run_due()
        assert called == [True]
        reason = "the directory of the metadata log is offline" if not metadata else "all log directories are offline"
        assert reason in str(store.failure)
        with pytest.raises(StorageError, match=reason):
            store.create_topic("next")


def test_a_partition_that_kafka_has_not_assigned_is_made_and_assigned(
    disks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(disks)
    with duralog.open(disks) as store:
        store.delete_topic("orders")
        ids = iter(["AAAAAAAAAAAAAAAAAAAAAQ"] * 3)
        placement = store._opened.placement
        monkeypatch.setattr(placement, "directory_ids", lambda _, numbers: [next(ids) for _ in numbers])
        store.create_topic("orders", 3)
    with duralog.open(disks) as store:
        topic = store.find_topic("orders")
        assert topic is not None
        assert sorted(topic.directory_ids) == [0, 1, 2]
        assert len(names(disks[0])) + len(names(disks[1])) - sum("delete" in n for d in disks for n in names(d)) == 3


def test_the_configs_of_several_directories_are_known() -> None:
    config = BrokerConfig.of({"log.dirs": "a, b", "metadata.log.dir": "m"})
    assert (config.log_dirs, config.metadata_log_dir) == (("a", "b"), "m")
