"""What a store does by itself, and on request: retention, flushing, checkpoints, and the errors of all that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import AgingLog, PartitionLog, Record, Removable
from duralog.config import BrokerConfig
from duralog.storage.disk.background import Scheduler
from duralog.storage.log.log_retention import retain
from duralog.storage.log.retention import BUILT_IN_POLICIES, BeyondAge
from duralog.storage.store import Store
from tests.support.storage.store_directory import MARKER, NOW_MS, Clock, Directory, records, values

DAY_MS = 86_400_000


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    yield directory
    for store in directory.opened:
        store.close()


def fill(log: PartitionLog, segments: int, *, age_ms: int = 0) -> None:
    """Segments of two records each; the last one stays active."""
    for number in range(segments):
        if number:
            log.roll()
        log.append([Record(key=b"k", value=b"%d" % number, timestamp_ms=NOW_MS - age_ms)] * 2)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# Retention


def test_old_segments_go_by_the_configs_of_their_topics(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    for topic, config in {"old": {}, "kept": {"retention.ms": -1}, "small": {"retention.bytes": 0}}.items():
        store.create_topic(topic, 1, config)
        fill(store.partition(topic, 0), 3, age_ms=2000 if topic != "small" else 0)
    planned = store.plan_retention()
    assert [bases(store.partition(topic, 0)) for topic in ("old", "kept", "small")] == [[0, 2, 4]] * 3
    done = store.apply_retention()
    assert done == planned
    assert [(gone.topic, gone.base_offset, gone.end_offset, gone.policy) for gone in done.removals] == [
        ("old", 0, 2, "BeyondAge"),
        ("old", 2, 4, "BeyondAge"),
        ("old", 4, 6, "BeyondAge"),
        ("small", 0, 2, "BeyondSize"),
        ("small", 2, 4, "BeyondSize"),
        ("small", 4, 6, "BeyondSize"),
    ]
    assert "2000 ms old" in done.removals[0].reason
    assert done.size_bytes > 0
    assert bases(store.partition("old", 0)) == [6]
    assert (store.partition("old", 0).start_offset, store.partition("old", 0).end_offset) == (6, 6)
    assert values(store, "old") == []
    assert bases(store.partition("kept", 0)) == [0, 2, 4]
    assert store.apply_retention().removals == []
    store.partition("old", 0).append(records("new"))
    assert values(store, "old") == ["new"]


def test_a_log_emptied_by_retention_continues_at_its_offset_after_a_restart(directory: Directory) -> None:
    with directory.open({"log.retention.ms": 1000}) as store:
        store.create_topic("old", 1)
        fill(store.partition("old", 0), 2, age_ms=2000)
        store.apply_retention()
    with directory.open() as store:
        assert (store.partition("old", 0).start_offset, store.partition("old", 0).end_offset) == (4, 4)


def test_compacted_topics_lose_only_what_lies_below_their_start(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    store.create_topic("orders", 1)
    log = store.partition("orders", 0)
    fill(log, 3, age_ms=2000)
    log.delete_records(2)
    store.alter_topic_config("orders", {"cleanup.policy": "compact"})
    assert [gone.policy for gone in store.apply_retention().removals] == ["BelowLogStart"]
    assert bases(log) == [2, 4]


def test_the_metadata_log_does_not_age(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1})
    store.create_topic("orders", 1)
    directory.clock.now_ms += DAY_MS
    assert store.apply_retention().removals == []
    assert store.partition("__cluster_metadata", 0).start_offset == 0


class OnlyTheLast:
    """A policy of one's own."""

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        for segment in log.segments[:-1]:
            yield Removable(segment, "there is a newer one")


def test_a_policy_of_ones_own_is_asked_instead(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000}, retention_policies=[OnlyTheLast()])
    store.create_topic("orders", 2)
    for number in range(2):
        fill(store.partition("orders", number), 3, age_ms=2000)
    (plain, *_) = store.plan_retention(policies=BUILT_IN_POLICIES).removals
    assert plain.policy == "BeyondAge"
    done = store.apply_retention()
    assert {(gone.policy, gone.reason) for gone in done.removals} == {("OnlyTheLast", "there is a newer one")}
    assert bases(store.partition("orders", 0)) == bases(store.partition("orders", 1)) == [4]


def test_what_is_appended_while_policies_are_asked_is_not_deleted(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    store.create_topic("orders", 1)
    log = store.partition("orders", 0)
    fill(log, 2, age_ms=2000)

    class AppendsMeanwhile:
        def removable(self, aging: AgingLog) -> Iterator[Removable]:
            log.append(records("new"))
            yield from (Removable(segment, "all must go") for segment in aging.segments)

    removals = retain(log, [AppendsMeanwhile()], NOW_MS, delete=True)
    assert [removal.base_offset for removal in removals] == [0]
    assert values(store, "orders") == ["1", "1", "new"]


class CompactsMeanwhile(BeyondAge):
    def __init__(self, store: Store) -> None:
        self.store = store

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        yield from super().removable(log)
        self.store.compact(log.topic, log.partition)


def test_what_a_compaction_puts_into_the_place_of_an_expired_segment_meanwhile_is_not_deleted_for_it(
    directory: Directory,
) -> None:
    store = directory.open({"log.cleaner.enable": False})
    store.create_topic("orders", 1, {"cleanup.policy": "compact,delete", "retention.ms": 1000})
    log = store.partition("orders", 0)
    for key, age_ms in ((b"expired", 2000), (b"young", 0)):
        log.append([Record(key=key, value=key, timestamp_ms=NOW_MS - age_ms)])
        log.roll()
    done = store.apply_retention(policies=[CompactsMeanwhile(store)])
    assert bases(log) == [0, 2]
    assert (done.removals, done.failures) == ([], {})
    assert values(store, "orders") == ["expired", "young"]


class ChangesConfigsMeanwhile(OnlyTheLast):
    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked = 0

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        self.asked += 1
        yield from super().removable(log)
        self.store.alter_topic_config(log.topic, {"retention.ms": self.asked})


def test_nothing_is_deleted_by_configs_that_have_changed_meanwhile(directory: Directory) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0), 2)
    policy = ChangesConfigsMeanwhile(store)
    done = store.apply_retention(policies=[policy])
    assert (done.removals, done.failures) == ([], {})
    assert bases(store.partition("orders", 0)) == [0, 2]
    assert policy.asked == 5


class DeletesTheTopicMeanwhile(OnlyTheLast):
    def __init__(self, store: Store) -> None:
        self.store = store

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        yield from super().removable(log)
        self.store.delete_topic(log.topic)


def test_a_topic_that_is_deleted_meanwhile_is_no_failure(directory: Directory) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0), 2)
    done = store.apply_retention(policies=[DeletesTheTopicMeanwhile(store)])
    assert (done.removals, done.failures, store.topics()) == ([], {}, [])


def test_deleted_files_are_renamed_and_removed_after_their_delay(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    store.create_topic("orders", 1, {"file.delete.delay.ms": 500})
    log = store.partition("orders", 0)
    fill(log, 2, age_ms=2000)
    reading = log.read(0)
    assert next(reading).value == b"0"
    store.apply_retention()
    folder = directory.path / "orders-0"
    assert len([*folder.glob("*.log.deleted")]) == 2
    directory.pass_time(499)
    assert len([*folder.glob("*.log.deleted")]) == 2
    directory.pass_time(1)
    assert not [*folder.glob("*.deleted")]
    assert [record.value for record in reading] == [b"0", b"1", b"1"]
    assert store.background_errors == ()


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open({"log.retention.ms": 1000}, file_system=disk)
    store.create_topic("orders", 1, {"file.delete.delay.ms": 500})
    fill(store.partition("orders", 0), 3, age_ms=2000)
    store.apply_retention()
    folder = directory.path / "orders-0"
    first = f"{0:020}.log.deleted"
    disk.failing = f"remove {folder / first}"
    directory.pass_time(500)
    assert [path.name for path in folder.glob("*.log.deleted")] == [first]
    assert "the disk is bad" in str(store.background_errors[-1])


def test_files_that_were_to_be_removed_go_at_the_next_start(directory: Directory) -> None:
    with directory.open({"log.retention.ms": 1000}) as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 2, age_ms=2000)
        store.apply_retention()
    assert [*(directory.path / "orders-0").glob("*.deleted")]
    directory.open().close()
    assert not [*(directory.path / "orders-0").glob("*.deleted")]


def test_retention_runs_by_itself(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000, "log.retention.check.interval.ms": 100})
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0), 3, age_ms=2000)
    directory.pass_time(29_999)
    assert bases(store.partition("orders", 0)) == [0, 2, 4]
    directory.pass_time(1)
    assert bases(store.partition("orders", 0)) == [6]
    store.partition("orders", 0).append(records("again"))
    directory.pass_time(1001)
    assert bases(store.partition("orders", 0)) == [7]


# Flushing and checkpoints


def test_records_are_flushed_when_they_have_waited_for_flush_ms(directory: Directory) -> None:
    store = directory.open({"log.initial.task.delay.ms": 0})
    store.create_topic("eager", 1, {"flush.ms": 5000})
    store.create_topic("lazy", 1)
    for topic in ("eager", "lazy"):
        store.partition(topic, 0).append(records("a", "b"))
    directory.pass_time(4000)
    assert store.partition("eager", 0).recovery_point == 0
    directory.pass_time(1000)
    assert store.partition("eager", 0).recovery_point == 2
    directory.pass_time(DAY_MS)
    assert store.partition("lazy", 0).recovery_point == 0


def test_a_clock_that_is_set_back_does_not_keep_records_from_being_flushed(tmp_path: Path) -> None:
    time_of_day, steady = Clock(), Clock()
    scheduler = Scheduler(steady, threads=0)
    config = BrokerConfig.of({"log.initial.task.delay.ms": 0})
    with Store(str(tmp_path), config=config, clock=time_of_day, scheduler=scheduler) as store:
        store.create_topic("eager", 1, {"flush.ms": 5000})
        store.create_topic("lazy", 1)
        for topic in ("eager", "lazy"):
            store.partition(topic, 0).append(records("a", "b"))
        time_of_day.now_ms -= DAY_MS
        for _ in range(5):
            steady.now_ms += 1000
            time_of_day.now_ms += 1000
            scheduler.run_due()
        assert [store.partition(topic, 0).recovery_point for topic in ("eager", "lazy")] == [2, 0]


def checkpoint(directory: Directory, name: str) -> list[str]:
    return (directory.path / name).read_text().splitlines()[2:]


def test_checkpoints_are_written_at_their_intervals_and_at_the_end(directory: Directory) -> None:
    with directory.open({"log.retention.ms": -1}) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        fill(log, 2)
        log.flush()
        log.delete_records(1)
        directory.pass_time(4999)
        for name in ("replication-offset", "recovery-point-offset", "log-start-offset"):
            assert checkpoint(directory, f"{name}-checkpoint") == []
        directory.pass_time(1)
        assert checkpoint(directory, "replication-offset-checkpoint") == ["orders 0 4"]
        assert checkpoint(directory, "recovery-point-offset-checkpoint") == []
        directory.pass_time(25_000)
        assert checkpoint(directory, "recovery-point-offset-checkpoint") == ["orders 0 4"]
        assert checkpoint(directory, "log-start-offset-checkpoint") == ["orders 0 1"]
        log.append(records("x"))
        log.flush()
        log.delete_records(2)
        directory.pass_time(59_999)
        assert checkpoint(directory, "recovery-point-offset-checkpoint") == ["orders 0 4"]
        directory.pass_time(1)
        assert checkpoint(directory, "recovery-point-offset-checkpoint") == ["orders 0 5"]
        assert checkpoint(directory, "log-start-offset-checkpoint") == ["orders 0 2"]
        store.apply_retention()
        log.append(records("y"))
    assert checkpoint(directory, "recovery-point-offset-checkpoint") == ["orders 0 6"]
    assert checkpoint(directory, "replication-offset-checkpoint") == ["orders 0 6"]
    assert checkpoint(directory, "log-start-offset-checkpoint") == []


def test_the_start_of_a_log_outlives_a_clean_stop(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 1)
        store.partition("orders", 0).delete_records(1)
    with directory.open() as store:
        assert store.partition("orders", 0).start_offset == 1
    with directory.open(read_only=True) as store:
        assert store.partition("orders", 0).start_offset == 1


def test_silent_producers_are_forgotten(directory: Directory) -> None:
    store = directory.open({"producer.id.expiration.ms": 1000})
    store.create_topic("orders", 1)
    log = store.partition("orders", 0)
    log.append(records("a"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert len(log.producers()) == 1
    directory.pass_time(600_000)
    assert log.producers() == []


# Errors


class Fails:
    def removable(self, log: AgingLog) -> Iterator[Removable]:
        raise LookupError(log.topic)


def test_what_goes_wrong_in_the_background_stays_visible(directory: Directory) -> None:
    store = directory.open(retention_policies=[Fails()])
    store.create_topic("orders", 1)
    store.create_topic("payments", 1)
    directory.pass_time(30_000)
    told = "retention: LookupError('orders'); LookupError('payments')"
    assert [str(error) for error in store.background_errors] == [told]
    store.partition("orders", 0).append(records("a"))
    assert values(store, "orders") == ["a"]


def test_a_background_error_names_a_few_partitions(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.storage.store_retention._MOST_NAMED", 2)
    store = directory.open(retention_policies=[Fails()])
    store.create_topic("orders", 4)
    directory.pass_time(30_000)
    told = "retention: LookupError('orders'); LookupError('orders'); and 2 more"
    assert [str(error) for error in store.background_errors] == [told]


def test_a_log_that_retention_cannot_trim_is_an_error_in_the_background_and_the_others_are_trimmed(
    directory: Directory,
) -> None:
    disk = BadDisk()
    store = directory.open({"log.retention.ms": 1000}, file_system=disk)
    store.create_topic("orders", 2)
    for number in range(2):
        fill(store.partition("orders", number), 2, age_ms=2000)
    disk.failing = "rename " + str(directory.path / "orders-0")
    directory.pass_time(30_000)
    assert "orders-0" in str(store.background_errors[-1])
    assert bases(store.partition("orders", 1)) == [4]


def test_segments_that_could_not_be_renamed_do_not_come_back(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open({"log.retention.ms": 1000}, file_system=disk)
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0), 2, age_ms=2000)
    disk.failing = "rename " + str(directory.path / "orders-0")
    assert "the disk is bad" in store.apply_retention().failures["orders", 0]
    disk.failing = ""
    store.close()
    store = directory.open({"log.retention.ms": 1000})
    assert (store.partition("orders", 0).start_offset, values(store, "orders")) == (4, [])
    store.apply_retention()
    assert bases(store.partition("orders", 0)) == [4]


class BadDisk:
    """The local disk, until something is set to fail."""

    def __init__(self) -> None:
        from duralog.storage.disk.file_system import LocalFileSystem

        self._below = LocalFileSystem()
        self.failing = ""

    def __getattr__(self, operation: str) -> Any:
        work = getattr(self._below, operation)

        def do(path: str, *args: Any, **options: Any) -> Any:
            if self.failing and self.failing in f"{operation} {path}":
                raise duralog.StorageError(f"{path}: cannot {operation}: the disk is bad")
            return work(path, *args, **options)

        return do


def test_a_checkpoint_that_cannot_be_written_is_an_error_in_the_background(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open(file_system=disk)
    store.create_topic("orders", 1)
    disk.failing = "replace"
    directory.pass_time(5000)
    assert "checkpoint of high watermarks" in str(store.background_errors[-1])
    disk.failing = ""
    directory.pass_time(5000)
    assert checkpoint(directory, "replication-offset-checkpoint") == ["orders 0 0"]


def test_a_log_that_cannot_be_closed_costs_the_marker_and_not_the_other_logs(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open(file_system=disk)
    store.create_topic("orders", 3)
    for number in range(3):
        store.partition("orders", number).append(records("a"))
    disk.failing = "write " + str(directory.path / "orders-1")
    with pytest.raises(duralog.StorageError, match="the disk is bad"):
        store.close()
    disk.failing = ""
    assert not (directory.path / MARKER).exists()
    with directory.open() as store:
        assert [values(store, "orders", number) for number in range(3)] == [["a"]] * 3
        assert not store.offline


def test_a_close_that_is_interrupted_lets_go_of_the_directory(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    store.partition("orders", 0).append(records("a"))

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.cleaner, "stop", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    assert not (directory.path / MARKER).exists()
    with directory.open() as store:
        assert values(store, "orders") == ["a"]


def test_a_topic_is_created_whole_after_a_failure_in_between(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open(file_system=disk)
    disk.failing = "make_folder " + str(directory.path / "orders-1")
    with pytest.raises(duralog.StorageError, match="the disk is bad"):
        store.create_topic("orders", 3)
    disk.failing = ""
    assert store.partition("orders", 2).append(records("b")).base_offset == 0
    store.close()
    with directory.open() as store:
        assert store.partitions("orders") == [0, 1, 2]
        assert values(store, "orders", 2) == ["b"]


def test_a_store_that_fails_at_the_last_step_of_opening_lets_go_of_the_directory(directory: Directory) -> None:
    disk = BadDisk()
    disk.failing = "replace " + str(directory.path / "recovery-point")
    with pytest.raises(duralog.StorageError, match="the disk is bad"):
        directory.open(file_system=disk)
    directory.open().close()


def test_a_deleted_topic_goes_though_its_log_cannot_be_closed(directory: Directory) -> None:
    disk = BadDisk()
    store = directory.open(file_system=disk)
    store.create_topic("orders", 1)
    store.partition("orders", 0).append(records("a"))
    disk.failing = "write " + str(directory.path / "orders-0")
    store.delete_topic("orders")
    assert not [name for name in directory.names() if name == "orders-0"]


# Threads


def test_readers_and_an_appender_go_on_while_retention_deletes(tmp_path: Path) -> None:
    config = {"internal.segment.bytes": 2000, "log.retention.bytes": 4000, "log.index.size.max.bytes": 4096}
    errors: list[BaseException] = []
    done = threading.Event()

    def read(store: Store) -> None:
        try:
            log = store.partition("orders", 0)
            while not done.is_set():
                try:
                    offset = log.start_offset
                    for record in log.read(offset):
                        assert record.offset >= offset
                        assert record.value == b"%d" % record.offset
                        offset = record.offset + 1
                except duralog.OffsetOutOfRange:
                    continue
        except BaseException as error:
            errors.append(error)

    with duralog.open(tmp_path / "data", config) as store:
        store.create_topic("orders", 1, {"file.delete.delay.ms": 0})
        log = store.partition("orders", 0)
        readers = [threading.Thread(target=read, args=(store,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(0, 3000, 10):
            log.append([Record(value=b"%d" % (number + place)) for place in range(10)])
            if number % 100 == 0:
                store.apply_retention()
        done.set()
        for reader in readers:
            reader.join()
        assert errors == []
        assert store.background_errors == ()
        assert log.end_offset == 3000
        assert log.start_offset > 2000
