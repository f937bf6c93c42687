"""Compaction through the store: on request and by itself, next to retention, changes of topics, and the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog import PartitionLog, Record
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleanable import CleaningLimit
from duralog.storage.compaction.cleaned_partitions import CleanerOwner
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.compaction.cleaner_state import Activity, PartitionState
from duralog.storage.compaction.report import CompactionProgress, CompactionStopped
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.store import Store
from tests.support.storage.store_directory import NOW_MS, Clock, Directory, contents

SOON = 60
KEYS = 5
BACKOFF_MS = 15_000


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    yield directory
    for store in directory.opened:
        store.close()


def fill(log: PartitionLog, segments: int = 3, *, at_ms: int | None = NOW_MS, prefix: bytes = b"") -> None:
    """Segments of ten records, each key twice; the last one stays active. Without `at_ms` the log gives the times."""
    for number in range(segments):
        if number:
            log.roll()
        values = [b"%s%d.%d" % (prefix, number, place) for place in range(10)]
        times: dict[str, Any] = {} if at_ms is None else {"timestamp_ms": at_ms}
        log.append([Record(key=b"k%d" % (place % KEYS), value=value, **times) for place, value in enumerate(values)])


def compacted(store: Store, topic: str = "orders", **configs: object) -> PartitionLog:
    store.create_topic(topic, 1, {"cleanup.policy": "compact", **{k.replace("_", "."): v for k, v in configs.items()}})
    return store.partition(topic, 0)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in log.read(log.start_offset)]


def state(store: Store, topic: str = "orders") -> PartitionState:
    (found,) = [state for state in store.cleaner.states() if state.topic == topic]
    return found


def checkpoint(directory: Directory) -> list[str]:
    path = directory.path / "cleaner-offset-checkpoint"
    return path.read_text().splitlines()[2:] if path.exists() else []


LAST_OF_EACH_KEY = [*range(15, 20), *range(20, 30)]
"""Of three segments, the last of which is active."""


# On request


def test_a_log_is_compacted_on_request(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    told: list[CompactionProgress] = []
    report = store.compact("orders", 0, on_progress=told.append)
    assert offsets(log) == LAST_OF_EACH_KEY
    assert (report.topic, report.partition) == ("orders", 0)
    assert (report.first_dirty_offset, report.end_offset) == (0, 20)
    assert (report.records_before, report.records_after) == (20, 5)
    assert report.bytes_after < report.bytes_before
    assert told
    assert checkpoint(directory) == ["orders 0 20"]
    assert state(store).last_report is report


def test_what_was_compacted_is_there_after_a_start(directory: Directory) -> None:
    with directory.open() as store:
        fill(compacted(store))
        store.compact("orders", 0)
    with directory.open() as store:
        assert offsets(store.partition("orders", 0)) == LAST_OF_EACH_KEY
        dirty = state(store).dirty
        assert dirty is not None
        assert (dirty.first_dirty_offset, dirty.cleanable_bytes) == (20, 0)


def test_a_second_compaction_continues_where_the_first_one_ended(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    store.compact("orders", 0, workers=1)
    log.roll()
    again = store.compact("orders", 0, workers=2)
    assert (again.first_dirty_offset, again.end_offset) == (20, 30)
    assert offsets(log) == [*range(25, 30)]
    nothing = store.compact("orders", 0)
    assert nothing.notes == ["nothing can be compacted from offset 30 on: the active segment starts at offset 30"]
    assert (nothing.rounds, nothing.records_before, nothing.bytes_before) == (0, 0, 0)


def test_a_topic_that_is_not_compacted_is_refused(directory: Directory) -> None:
    store = directory.open()
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0))
    with pytest.raises(InvalidConfig, match=r"orders-0 is not compacted: the cleanup\.policy of its topic is delete"):
        store.compact("orders", 0)
    with pytest.raises(InvalidConfig, match="__cluster_metadata-0 is not compacted"):
        store.compact("__cluster_metadata", 0)
    with pytest.raises(UnknownTopic):
        store.compact("orders", 1)
    with pytest.raises(UnknownTopic):
        store.compact("nothing", 0)


def test_a_store_that_is_closed_or_only_read_does_not_compact(directory: Directory) -> None:
    with directory.open() as store:
        fill(compacted(store))
    with pytest.raises(StorageError, match="closed"):
        store.compact("orders", 0)
    before = contents(directory.path)
    with directory.open({"log.cleaner.backoff.ms": 1}, read_only=True) as reader:
        with pytest.raises(StorageError, match="reading only"):
            reader.compact("orders", 0)
        directory.pass_time(3_600_000)
        found = state(reader)
        assert found.dirty is not None
        assert (found.dirty.cleanable_bytes > 0, found.activity) == (True, Activity.IDLE)
        assert reader.cleaner.totals().threads == 0
    assert contents(directory.path) == before


def test_a_store_that_is_only_read_has_no_cleaner_threads_nor_one_whose_cleaner_is_off(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def cleaners() -> int:
        return sum(thread.name.startswith("duralog-cleaner") for thread in set(threading.enumerate()) - before)

    with duralog.open(tmp_path, {"log.cleaner.threads": 3}):
        assert cleaners() == 3
    assert cleaners() == 0
    with duralog.open(tmp_path, {"log.cleaner.enable": False}):
        assert cleaners() == 0
    with duralog.open(tmp_path, read_only=True):
        assert cleaners() == 0


def test_more_keys_than_the_map_holds_take_more_rounds_and_the_report_says_what_would_help(
    directory: Directory,
) -> None:
    store = directory.open(
        {"log.cleaner.dedupe.buffer.size": (1 << 20) + 24, "log.cleaner.io.buffer.load.factor": 1e-4}
    )
    log = compacted(store)
    for number in range(3):
        log.roll()
        log.append([Record(key=b"%d" % place, value=b"%d" % number) for place in range(10)])
    log.roll()
    report = store.compact("orders", 0)
    assert report.rounds > 1
    assert offsets(log) == [*range(20, 30)]
    assert any("log.cleaner.dedupe.buffer.size" in note for note in report.notes)


# By itself


def test_a_dirty_log_is_compacted_by_itself(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    assert state(store).activity is Activity.DUE
    directory.pass_time(0)
    assert offsets(log) == LAST_OF_EACH_KEY
    assert checkpoint(directory) == ["orders 0 20"]
    assert state(store).activity is Activity.IDLE
    assert store.background_errors == ()


def test_threads_compact_all_dirty_logs(tmp_path: Path) -> None:
    with duralog.open(tmp_path, {"log.cleaner.threads": 2, "log.cleaner.backoff.ms": 1}) as store:
        store.create_topic("orders", 4, {"cleanup.policy": "compact"})
        logs = [store.partition("orders", number) for number in range(4)]
        for log in logs:
            fill(log, at_ms=None)
        for _ in range(SOON * 1000):
            # A thread may have come to a log before it was filled, and comes again.
            if store.cleaner.totals().cleanings >= 4 and all(offsets(log) == LAST_OF_EACH_KEY for log in logs):
                break
            threading.Event().wait(0.001)
        else:
            pytest.fail("stuck")
        assert store.background_errors == ()


def test_a_record_waits_no_longer_than_the_topic_allows_and_no_shorter(directory: Directory) -> None:
    store = directory.open({"log.cleaner.min.cleanable.ratio": 1})
    log = compacted(store, min_compaction_lag_ms=60_000, max_compaction_lag_ms=120_000)
    fill(log)
    directory.pass_time(59_999)
    found = state(store).dirty
    assert found is not None
    assert (found.first_uncleanable.limit, found.first_uncleanable.offset) == (CleaningLimit.COMPACTION_LAG, 0)
    assert found.first_uncleanable.cleanable_from_ms == NOW_MS + 60_000
    with_note = store.compact("orders", 0)
    assert "min.compaction.lag.ms is 60000" in with_note.notes[0]
    directory.pass_time(60_001)
    assert len(offsets(log)) == 30
    directory.pass_time(BACKOFF_MS)
    assert offsets(log) == LAST_OF_EACH_KEY


def test_an_open_transaction_keeps_what_follows_from_being_compacted(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log, 2)
    log.roll()
    log.append(
        [Record(key=b"k0", value=b"open")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.roll()
    fill(log, 2)
    report = store.compact("orders", 0)
    assert report.end_offset == 20
    found = state(store).dirty
    assert found is not None
    assert found.first_uncleanable.limit is CleaningLimit.OPEN_TRANSACTION
    assert found.first_uncleanable.reason() == "a transaction is open since offset 20"
    log.end_transaction(7, 0, commit=True)
    assert store.compact("orders", 0).end_offset == 31


def test_a_failing_disk_delays_one_log_and_not_the_others(directory: Directory) -> None:
    from tests.unit.storage.test_store_upkeep import BadDisk

    disk = BadDisk()
    store = directory.open(file_system=disk)
    bad, good = compacted(store, "bad"), compacted(store, "good")
    fill(bad)
    fill(good)
    disk.failing = str(directory.path / "bad-0") + "/00000000000000000000.log.cleaned"
    directory.pass_time(0)
    assert offsets(good) == LAST_OF_EACH_KEY
    assert len(offsets(bad)) == 30
    assert (state(store, "bad").activity, state(store, "bad").attempts) == (Activity.RETRYING, 1)
    assert "the disk is bad" in state(store, "bad").reason
    assert "compaction of bad-0, to be retried in 15 s" in str(store.background_errors[-1])
    bad.append([Record(key=b"k", value=b"v")])
    disk.failing = ""
    directory.pass_time(BACKOFF_MS)
    assert len(offsets(bad)) == 16
    assert state(store, "bad").attempts == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_read_and_written_keeps_to_the_limit(directory: Directory, workers: int) -> None:
    limit = 100_000
    store = directory.open({"log.cleaner.enable": False})
    log = compacted(store)
    for _ in range(20):
        log.append([Record(key=b"%d" % place, value=bytes(1000)) for place in range(50)])
        log.roll()

    def sleep(_stopped: threading.Event, seconds: float) -> None:
        directory.clock.now_ms += round(seconds * 1000)

    cleaner = Cleaner(
        CleanerOwner(
            directory=LogDirectory(LocalFileSystem(), str(directory.path)),
            logs=lambda: {TopicPartition("orders", 0): log},
            clock=directory.clock,
            scheduler=Scheduler(directory.clock, threads=0),
            report_error=lambda _task, error: pytest.fail(str(error)),
            write_checkpoints=lambda: None,
        ),
        BrokerConfig.of({"log.cleaner.io.max.bytes.per.second": limit}),
        wait=sleep,
        steady_clock=directory.clock,
    )
    report = cleaner.compact(TopicPartition("orders", 0), log, cleaner.settings.on_request(workers=workers))
    seconds = (directory.clock.now_ms - NOW_MS) / 1000
    passed_bytes = report.map_bytes + report.read_bytes + report.written_bytes
    assert passed_bytes > 2_000_000
    assert 0.9 * limit < passed_bytes / seconds < 1.1 * limit


# Topics that change


def test_a_topic_is_compacted_as_soon_as_its_policy_says_so_and_no_longer(directory: Directory) -> None:
    store = directory.open({"log.cleaner.backoff.ms": 1_000_000})
    store.create_topic("orders", 1, {"min.cleanable.dirty.ratio": 0})
    log = store.partition("orders", 0)
    fill(log)
    directory.pass_time(0)
    assert store.cleaner.states() == []
    store.alter_topic_config("orders", {"cleanup.policy": "compact"})
    directory.pass_time(0)
    assert offsets(log) == LAST_OF_EACH_KEY
    store.alter_topic_config("orders", {"cleanup.policy": "delete"})
    log.roll()
    directory.pass_time(1_000_000)
    assert offsets(log) == LAST_OF_EACH_KEY
    store.alter_topic_config("orders", {"cleanup.policy": "compact"})
    directory.pass_time(0)
    assert offsets(log) == [*range(25, 30)]


class Stopped:
    """A compaction that another thread runs, held in the middle of its first piece."""

    def __init__(self, store: Store) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run, args=(store,), daemon=True)
        self.thread.start()
        assert self.began.wait(SOON)

    def run(self, store: Store) -> None:
        try:
            store.compact("orders", 0, on_progress=self.hold)
        except BaseException as error:
            self.error = error

    def hold(self, _progress: CompactionProgress) -> None:
        self.began.set()
        self.may_go_on.wait(SOON)

    def stop_by(self, change: Any) -> str:
        """Do something that has to stop it; returns why it stopped."""
        changing = threading.Thread(target=change, daemon=True)
        changing.start()
        # It waits for the compaction, or is done: both are right, as long as nothing is compacted after it.
        changing.join(0.05)
        self.may_go_on.set()
        for thread in (changing, self.thread):
            thread.join(SOON)
            assert not thread.is_alive(), "stuck"
        assert isinstance(self.error, CompactionStopped)
        return str(self.error)


def test_a_callback_that_changes_topics_waits_for_no_change_that_waits_for_it(directory: Directory) -> None:
    class Changing(Stopped):
        def hold(self, progress: CompactionProgress) -> None:
            super().hold(progress)
            if store.find_topic("made-by-callback") is None:
                store.create_topic("made-by-callback")

    store = directory.open()
    fill(compacted(store))
    assert "its topic is deleted" in Changing(store).stop_by(lambda: store.delete_topic("orders"))
    store.create_topic("made-later")


def test_a_deleted_topic_is_not_compacted_to_the_end(directory: Directory) -> None:
    store = directory.open()
    fill(compacted(store))
    assert "its topic is deleted" in Stopped(store).stop_by(lambda: store.delete_topic("orders"))
    new = compacted(store)
    fill(new)
    assert len(offsets(new)) == 30
    assert checkpoint(directory) == []
    assert store.compact("orders", 0).first_dirty_offset == 0


def test_a_topic_that_is_no_longer_compacted_is_not_compacted_to_the_end(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    told = Stopped(store).stop_by(lambda: store.alter_topic_config("orders", {"cleanup.policy": "delete"}))
    assert "is not compacted any more" in told
    assert len(offsets(log)) == 30


def test_other_configs_do_not_stop_a_compaction(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    compaction = Stopped(store)
    store.alter_topic_config("orders", {"retention.ms": 1})
    compaction.may_go_on.set()
    compaction.thread.join(SOON)
    assert compaction.error is None
    assert offsets(log) == LAST_OF_EACH_KEY


def test_a_log_that_is_cut_off_is_not_compacted_to_the_end(directory: Directory) -> None:
    store = directory.open()
    log = compacted(store)
    fill(log)
    assert "the log is cut off at offset 10" in Stopped(store).stop_by(lambda: log.truncate_to(12))
    assert log.end_offset == 10
    fill(log, 2, prefix=b"new")
    assert store.compact("orders", 0).end_offset == 20
    assert offsets(log) == [*range(15, 30)]


def test_a_tombstone_that_was_written_after_a_cut_deletes_the_value_before_it(directory: Directory) -> None:
    """Were it taken for compacted, it would go in time, and the old value would be there again."""
    store = directory.open()
    log = compacted(store, delete_retention_ms=0)
    log.append([Record(key=b"k", value=b"old")])
    log.roll()
    log.append([Record(key=b"other", value=b"lost")])
    log.roll()
    store.compact("orders", 0)
    log.truncate_to(1)
    log.append([Record(key=b"k", value=None)])
    log.roll()
    for _ in range(3):
        log.append([Record(key=b"filler", value=b"v")])
        log.roll()
        store.compact("orders", 0)
        directory.clock.now_ms += 1
    assert b"k" not in {record.key for record in log.read(log.start_offset)}


def test_closing_the_store_stops_a_compaction_and_is_clean(directory: Directory) -> None:
    store = directory.open()
    fill(compacted(store))
    assert "the store is closed" in Stopped(store).stop_by(store.close)
    assert (directory.path / ".kafka_cleanshutdown").exists()
    assert not [path.name for path in (directory.path / "orders-0").iterdir() if "cleaned" in path.name]
    with directory.open() as store:
        assert len(offsets(store.partition("orders", 0))) == 30
        directory.pass_time(0)
        assert offsets(store.partition("orders", 0)) == LAST_OF_EACH_KEY


# The checkpoint


def test_a_checkpoint_of_a_partition_that_cannot_be_loaded_stays(directory: Directory) -> None:
    with directory.open() as store:
        for topic in ("bad", "good"):
            fill(compacted(store, topic))
            store.compact(topic, 0)
    folder = directory.path / "bad-0"
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: nonsense\n")
    with directory.open() as store:
        assert list(store.offline) == [("bad", 0)]
        store.partition("good", 0).roll()
        store.compact("good", 0)
    assert checkpoint(directory) == ["bad 0 20", "good 0 30"]


def test_a_log_that_lost_its_end_is_compacted_from_its_start(directory: Directory) -> None:
    with directory.open() as store:
        fill(compacted(store))
        store.compact("orders", 0)
    (directory.path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 999\n")
    with directory.open() as store:
        assert checkpoint(directory) == ["orders 0 0"]
        assert store.compact("orders", 0).first_dirty_offset == 0


def test_a_new_partition_does_not_inherit_an_entry_that_was_left_over(directory: Directory) -> None:
    directory.open().close()
    (directory.path / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 15\nothers 0 7\n")
    store = directory.open()
    fill(compacted(store))
    assert checkpoint(directory) == ["others 0 7"]
    assert store.compact("orders", 0).first_dirty_offset == 0


def test_a_deleted_topic_is_taken_out_of_the_checkpoint(directory: Directory) -> None:
    store = directory.open()
    for topic in ("orders", "others"):
        fill(compacted(store, topic))
        store.compact(topic, 0)
    store.delete_topic("orders")
    assert checkpoint(directory) == ["others 0 20"]


# Retention, which goes on beside


def test_a_topic_with_both_policies_is_compacted_and_loses_what_is_old(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    log = compacted(store, cleanup_policy="compact,delete")
    fill(log, 2, at_ms=NOW_MS - 5000)
    log.roll()
    fill(log, 2)
    store.compact("orders", 0)
    assert offsets(log) == [*range(25, 40)]
    report = store.apply_retention()
    assert [(gone.policy, gone.base_offset) for gone in report.removals] == []
    directory.clock.now_ms += 2000
    store.apply_retention()
    assert offsets(log) == []
    assert store.compact("orders", 0).notes


def test_retention_takes_segments_from_under_a_compaction_which_is_then_done_again(directory: Directory) -> None:
    store = directory.open({"log.retention.ms": 1000})
    log = compacted(store, cleanup_policy="compact,delete", retention_ms=1000)
    fill(log, 2, at_ms=NOW_MS - 5000)
    log.roll()
    fill(log, 3)
    removed: list[int] = []

    def retain(progress: CompactionProgress) -> None:
        if progress.phase == "rewriting" and progress.bytes_done and not removed:
            removed.extend(gone.base_offset for gone in store.apply_retention().removals)

    report = store.compact("orders", 0, on_progress=retain)
    assert removed == [0, 10]
    assert log.start_offset == 20
    assert (report.first_dirty_offset, report.end_offset) == (20, 40)
    assert offsets(log) == [*range(35, 50)]
    assert not [path.name for path in (directory.path / "orders-0").iterdir() if "cleaned" in path.name]
    assert checkpoint(directory) == ["orders 0 40"]


def test_in_the_background_it_is_done_again_after_the_pause(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = directory.open({"log.retention.ms": 60_000})
    log = compacted(store, cleanup_policy="compact,delete")
    fill(log, 2, at_ms=NOW_MS - 70_000)
    log.roll()
    fill(log, 3)
    pass_bytes = store.cleaner._throttle.add

    def retain_first(count: int, wait: Any) -> None:
        progress = state(store).progress
        if progress is not None and progress.phase == "rewriting":
            store.apply_retention()
        pass_bytes(count, wait)

    monkeypatch.setattr(store.cleaner._throttle, "add", retain_first)
    directory.pass_time(0)
    assert (state(store).activity, state(store).attempts) == (Activity.RETRYING, 0)
    assert len(offsets(log)) == 30
    directory.pass_time(BACKOFF_MS)
    assert offsets(log) == [*range(35, 50)]
    assert store.background_errors == ()


def test_readers_and_an_appender_go_on_while_logs_are_compacted_and_trimmed(tmp_path: Path) -> None:
    config = {
        "internal.segment.bytes": 4000,
        "log.index.size.max.bytes": 4096,
        "log.cleaner.backoff.ms": 1,
        "log.cleaner.min.cleanable.ratio": 0,
        "log.cleaner.threads": 2,
        "log.retention.bytes": 20_000,
        "log.segment.delete.delay.ms": 0,
    }
    errors: list[BaseException] = []
    done = threading.Event()

    def read(log: PartitionLog) -> None:
        try:
            while not done.is_set():
                last = -1
                try:
                    for record in log.read(log.start_offset):
                        assert record.offset > last
                        assert record.value == b"%d" % record.offset
                        last = record.offset
                except duralog.OffsetOutOfRange:
                    continue
        except BaseException as error:
            errors.append(error)

    with duralog.open(tmp_path, config) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact,delete"})
        log = store.partition("orders", 0)
        readers = [threading.Thread(target=read, args=(log,)) for _ in range(2)]
        for reader in readers:
            reader.start()
        for number in range(0, 4000, 20):
            log.append([Record(key=b"%d" % (at % 700), value=b"%d" % at) for at in range(number, number + 20)])
            if number % 400 == 0:
                store.apply_retention()
        done.set()
        for reader in readers:
            reader.join()
        log.roll()
        store.compact("orders", 0)
        assert errors == []
        assert store.background_errors == ()
        # At least the last record of every key that retention has not taken.
        kept = offsets(log)
        assert set(range(max(3300, log.start_offset), 4000)) <= set(kept)
        assert len({offset % 700 for offset in kept}) == len(kept)
