"""The cleaner with compactions that a test directs: which log, when, what is remembered, and how it stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog import PartitionLog, Record
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaned_partitions import CleanerOwner
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.compaction.cleaner_state import Activity, PartitionState
from duralog.storage.compaction.report import (
    CompactionPhase,
    CompactionProgress,
    CompactionReport,
    CompactionStopped,
)
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.store import Store
from tests.support.storage.store_directory import NOW_MS, Clock, Directory

SOON = 30
"""Seconds after which a thread that should have gone on is taken for stuck."""


class Call:
    """One call of `compact_log`."""

    def __init__(self, log: PartitionLog, options: dict[str, Any]) -> None:
        self.log = log
        self.options = options
        self.topic = log.topic

    def __getattr__(self, name: str) -> Any:
        return self.options[name] if name in self.options else getattr(self.options["settings"], name)

    def report(self, **figures: Any) -> CompactionReport:
        return CompactionReport(
            **{
                "topic": self.log.topic,
                "partition": self.log.partition,
                "first_dirty_offset": self.first_dirty_offset,
                "end": self.end,
                "end_offset": self.end,
                "rounds": 1,
                **figures,
            }
        )


class Bench:
    """A store whose logs are compacted by a cleaner of the test's own."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.directory = Directory(path / "data", self.clock)
        self.store: Store = self.directory.open({"log.cleaner.enable": False, "log.cleanup.policy": "compact"})
        self.scheduler = Scheduler(self.clock, threads=0)
        self.cleaners: list[Cleaner] = []
        self.calls: list[Call] = []
        self.does: dict[str, Callable[[Call], CompactionReport]] = {}
        """What a compaction of a topic does; it succeeds at once if nothing is said."""
        self.told: list[str] = []

    def topic(self, name: str, sizes: list[int], *, clean: int = 0, age_ms: int = 0, **configs: object) -> PartitionLog:
        """One partition with a segment for each number of records. The first `clean` segments are compacted."""
        overrides = {config.replace("_", "."): value for config, value in configs.items()}
        self.store.create_topic(name, 1, overrides)
        log = self.store.partition(name, 0)
        for number, size in enumerate(sizes):
            if number:
                log.roll()
            if number == clean and clean:
                self.write_checkpoint(f"{name} 0 {log.end_offset}")
            log.append([Record(key=b"k", value=bytes(100), timestamp_ms=NOW_MS - age_ms)] * size)
        return log

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        return {
            TopicPartition(topic, number): self.store.partition(topic, number)
            for topic in self.store.topics()
            for number in self.store.partitions(topic)
        }

    def cleaner(self, config: dict[str, object] | None = None, **options: Any) -> Cleaner:
        own = {
            "directory": LogDirectory(options.pop("files", LocalFileSystem()), str(self.directory.path)),
            "logs": self.logs,
            "clock": self.clock,
            "scheduler": self.scheduler,
            "report_error": lambda task, error: self.told.append(f"{task}: {error}"),
            "write_checkpoints": lambda: None,
        }
        owner = CleanerOwner(**{name: options.pop(name, found) for name, found in own.items()})
        cleaner = Cleaner(
            owner,
            BrokerConfig.of(config or {}),
            **{"compact_log": self.compact_log, "steady_clock": self.clock, **options},
        )
        self.cleaners.append(cleaner)
        cleaner.start()
        return cleaner

    def compact_log(self, log: PartitionLog, **options: Any) -> CompactionReport:
        call = Call(log, options)
        self.calls.append(call)
        return self.does.get(log.topic, Call.report)(call)

    @property
    def compacted(self) -> list[str]:
        return [call.topic for call in self.calls]

    @property
    def checkpoint_path(self) -> Path:
        return self.directory.path / "cleaner-offset-checkpoint"

    def checkpoint(self) -> list[str]:
        return self.checkpoint_path.read_text().splitlines()[2:] if self.checkpoint_path.exists() else []

    def write_checkpoint(self, line: str) -> None:
        lines = [*self.checkpoint(), line]
        self.checkpoint_path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.scheduler.run_due()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for cleaner in bench.cleaners:
        cleaner.stop()
    bench.store.close()


def state(cleaner: Cleaner, topic: str) -> PartitionState:
    (found,) = [state for state in cleaner.states() if state.topic == topic]
    return found


class Held:
    """A compaction that runs until it may end, or must stop."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, call: Call) -> CompactionReport:
        self.began.set()
        while not self.may_end.wait(0.001):
            call.check_stop()
        return call.report()


class Thread(threading.Thread):
    """One that records what ended it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.result = error

    def ended_with(self) -> object:
        self.join(SOON)
        assert not self.is_alive(), "stuck"
        return self.result


# Which log


def test_the_dirtiest_log_comes_first_and_each_comes_once(bench: Bench) -> None:
    bench.topic("half", [10, 11, 1], clean=1)
    bench.topic("most", [10, 90, 1], clean=1)
    bench.topic("all", [10, 10, 1])
    cleaner = bench.cleaner()
    while cleaner.clean_next():
        pass
    assert bench.compacted == ["all", "most", "half"]


def test_logs_that_are_not_due_or_not_compacted_stay_alone(bench: Bench) -> None:
    bench.topic("clean", [50, 10, 1], clean=1)
    bench.topic("short", [50])
    bench.topic("deleted", [10, 10, 1], cleanup_policy="delete")
    bench.topic("neither", [10, 10, 1], cleanup_policy="")
    assert not bench.cleaner().clean_next()
    assert bench.calls == []


def test_a_log_with_both_policies_is_compacted(bench: Bench) -> None:
    bench.topic("both", [10, 10, 1], cleanup_policy="compact,delete")
    assert bench.cleaner().clean_next()


def test_a_log_that_is_overdue_is_compacted_however_little_is_new(bench: Bench) -> None:
    bench.topic("late", [50, 10, 1], clean=1, age_ms=5001, max_compaction_lag_ms=5000)
    bench.topic("early", [50, 10, 1], clean=1, age_ms=4000, max_compaction_lag_ms=5000)
    cleaner = bench.cleaner()
    while cleaner.clean_next():
        pass
    assert bench.compacted == ["late"]


def test_a_compaction_gets_its_range_and_its_share_of_memory(bench: Bench) -> None:
    bench.topic("orders", [10, 90, 20, 1], clean=1)
    bench.cleaner(
        {
            "log.cleaner.threads": 2,
            "log.cleaner.dedupe.buffer.size": 10_000_000,
            "log.cleaner.io.buffer.size": 1000,
            "log.cleaner.io.buffer.load.factor": 0.7,
        }
    ).clean_next()
    (call,) = bench.calls
    assert (call.first_dirty_offset, call.end, call.now_ms) == (10, 120, NOW_MS)
    assert (call.memory_bytes, call.load_factor, call.buffer_bytes, call.workers) == (5_000_000, 0.7, 250, 1)


def test_the_memory_of_a_thread_ends_where_java_arrays_do(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.cleaner({"log.cleaner.dedupe.buffer.size": 1 << 40}).clean_next()
    assert bench.calls[0].memory_bytes == 2**31 - 1


@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.00001, 1.5])
def test_a_load_factor_that_no_map_could_have_is_not_used(
    bench: Bench, caplog: pytest.LogCaptureFixture, factor: float
) -> None:
    bench.topic("orders", [10, 10, 1])
    config: dict[str, object] = {
        "log.cleaner.io.buffer.load.factor": factor,
        "log.cleaner.dedupe.buffer.size": (1 << 20) + 1,
    }
    bench.cleaner(config).clean_next()
    assert bench.calls[0].load_factor == 0.9
    assert f"log.cleaner.io.buffer.load.factor is {factor}" in caplog.text


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_by_which_nothing_could_be_compacted_is_not_used(
    bench: Bench, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    bench.topic("orders", [10, 10, 1])

    def read(call: Call) -> CompactionReport:
        for _ in range(10):
            call.on_bytes(1 << 30)
        return call.report()

    bench.does["orders"] = read
    naps: list[float] = []
    bench.cleaner(
        {"log.cleaner.io.max.bytes.per.second": limit}, wait=lambda _, seconds: naps.append(seconds)
    ).clean_next()
    assert naps == []
    assert f"log.cleaner.io.max.bytes.per.second is {float(limit)}" in caplog.text


# The threads


def test_a_cleaner_looks_again_after_a_compaction_and_rests_when_nothing_is_due(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.topic(name, [10, 10, 1])
    bench.cleaner({"log.cleaner.backoff.ms": 7000})
    bench.pass_time(0)
    assert bench.compacted == ["a", "b"]
    bench.topic("c", [10, 10, 1])
    bench.pass_time(6999)
    assert bench.compacted == ["a", "b"]
    bench.pass_time(1)
    assert bench.compacted == ["a", "b", "c"]


def test_a_new_pause_is_in_force_before_the_old_one_has_passed(bench: Bench) -> None:
    cleaner = bench.cleaner({"log.cleaner.backoff.ms": 86_400_000})
    bench.pass_time(0)
    for pause_ms in (2000, 1000):
        cleaner.follow(BrokerConfig.of({"log.cleaner.backoff.ms": pause_ms}))
        bench.pass_time(0)
    bench.topic("orders", [10, 10, 1])
    bench.pass_time(999)
    assert bench.compacted == []
    bench.pass_time(1)
    assert bench.compacted == ["orders"]
    bench.pass_time(86_400_000)
    assert [task.name for task in bench.scheduler._tasks] == ["compaction"]


def test_a_cleaner_that_is_switched_off_compacts_nothing_by_itself(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner({"log.cleaner.enable": False})
    cleaner.wake()
    bench.pass_time(3_600_000)
    assert bench.calls == []
    assert state(cleaner, "orders").reason == "it is due, but background compaction is disabled"
    assert cleaner.totals().threads == 0


def test_two_threads_compact_two_logs_and_never_the_same(bench: Bench) -> None:
    held = {name: Held() for name in ("a", "b")}
    bench.does.update(held)
    for name in held:
        bench.topic(name, [10, 10, 1])
    cleaner = bench.cleaner({"log.cleaner.threads": 2}, scheduler=Scheduler(threads=2))
    for each in held.values():
        assert each.began.wait(SOON)
    assert not cleaner.clean_next()
    assert {state.activity for state in cleaner.states()} == {Activity.CLEANING}
    for each in held.values():
        each.may_end.set()
    cleaner.stop()
    assert sorted(bench.compacted) == ["a", "b"]


def test_a_log_claimed_by_another_thread_is_not_compacted(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    held = bench.does["orders"] = Held()
    cleaner = bench.cleaner()
    (due,) = cleaner._due_logs()
    thread = Thread(cleaner.clean_next)
    assert held.began.wait(SOON)
    assert not cleaner._clean_if_due(*due)
    held.may_end.set()
    assert thread.ended_with() is True
    assert bench.compacted == ["orders"]


def test_a_log_just_compacted_by_another_thread_is_not_compacted_again(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    due = cleaner._due_logs()
    assert cleaner.clean_next()
    assert due == [(("orders", 0), log)]
    assert not cleaner._clean_if_due(*due[0])
    assert bench.compacted == ["orders"]


def test_a_log_is_not_compacted_if_its_policy_has_changed_since_it_was_chosen(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    (due,) = cleaner._due_logs()
    bench.store.alter_topic_config("orders", {"cleanup.policy": "delete"})
    assert not cleaner._clean_if_due(*due)
    assert bench.calls == []


def test_a_log_whose_compaction_has_failed_since_it_was_chosen_is_left_alone_for_now(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    (due,) = cleaner._due_logs()
    assert cleaner.clean_next()
    assert not cleaner._clean_if_due(*due)
    assert bench.compacted == ["orders"]


# The checkpoint


def test_the_checkpoint_is_written_after_a_compaction_and_keeps_what_else_is_in_it(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.write_checkpoint("elsewhere 3 77")
    bench.cleaner().clean_next()
    assert sorted(bench.checkpoint()) == ["elsewhere 3 77", "orders 0 20"]


def test_the_checkpoint_is_written_after_each_round(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    seen: list[list[str]] = []

    def in_rounds(call: Call) -> CompactionReport:
        for end_offset in (4, 13):
            call.on_round(end_offset)
            seen.append(bench.checkpoint())
        raise StorageError("the disk is full")

    bench.does["orders"] = in_rounds
    cleaner = bench.cleaner()
    cleaner.clean_next()
    assert seen == [["orders 0 4"], ["orders 0 13"]]
    dirty = state(cleaner, "orders").dirty
    assert dirty is not None
    assert dirty.first_dirty_offset == 13


def test_a_checkpoint_above_the_end_is_corrected_before_the_log_can_grow_beyond_it(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    bench.write_checkpoint("orders 0 25")
    cleaner = bench.cleaner()
    assert bench.checkpoint() == ["orders 0 0"]
    log.append([Record(key=b"k", value=b"v")] * 10)
    cleaner.clean_next()
    assert bench.calls[0].first_dirty_offset == 0


@pytest.mark.parametrize(("policy", "level"), [("compact", "WARNING"), ("compact,delete", "INFO")])
def test_a_checkpoint_below_the_start_is_corrected(
    bench: Bench, caplog: pytest.LogCaptureFixture, policy: str, level: str
) -> None:
    log = bench.topic("orders", [10, 10, 1], cleanup_policy=policy)
    log.delete_records(15)
    bench.write_checkpoint("orders 0 3")
    with caplog.at_level(logging.INFO, "duralog.storage.compaction.cleaned_partitions"):
        bench.cleaner()
    assert bench.checkpoint() == ["orders 0 15"]
    (line,) = caplog.records
    assert line.levelname == level
    assert line.getMessage() == (
        "orders-0: compaction begins at offset 15: it was compacted up to offset 3, but starts at 15"
    )


def test_a_log_whose_start_has_moved_meanwhile_is_compacted_from_there(bench: Bench) -> None:
    log = bench.topic("orders", [10, 90, 1], clean=1, min_cleanable_dirty_ratio=0)
    cleaner = bench.cleaner()
    log.delete_records(15)
    cleaner.clean_next()
    assert bench.calls[0].first_dirty_offset == 15
    assert bench.checkpoint() == ["orders 0 100"]


def test_a_damaged_checkpoint_makes_everything_new(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.checkpoint_path.write_text("0\n1\norders zero\n")
    cleaner = bench.cleaner()
    cleaner.clean_next()
    assert bench.calls[0].first_dirty_offset == 0
    assert bench.checkpoint() == ["orders 0 20"]


class FullDisk(LocalFileSystem):
    is_full = False

    def replace(self, path: str, data: Any) -> None:
        if self.is_full:
            raise StorageError(f"{path}: cannot replace: the disk is full")
        super().replace(path, data)


def test_a_checkpoint_that_cannot_be_written_is_written_later(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    disk = FullDisk()
    cleaner = bench.cleaner(files=disk)
    disk.is_full = True
    cleaner.clean_next()
    assert "the disk is full" in state(cleaner, "orders").reason
    assert not cleaner.clean_next()
    assert "writing the checkpoint" in bench.told[-1]
    assert bench.checkpoint() == []
    disk.is_full = False
    assert not cleaner.clean_next()
    assert bench.checkpoint() == ["orders 0 20"]


def test_deleted_partitions_leave_nothing_behind(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    cleaner.clean_next()
    cleaner.forget([TopicPartition("orders", 0)])
    assert bench.checkpoint() == []
    assert state(cleaner, "orders").last_report is None


# Failures


def fail(_call: Call) -> CompactionReport:
    raise StorageError("the disk is bad")


def test_a_compaction_that_fails_is_tried_again_after_pauses_that_grow_to_an_hour(bench: Bench) -> None:
    bench.topic("bad", [10, 10, 1])
    bench.does["bad"] = fail
    cleaner = bench.cleaner()
    pauses = []
    for _ in range(11):
        assert cleaner.clean_next()
        retry_at_ms = state(cleaner, "bad").retry_at_ms
        assert retry_at_ms is not None
        pauses.append(retry_at_ms - bench.clock.now_ms)
        bench.clock.now_ms = retry_at_ms - 1
        assert not cleaner.clean_next()
        bench.clock.now_ms += 1
    assert pauses == [15_000 << power for power in range(8)] + [3_600_000] * 3
    assert state(cleaner, "bad").attempts == 11


def test_a_failure_is_visible_and_costs_the_other_logs_nothing(bench: Bench) -> None:
    bench.topic("bad", [10, 10, 1])
    bench.topic("good", [20, 10, 1], clean=1, min_cleanable_dirty_ratio=0)
    bench.does["bad"] = fail
    cleaner = bench.cleaner()
    bench.pass_time(0)
    assert bench.compacted == ["bad", "good"]
    found = state(cleaner, "bad")
    assert (found.activity, found.reason, found.attempts) == (Activity.RETRYING, "the disk is bad", 1)
    assert found.retry_at_ms == NOW_MS + 15_000
    assert bench.told == ["compaction of bad-0, to be retried in 15 s: the disk is bad"]
    totals = cleaner.totals()
    assert (totals.uncleanable_partitions_count, totals.failed_cleanings, totals.cleanings) == (1, 1, 1)
    assert totals.uncleanable_bytes == sum(
        segment.size_bytes for segment in bench.logs()[TopicPartition("bad", 0)].segments[:-1]
    )
    assert totals.dead_threads == 0


def test_a_failure_of_a_log_with_nothing_left_to_compact_is_history(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    cleaner.clean_next()
    log.delete_segments([0, 10], "in the test")
    found = state(cleaner, "orders")
    assert (found.activity, found.retry_at_ms, found.attempts) == (Activity.IDLE, None, 1)
    assert found.reason == (
        "nothing can be compacted from offset 20 on: the active segment starts at offset 20;"
        " the last attempt failed: the disk is bad"
    )
    assert cleaner.totals().uncleanable_partitions_count == 0


def test_a_success_ends_the_row_of_failures(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    bench.pass_time(0)
    del bench.does["orders"]
    bench.pass_time(15_000)
    found = state(cleaner, "orders")
    assert (found.activity, found.attempts, found.retry_at_ms) == (Activity.IDLE, 0, None)
    assert found.last_ended_ms == NOW_MS + 15_000
    assert found.last_report is not None
    assert cleaner.totals().uncleanable_partitions_count == 0


def test_a_log_whose_configs_changed_is_tried_again_at_once(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    bench.pass_time(0)
    cleaner.wake([TopicPartition("orders", 0)])
    bench.pass_time(0)
    assert bench.compacted == ["orders", "orders"]


def test_a_clock_that_is_set_back_does_not_delay_the_next_attempt(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    time_of_day = Clock()
    cleaner = bench.cleaner(clock=time_of_day)
    bench.pass_time(0)
    time_of_day.now_ms -= 86_400_000
    assert state(cleaner, "orders").retry_at_ms == time_of_day.now_ms + 15_000
    bench.pass_time(15_000)
    assert bench.compacted == ["orders", "orders"]


class Panic(BaseException):
    """As native libraries raise them."""


@pytest.mark.parametrize("error", [Panic("at line 7"), SystemExit(1), MemoryError(), ZeroDivisionError()])
def test_nothing_that_a_compaction_raises_ends_a_thread(bench: Bench, error: BaseException) -> None:
    bench.topic("bad", [10, 10, 1])
    done = threading.Event()

    def raise_it(_call: Call) -> CompactionReport:
        raise error

    def succeed(call: Call) -> CompactionReport:
        done.set()
        return call.report()

    bench.does.update(bad=raise_it, good=succeed)
    scheduler = Scheduler(threads=1)
    cleaner = bench.cleaner({"log.cleaner.backoff.ms": 1}, scheduler=scheduler)
    bench.topic("good", [10, 10, 1])
    assert done.wait(SOON)
    assert all(thread.is_alive() for thread in scheduler._threads)
    assert state(cleaner, "bad").reason == repr(error)


def test_a_log_that_cannot_be_looked_at_does_not_keep_the_others_from_their_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = bench.topic("bad", [10, 10, 1], min_compaction_lag_ms=1, age_ms=10)
    bench.topic("good", [10, 10, 1], min_compaction_lag_ms=1, age_ms=10)
    segment = bad.view.segments.first

    def cannot(_self: object) -> int:
        raise StorageError("no such file")

    unreadable = type("Unreadable", (type(segment),), {"largest_timestamp_ms": property(cannot)})
    monkeypatch.setattr(segment, "__class__", unreadable)
    cleaner = bench.cleaner()
    bench.pass_time(0)
    assert bench.compacted == ["good"]
    assert (state(cleaner, "bad").dirty, state(cleaner, "bad").reason) == (None, "no such file")
    assert (state(cleaner, "bad").activity, state(cleaner, "bad").attempts) == (Activity.RETRYING, 1)


def test_a_segment_that_retention_takes_at_the_moment_of_a_look_is_no_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench.topic("orders", [10, 10, 10, 1], min_compaction_lag_ms=1, age_ms=10)
    segment = log.view.segments.first

    def gone(_self: object) -> int:
        log.delete_segments([0], "in the test")
        raise StorageError("no such file")

    unreadable = type("Unreadable", (type(segment),), {"largest_timestamp_ms": property(gone)})
    monkeypatch.setattr(segment, "__class__", unreadable)
    bench.cleaner().clean_next()
    assert [call.first_dirty_offset for call in bench.calls] == [10]
    assert bench.told == []


def test_a_log_that_a_failing_disk_has_left_in_doubt_is_left_alone_and_says_so(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    log._writer.fail(StorageError("cannot sync"))
    assert not cleaner.clean_next()
    assert bench.calls == []
    found = state(cleaner, "orders")
    assert (found.activity, found.attempts) == (Activity.IDLE, 0)
    assert found.reason == "a disk error has left the log in an unknown state: open the directory again"


def test_a_compaction_that_gets_nowhere_is_a_failure_and_not_an_endless_loop(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = lambda call: call.report(end_offset=0)
    cleaner = bench.cleaner()
    bench.pass_time(0)
    assert bench.compacted == ["orders"]
    assert "makes no progress beyond offset 0" in state(cleaner, "orders").reason


def test_a_log_that_changed_under_a_compaction_is_done_again_after_the_pause_and_is_no_failure(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])

    def lose(_call: Call) -> CompactionReport:
        raise CompactionStopped("orders-0: segment 0 is gone")

    bench.does["orders"] = lose
    cleaner = bench.cleaner()
    bench.pass_time(0)
    found = state(cleaner, "orders")
    assert (found.activity, found.attempts) == (Activity.RETRYING, 0)
    assert found.reason == "orders-0: segment 0 is gone"
    assert bench.told == []
    del bench.does["orders"]
    bench.pass_time(15_000)
    assert bench.compacted == ["orders", "orders"]
    assert state(cleaner, "orders").activity is Activity.IDLE


# Stopping


def test_stopping_ends_a_compaction_soon_and_waits_for_it(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    held = bench.does["orders"] = Held()
    cleaner = bench.cleaner(scheduler=Scheduler(threads=1))
    assert held.began.wait(SOON)
    Thread(cleaner.stop).ended_with()
    assert state(cleaner, "orders").activity is not Activity.CLEANING
    assert state(cleaner, "orders").attempts == 0
    assert bench.told == []
    with pytest.raises(CompactionStopped):
        cleaner.compact(TopicPartition("orders", 0), bench.store.partition("orders", 0))


def test_stopping_ends_the_sleep_of_a_compaction_that_was_too_fast(bench: Bench) -> None:
    """At one byte a second it would sleep for 31 years."""
    bench.topic("orders", [10, 10, 1])
    sleeping = threading.Event()

    def read(call: Call) -> CompactionReport:
        call.on_bytes(1)
        sleeping.set()
        call.on_bytes(10**9)
        call.on_bytes(10**9)
        return call.report()

    bench.does["orders"] = read
    cleaner = bench.cleaner({"log.cleaner.io.max.bytes.per.second": 1}, scheduler=Scheduler(threads=1))
    assert sleeping.wait(SOON)
    Thread(cleaner.stop).ended_with()
    assert bench.checkpoint() == []


def test_partitions_can_be_kept_away_from_the_cleaner(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    bench.topic("others", [10, 10, 1])
    partition = TopicPartition("orders", 0)
    held = bench.does["orders"] = Held()
    cleaner = bench.cleaner()
    thread = Thread(cleaner.clean_next)
    assert held.began.wait(SOON)
    with cleaner.kept_away([partition], "its topic is deleted"):
        # The thread went on to the other log.
        assert thread.ended_with() is True
        assert bench.compacted == ["orders", "others"]
        assert not cleaner.clean_next()
        with pytest.raises(CompactionStopped):
            cleaner.compact(partition, bench.store.partition("orders", 0))
    assert state(cleaner, "orders").activity is Activity.DUE
    held.may_end.set()
    assert cleaner.clean_next()
    assert bench.compacted[2:] == ["orders"]


def test_a_log_of_a_deleted_topic_is_not_compacted_when_its_turn_comes(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    due = cleaner._due_logs()
    bench.store.delete_topic("orders")
    bench.topic("orders", [10, 10, 1])
    assert due[0][1] is log
    assert not cleaner._clean_if_due(*due[0])
    assert bench.calls == []


def test_closing_the_store_in_a_progress_callback_does_not_deadlock(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    progress = CompactionProgress(
        phase=CompactionPhase.MAPPING,
        round=1,
        bytes_done=1,
        bytes_total=2,
        map_fill=0.5,
        records_read=3,
        records_kept=2,
    )

    def show(call: Call) -> CompactionReport:
        call.on_progress(progress)
        call.check_stop()
        raise AssertionError

    bench.does["orders"] = show
    cleaner = bench.cleaner()
    with pytest.raises(CompactionStopped, match="the store is closed"):
        cleaner.compact(
            TopicPartition("orders", 0), log, cleaner.settings.on_request(on_progress=lambda _: cleaner.stop())
        )


# A log whose end is cut off


def test_the_checkpoint_is_lowered_before_a_log_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench.topic("orders", [10, 10, 10, 1])
    cleaner = bench.cleaner()
    cleaner.clean_next()
    assert bench.checkpoint() == ["orders 0 30"]
    seen: list[list[str]] = []

    def look(*args: Any) -> None:
        seen.append(bench.checkpoint())

    monkeypatch.setattr("duralog.storage.log.partition_log.truncate_to", look)
    log.truncate_to(15)
    # A segment that loses its second half loses it at the start of a batch, which may lie lower: the whole is new.
    assert seen == [["orders 0 10"]]


def test_a_cut_behind_what_is_compacted_changes_nothing(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 5])
    cleaner = bench.cleaner()
    cleaner.clean_next()
    log.truncate_to(22)
    log.truncate_to(99)
    assert bench.checkpoint() == ["orders 0 20"]


def test_a_cut_stops_a_compaction_and_what_it_says_of_the_lost_part_does_not_count(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 10, 1])

    def cut(call: Call) -> CompactionReport:
        log.truncate_to(12)
        log.append([Record(key=b"k", value=b"v")] * 50)
        with pytest.raises(CompactionStopped, match="the log is cut off at offset 10"):
            call.check_stop()
        call.on_round(30)
        return call.report()

    bench.does["orders"] = cut
    cleaner = bench.cleaner()
    cleaner.clean_next()
    assert bench.checkpoint() == ["orders 0 10"]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_cut_that_began_before_a_compaction_is_waited_for(bench: Bench, is_asked: bool) -> None:
    log = bench.topic("orders", [10, 10, 10, 1])
    cleaner = bench.cleaner()
    lose_end, told, may_go = log.before_cut, threading.Event(), threading.Event()

    def slowly(offset: int) -> None:
        lose_end(offset)
        told.set()
        assert may_go.wait(SOON)

    log.before_cut = slowly
    cutting = Thread(lambda: log.truncate_to(12))
    assert told.wait(SOON)
    cleaning = Thread(lambda: cleaner.compact(TopicPartition("orders", 0), log) if is_asked else cleaner.clean_next())
    while cleaning.is_alive() and state(cleaner, "orders").activity is not Activity.CLEANING:
        cleaning.join(0.001)
    may_go.set()
    assert cutting.ended_with() is None
    assert not isinstance(cleaning.ended_with(), BaseException)
    assert log.end_offset == 10
    assert [call.end for call in bench.calls] == [10]
    assert bench.checkpoint() == ["orders 0 10"]


def test_a_cut_of_the_active_segment_does_not_stop_a_compaction(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 5])

    def cut(call: Call) -> CompactionReport:
        log.truncate_to(20)
        call.check_stop()
        return call.report()

    bench.does["orders"] = cut
    assert bench.cleaner().clean_next()
    assert bench.checkpoint() == ["orders 0 20"]


def test_the_memory_of_a_compaction_that_failed_is_given_back_after_the_pause(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])

    def fail_late(call: Call) -> CompactionReport:
        call.make_map(16 << 20, 0.9)
        return fail(call)

    bench.does["orders"] = fail_late
    cleaner = bench.cleaner({"log.cleaner.backoff.ms": 7000})
    bench.pass_time(6999)
    assert cleaner._maps._spare is not None
    bench.pass_time(7000)
    assert cleaner._maps._spare is None


# On request


def test_a_log_is_compacted_on_request_whatever_the_ratio(bench: Bench) -> None:
    log = bench.topic("orders", [50, 10, 1], clean=1)
    cleaner = bench.cleaner({"log.cleaner.threads": 3})
    assert not cleaner.clean_next()
    report = cleaner.compact(TopicPartition("orders", 0), log)
    assert (report.first_dirty_offset, report.end_offset) == (50, 60)
    assert bench.checkpoint() == ["orders 0 60"]
    assert bench.calls[0].workers == 3
    assert state(cleaner, "orders").last_report is report


def test_where_nothing_can_be_compacted_the_report_says_why(bench: Bench) -> None:
    log = bench.topic("orders", [10, 1], clean=1)
    report = bench.cleaner().compact(TopicPartition("orders", 0), log)
    assert bench.calls == []
    assert report.notes == ["nothing can be compacted from offset 10 on: the active segment starts at offset 10"]
    assert (report.first_dirty_offset, report.end_offset, report.bytes_before, report.records_after) == (10, 10, 0, 0)


@pytest.mark.parametrize(("policy", "told"), [("delete", "is delete"), ("", "is empty")])
def test_a_topic_that_is_not_compacted_is_refused(bench: Bench, policy: str, told: str) -> None:
    log = bench.topic("orders", [10, 10, 1], cleanup_policy=policy)
    with pytest.raises(InvalidConfig, match=f"orders-0 is not compacted: the cleanup.policy of its topic {told}"):
        bench.cleaner().compact(TopicPartition("orders", 0), log)


def test_a_request_waits_for_the_thread_that_is_at_the_log(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    held = bench.does["orders"] = Held()
    cleaner = bench.cleaner()
    thread = Thread(cleaner.clean_next)
    assert held.began.wait(SOON)
    request = Thread(lambda: cleaner.compact(TopicPartition("orders", 0), log))
    while not cleaner._claims._changed._waiters:  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
    held.may_end.set()
    assert thread.ended_with() is True
    report = request.ended_with()
    assert isinstance(report, CompactionReport)
    assert "nothing can be compacted from offset 20 on" in report.notes[0]
    assert bench.compacted == ["orders"]


def test_compacting_in_a_progress_callback_does_not_deadlock(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    partition = TopicPartition("orders", 0)

    def ask_again(call: Call) -> CompactionReport:
        with pytest.raises(CompactionStopped, match="by this thread"):
            cleaner.compact(partition, log)
        return call.report()

    bench.does["orders"] = ask_again
    cleaner = bench.cleaner()
    assert Thread(lambda: cleaner.compact(partition, log).end_offset).ended_with() == 20


def test_a_request_is_repeated_when_segments_vanish_under_it(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 10, 1])

    def lose_once(call: Call) -> CompactionReport:
        if len(bench.calls) == 1:
            log.delete_records(10)
            log.delete_segments([0], "in the test")
            raise CompactionStopped("segment 0 is gone")
        return call.report()

    bench.does["orders"] = lose_once
    report = bench.cleaner().compact(TopicPartition("orders", 0), log)
    assert (report.first_dirty_offset, report.end_offset) == (10, 30)


def test_a_request_is_not_repeated_for_ever(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])

    def lose(_call: Call) -> CompactionReport:
        raise CompactionStopped("segment 0 is gone")

    bench.does["orders"] = lose
    with pytest.raises(CompactionStopped, match="segment 0 is gone"):
        bench.cleaner().compact(TopicPartition("orders", 0), log)
    assert len(bench.calls) == 5


def test_a_failed_request_raises_and_is_shown(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    with pytest.raises(StorageError, match="the disk is bad"):
        cleaner.compact(TopicPartition("orders", 0), log)
    assert (state(cleaner, "orders").attempts, bench.told) == (1, [])


def test_a_policy_that_changes_while_a_request_waits_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench.topic("orders", [10, 10, 1])
    cleaner = bench.cleaner()
    claim = cleaner._claims.claim

    def change_and_claim(*args: Any, **options: Any) -> Any:
        bench.store.alter_topic_config("orders", {"cleanup.policy": "delete"})
        return claim(*args, **options)

    monkeypatch.setattr(cleaner._claims, "claim", change_and_claim)
    with pytest.raises(InvalidConfig, match="is delete"):
        cleaner.compact(TopicPartition("orders", 0), log)
    assert bench.calls == []


def test_a_request_does_not_wait_for_the_pause_after_a_failure(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    bench.does["orders"] = fail
    cleaner = bench.cleaner()
    cleaner.clean_next()
    del bench.does["orders"]
    assert cleaner.compact(TopicPartition("orders", 0), log).end_offset == 20
    assert state(cleaner, "orders").attempts == 0


# The limit of bytes per second


@pytest.mark.parametrize("threads", [1, 3])
def test_all_threads_together_keep_to_the_limit(bench: Bench, threads: int) -> None:
    limit, piece, count = 1_000_000, 50_000, 400

    def wait(_stopped: threading.Event, seconds: float) -> None:
        bench.clock.now_ms += round(seconds * 1000)

    def read(call: Call) -> CompactionReport:
        for _ in range(count):
            call.on_bytes(piece)
        return call.report()

    for number in range(threads):
        bench.topic(f"topic-{number}", [10, 10, 1])
        bench.does[f"topic-{number}"] = read
    config: dict[str, object] = {"log.cleaner.io.max.bytes.per.second": limit, "log.cleaner.threads": threads}
    bench.cleaner(config, wait=wait)
    bench.pass_time(0)
    assert len(bench.calls) == threads
    rate = threads * piece * count * 1000 / (bench.clock.now_ms - NOW_MS)
    assert 0.9 * limit < rate < 1.1 * limit


def test_the_limit_holds_with_a_frozen_task_clock(bench: Bench) -> None:
    """As in a command or a job, whose tasks happen at once or never."""
    log = bench.topic("orders", [10, 10, 1])

    def wait(_woken: threading.Event, seconds: float) -> None:
        bench.clock.now_ms += round(seconds * 1000)

    def read(call: Call) -> CompactionReport:
        for _ in range(100):
            call.on_bytes(100_000)
        return call.report()

    bench.does["orders"] = read
    cleaner = bench.cleaner(
        {"log.cleaner.io.max.bytes.per.second": 1_000_000, "log.cleaner.enable": False},
        scheduler=Scheduler(lambda: 0, threads=0),
        wait=wait,
    )
    cleaner.compact(TopicPartition("orders", 0), log)
    assert 9000 < bench.clock.now_ms - NOW_MS < 11_000


def test_another_limit_ends_a_sleep_that_the_old_one_asked_for(bench: Bench) -> None:
    bench.topic("orders", [10, 10, 1])
    naps: list[float] = []

    def nap(woken: threading.Event, seconds: float) -> None:
        naps.append(seconds)
        cleaner.follow(BrokerConfig.of({}))
        assert woken.is_set()

    def read(call: Call) -> CompactionReport:
        for _ in range(3):
            call.on_bytes(10**9)
        return call.report()

    bench.does["orders"] = read
    cleaner = bench.cleaner({"log.cleaner.io.max.bytes.per.second": 1}, wait=nap)
    assert cleaner.clean_next()
    assert len(naps) == 1
    assert state(cleaner, "orders").last_report is not None


# What can be seen


def test_a_state_shows_what_is_new_and_what_blocks_the_rest(bench: Bench) -> None:
    bench.topic("lag", [10, 10, 1], min_compaction_lag_ms=5000)
    bench.topic("new", [10, 90, 1], clean=1)
    bench.topic("waits", [90, 10, 1], clean=1)
    bench.topic("gone", [10, 10, 1], cleanup_policy="delete")
    cleaner = bench.cleaner()
    assert [(state.topic, state.activity) for state in cleaner.states()] == [
        ("lag", Activity.IDLE),
        ("new", Activity.DUE),
        ("waits", Activity.IDLE),
    ]
    lag, new, waits = cleaner.states()
    assert lag.dirty is not None
    assert lag.dirty.first_uncleanable.cleanable_from_ms == NOW_MS + 5000
    assert "min.compaction.lag.ms is 5000" in lag.reason
    assert new.reason.endswith("% of the log is new")
    assert "min.cleanable.dirty.ratio (50.0%)" in waits.reason


def test_a_log_that_is_overdue_says_so(bench: Bench) -> None:
    bench.topic("late", [50, 10, 1], clean=1, age_ms=5001, max_compaction_lag_ms=5000)
    cleaner = bench.cleaner()
    assert state(cleaner, "late").reason == "a record has waited 1 ms longer than max.compaction.lag.ms"
    assert cleaner.totals().max_compaction_delay_secs == 0.001


def test_a_compaction_shows_how_far_it_is(bench: Bench) -> None:
    log = bench.topic("orders", [10, 10, 1])
    progress = CompactionProgress(
        phase=CompactionPhase.REWRITING,
        round=1,
        bytes_done=1,
        bytes_total=2,
        map_fill=0.5,
        records_read=3,
        records_kept=2,
    )
    seen: list[PartitionState] = []
    told: list[CompactionProgress] = []

    def show(call: Call) -> CompactionReport:
        seen.append(state(cleaner, "orders"))
        call.on_progress(progress)
        seen.append(state(cleaner, "orders"))
        return call.report()

    bench.does["orders"] = show
    cleaner = bench.cleaner()
    cleaner.compact(TopicPartition("orders", 0), log, cleaner.settings.on_request(on_progress=told.append))
    assert [found.activity for found in seen] == [Activity.CLEANING] * 2
    assert [found.progress for found in seen] == [None, progress]
    assert seen[0].started_ms == NOW_MS
    assert told == [progress]
    assert state(cleaner, "orders").progress is None


def test_the_totals_are_of_the_last_cleanings_one_for_each_thread(bench: Bench) -> None:
    figures = {
        "first": {"map_fill": 0.9, "seconds": 99.0, "read_bytes": 10_000, "written_bytes": 10_000},
        "second": {"map_fill": 0.25, "seconds": 3.0, "read_bytes": 300, "written_bytes": 60},
        "third": {"map_fill": 0.5, "seconds": 2.0, "read_bytes": 100, "written_bytes": 20},
    }
    cleaner = bench.cleaner({"log.cleaner.threads": 2})
    assert cleaner.totals().time_since_last_run_ms is None
    assert (cleaner.totals().cleaner_recopy_percent, cleaner.totals().max_dirty_percent) == (0, 0)
    for name, of_topic in figures.items():
        bench.topic(name, [10, 10, 1])
        bench.does[name] = lambda call, of_topic=of_topic: call.report(**of_topic)  # type: ignore[misc]
        cleaner.clean_next()
    bench.topic("next", [10, 10, 1], clean=1)
    bench.clock.now_ms += 4000
    totals = cleaner.totals()
    assert totals.max_buffer_utilization_percent == 50
    assert totals.cleaner_recopy_percent == 20
    assert totals.max_clean_time_secs == 3
    assert totals.max_dirty_percent == 100
    assert totals.time_since_last_run_ms == 4000
    assert (totals.cleanings, totals.threads) == (3, 2)


def test_a_compaction_is_logged_with_its_figures_and_what_should_be_changed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.topic("orders", [10, 10, 1])
    mb = 1 << 20
    bench.does["orders"] = lambda call: call.report(
        rounds=2,
        seconds=4.0,
        map_seconds=1.0,
        rewrite_seconds=3.0,
        map_bytes=10 * mb,
        map_fill=0.9,
        read_bytes=20 * mb,
        bytes_before=20 * mb,
        bytes_after=5 * mb,
        records_before=10_000,
        records_after=1_000,
        keyless_records=7,
        notes=["with log.cleaner.dedupe.buffer.size=9 it would be one round"],
        left_segments=["00000000000000000000.log: broken"],
        corrupt_batches=["00000000000000000000.log: position 5: bad"],
    )
    cleaner = bench.cleaner()
    with caplog.at_level(logging.INFO, "duralog.storage.compaction.cleaner"):
        cleaner.clean_next()
    line, *warnings = caplog.records
    assert line.getMessage() == (
        "orders-0: compacted up to offset 20, from 0 in 2 rounds; 20.0 MB read in 4.0 s (5.0 MB/s); 10.0 MB mapped in"
        " 1.0 s (10.0 MB/s, 25.0% of the time), the map 90.0% full; 20.0 MB rewritten in 3.0 s (6.7 MB/s, 75.0% of the"
        " time); before 20.0 MB and 10,000 records, after 5.0 MB and 1,000; 75.0% smaller, 90.0% fewer records; 7"
        " records without a key removed"
    )
    assert [record.levelname for record in warnings] == ["WARNING"] * 3
    assert [record.getMessage().removeprefix("orders-0: ") for record in warnings] == [
        "with log.cleaner.dedupe.buffer.size=9 it would be one round",
        "00000000000000000000.log: broken",
        "00000000000000000000.log: position 5: bad",
    ]
