"""A partition moves to another directory while it is written to and read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError, StoreLocked, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.log_directory import Folders, LogDirectory
from duralog.storage.partition_moves import PartitionMove
from duralog.storage.store import Store
from tests.support.storage.store_directory import Clock, records, values

SMALL = {"internal.segment.bytes": 400, "log.index.size.max.bytes": 4096}


class Disks:
    """Two directories, opened with a clock that only the test moves."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "a", folder / "b"]
        self.clock = Clock()
        self.scheduler = Scheduler(self.clock, threads=0)

    def open(self, **options: object) -> Store:
        self.scheduler = Scheduler(self.clock, threads=0)
        return Store(
            [str(path) for path in self.paths],
            config=BrokerConfig.of(SMALL),
            clock=self.clock,
            scheduler=self.scheduler,
            **options,  # type: ignore[arg-type]
        )

    def names(self, index: int) -> list[str]:
        found = (path.name for path in self.paths[index].iterdir() if path.is_dir())
        return sorted(name for name in found if not name.startswith("__"))

    def checkpoint(self, index: int, name: str) -> list[str]:
        return (self.paths[index] / name).read_text().splitlines()[2:]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def fill(store: Store, count: int = 20, partition: int = 0) -> list[str]:
    written = [f"{number:04}-{'x' * 50}" for number in range(count)]
    for value in written:
        store.partition("orders", partition).append(records(value))
    return written


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".log", ".index", ".timeindex")
    }


def test_a_partition_moves_with_everything_that_it_has(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 2, {"cleanup.policy": "compact,delete"})
        written = fill(store)
        log = store.partition("orders", 0)
        log.append(records("from a producer"), producer_id=7, producer_epoch=1, base_sequence=0)
        log.append(records("aborted"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.end_transaction(8, 0, commit=False)
        log.delete_records(3)
        log.become_leader(5)
        log.append(records("later"))
        before = (log.start_offset, log.end_offset, log.leader_epochs.entries, log.producers())
        bases = [segment.base_offset for segment in log.segments]
        reader = log.read(3)
        assert next(reader).offset == 3
        shown: list[int] = []

        store.move_partition("orders", 0, disks.paths[1], on_progress=lambda move: shown.append(move.copied_bytes))

        assert store.partition("orders", 0) is log
        assert log.folder == str(disks.paths[1] / "orders-0")
        assert shown[-1] == log.size_bytes
        assert (log.start_offset, log.end_offset, log.leader_epochs.entries, log.producers()) == before
        assert [segment.base_offset for segment in log.segments] == bases
        assert disks.names(1) == ["orders-0", "orders-1"]
        assert [name.endswith("-delete") for name in disks.names(0)] == [True]
        disks.clock.now_ms += 100_000
        disks.scheduler.run_due()
        assert disks.names(0) == []
        # A reader of the old files reads to their end.
        assert [record.offset for record in reader] == [*range(4, len(written) + 2), len(written) + 3]
        assert [record.value for record in log.read(21, isolation="read_committed")] == [b"later"]
        log.append(records("new"))
        assert store.moves == ()
        topic = store.find_topic("orders")
        assert topic is not None
        assert topic.directory_ids[0] == store.log_directories[1].directory_id
    assert disks.checkpoint(0, "log-start-offset-checkpoint") == []
    assert disks.checkpoint(1, "log-start-offset-checkpoint") == ["orders 0 3"]
    assert disks.checkpoint(1, "recovery-point-offset-checkpoint") == ["orders 0 25", "orders 1 0"]
    with disks.open() as store:
        log = store.partition("orders", 0)
        assert values(store, "orders", 0)[-2:] == ["later", "new"]
        assert (log.start_offset, log.leader_epochs.entries, log.producer(7)) == (3, before[2], before[3][0])


def test_the_copy_has_the_same_bytes(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 1)
        fill(store)
    before = bytes_of(disks.paths[0] / "orders-0")
    with disks.open() as store:
        store.move_partition("orders", 0, disks.paths[1])
    assert bytes_of(disks.paths[1] / "orders-0") == before


def test_records_can_be_appended_while_it_moves(tmp_path: Path) -> None:
    with duralog.open([tmp_path / "a", tmp_path / "b"], SMALL) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        expected = fill(store)
        done = threading.Event()

        def append() -> None:
            number = 0
            while not done.is_set() and number < 500:
                value = f"meanwhile {number}"
                log.append(records(value))
                expected.append(value)
                number += 1

        writer = threading.Thread(target=append)
        writer.start()
        for target in ("b", "a", "b"):
            store.move_partition("orders", 0, tmp_path / target)
        done.set()
        writer.join()
        log.append(records("end"))
        assert values(store, "orders", 0) == [*expected, "end"]
        assert store.background_errors == ()
    with duralog.open([tmp_path / "a", tmp_path / "b"], read_only=True) as store:
        assert values(store, "orders", 0) == [*expected, "end"]


def test_a_move_continues_in_the_background_and_after_a_restart(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 1)
        written = fill(store, 60)

        def close(move: PartitionMove) -> None:
            assert move.offset_lag < 60
            closing.start()
            while not store._moves._is_stopping:
                threading.Event().wait(0.001)

        closing = threading.Thread(target=store.close)
        with pytest.raises(StorageError, match=r"orders-0: the move to .*b was cancelled"):
            store.move_partition("orders", 0, disks.paths[1], on_progress=close)
        closing.join()
    (left,) = disks.names(1)
    assert (left[:9], left[-7:]) == ("orders-0.", "-future")
    with duralog.open(disks.paths, SMALL) as store:
        for _ in range(2000):
            if not store.moves and store.directory_of("orders", 0) == str(disks.paths[1]):
                break
            threading.Event().wait(0.005)
        assert store.directory_of("orders", 0) == str(disks.paths[1])
        assert values(store, "orders", 0) == written
        assert store.background_errors == ()
    assert disks.names(1) == ["orders-0"]


def test_a_move_that_was_interrupted_is_begun_again_or_replaced(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 2)
        fill(store)
    for number, index in ((0, 1), (1, 0)):
        (disks.paths[index] / f"orders-{number}.{'a' * 32}-future").mkdir()
        (disks.paths[index] / f"orders-{number}.{'a' * 32}-future" / "partition.metadata").write_text(
            (disks.paths[0] / "orders-0" / "partition.metadata").read_text()
        )
    with disks.open() as store:
        store.move_partition("orders", 0, disks.paths[1])
        assert len(values(store, "orders", 0)) == 20
    assert [name for name in disks.names(1) if "-delete" not in name] == ["orders-0", "orders-1"]
    with disks.open() as store:
        store.delete_topic("orders")
        store.create_topic("orders", 2)
        disks.clock.now_ms += 100_000
        disks.scheduler.run_due()
    with disks.open():
        disks.clock.now_ms += 100_000
        disks.scheduler.run_due()
    assert [disks.names(0), disks.names(1)] == [["orders-0"], ["orders-1"]]


def cancelled(disks: Disks, cancel: Callable[[Store], None]) -> Store:
    store = disks.open()
    store.create_topic("orders", 1)
    fill(store)
    with pytest.raises(StorageError, match="was cancelled"):
        store.move_partition("orders", 0, disks.paths[1], on_progress=lambda _: cancel(store))
    assert [name for name in disks.names(1) if name.endswith("-future")] == []
    assert store.moves == ()
    return store


def test_to_where_it_is_cancels_a_move(disks: Disks) -> None:
    with cancelled(disks, lambda store: store.start_move("orders", 0, disks.paths[0])) as store:
        assert len(values(store, "orders", 0)) == 20
        store.move_partition("orders", 0, disks.paths[0])
    assert (disks.names(0), disks.names(1)) == (["orders-0"], [])


def test_a_topic_that_is_deleted_moves_no_further(disks: Disks) -> None:
    with cancelled(disks, lambda store: store.delete_topic("orders") if store.topics() else None) as store:
        store.create_topic("orders", 1)
        assert values(store, "orders", 0) == []


def test_what_cannot_move_is_refused(disks: Disks, tmp_path: Path) -> None:
    with disks.open() as store:
        store.create_topic("orders", 1)
        with pytest.raises(InvalidConfig, match=r"c is not a log directory of this store, which has .*a, .*b"):
            store.move_partition("orders", 0, tmp_path / "c")
        with pytest.raises(UnknownTopic):
            store.move_partition("others", 0, disks.paths[1])
        log = store.partition("orders", 0)
        log.append(records("a"))
        Path(log.folder, "00000000000000000000.log").write_bytes(b"\0" * 80)
        with pytest.raises(duralog.CorruptRecord):
            store.move_partition("orders", 0, disks.paths[1])
        assert disks.names(1) == []
        assert store.directory_of("orders", 0) == str(disks.paths[0])
    with disks.open(read_only=True) as store, pytest.raises(StorageError, match="for reading only"):
        store.move_partition("orders", 0, disks.paths[1])


def test_quarantined_bytes_move_too(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 1)
        fill(store, 3)
    kept = disks.paths[0] / "orders-0" / "duralog-quarantine"
    kept.mkdir()
    (kept / "some.bytes").write_bytes(b"kept")
    with disks.open() as store:
        store.move_partition("orders", 0, disks.paths[1])
    assert (disks.paths[1] / "orders-0" / "duralog-quarantine" / "some.bytes").read_bytes() == b"kept"


def test_a_compacted_log_keeps_its_gaps_and_its_checkpoint(disks: Disks) -> None:
    with disks.open() as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
        log = store.partition("orders", 0)
        for number in range(30):
            log.append([duralog.Record(key=b"k", value=b"%d" % number * 30)])
        log.roll()
        store.compact("orders", 0)
        kept = [record.offset for record in log.read(0)]
        clean = store.cleaner.checkpoint.get(TopicPartition("orders", 0))
        assert len(kept) < 30
        store.move_partition("orders", 0, disks.paths[1])
        assert [record.offset for record in log.read(0)] == kept
        assert (log.end_offset, store.cleaner.checkpoint.get(TopicPartition("orders", 0))) == (30, clean)
        log.append([duralog.Record(key=b"k", value=b"new")])
        log.roll()
        store.compact("orders", 0)
        assert [record.offset for record in log.read(0)] == [30]
    assert disks.checkpoint(1, "cleaner-offset-checkpoint") == ["orders 0 31"]
    assert disks.checkpoint(0, "cleaner-offset-checkpoint") == []


def offsets(store: Store, numbers: Sequence[int]) -> list[int]:
    return [store.partition("orders", number).end_offset for number in numbers]


def test_readers_in_other_processes_follow(disks: Disks) -> None:
    with disks.open() as store, disks.open(read_only=True) as reader:
        store.create_topic("orders", 2)
        fill(store, 5)
        reader.refresh()
        assert offsets(reader, [0, 1]) == [5, 0]
        store.move_partition("orders", 0, disks.paths[1])
        fill(store, 5)
        view = reader.refresh()
        assert offsets(reader, [0, 1]) == [10, 0]
        assert view.partitions[TopicPartition("orders", 0)].folder == str(disks.paths[1] / "orders-0")


def test_a_reader_finds_a_partition_that_moves_between_two_listings(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directories are listed one after the other: the partition could be seen in both, or in none."""
    listed = LogDirectory.folders
    with disks.open() as store, disks.open(read_only=True) as reader:
        store.create_topic("orders", 1)
        fill(store, 5)
        reader.refresh()
        for source, target, is_open in ((0, 1, True), (1, 0, True), (0, 1, False), (1, 0, False)):
            count = 0

            def folders(directory: LogDirectory, to: int = target) -> Folders:
                nonlocal count
                count += 1
                found = listed(directory)
                if count == 1:
                    with monkeypatch.context() as undone:
                        undone.setattr(LogDirectory, "folders", listed)
                        store.move_partition("orders", 0, disks.paths[to])
                return found

            assert store.directory_of("orders", 0) == str(disks.paths[source])
            store.alter_topic_config("orders", {"retention.ms": 1000 + source})
            monkeypatch.setattr(LogDirectory, "folders", folders)
            if is_open:
                with disks.open(read_only=True) as other:
                    assert len(values(other, "orders", 0)) == 5
            else:
                view = reader.refresh()
                assert view.topics_error is None
                assert view.partitions[TopicPartition("orders", 0)].folder == str(disks.paths[target] / "orders-0")
                assert len(values(reader, "orders", 0)) == 5
            monkeypatch.undo()
            assert store.directory_of("orders", 0) == str(disks.paths[target])


def test_closing_waits_for_the_moves_of_other_threads(disks: Disks) -> None:
    """Nothing is written after the directories are unlocked."""
    store = disks.open()
    store.create_topic("orders", 1)
    fill(store)
    is_copying, goes_on = threading.Event(), threading.Event()

    def wait(_: PartitionMove) -> None:
        is_copying.set()
        goes_on.wait()

    def move() -> None:
        with pytest.raises(StorageError, match="was cancelled"):
            store.move_partition("orders", 0, disks.paths[1], on_progress=wait)

    moving, closing = threading.Thread(target=move), threading.Thread(target=store.close)
    moving.start()
    is_copying.wait()
    closing.start()
    closing.join(0.2)
    with pytest.raises(StoreLocked):
        disks.open()
    goes_on.set()
    moving.join()
    closing.join()
    with disks.open() as again:
        assert len(values(again, "orders", 0)) == 20
