"""Planning: what is left out, where logs are cut, what is put together, and what of the disk it touches."""

from __future__ import annotations

import gc
import pickle
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import OffsetOutOfRange, UnknownTopic
from duralog.format.producer_snapshot import encode_producer_snapshot
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.scanning import planning
from duralog.scanning.locations import LocatedStore, Location, open_store
from duralog.scanning.offset_ranges import OffsetRange, resolve, select_partitions
from duralog.scanning.planning import plan
from duralog.scanning.slices import DataLoss
from duralog.scanning.time_range import TimeRange
from duralog.spark import explain
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.isolation import Isolation
from duralog.storage.store import Store
from tests.support.spark.planned_log import (
    NOW_MS,
    ROLLED_AFTER,
    fill,
    offsets,
    open_for_writing,
    plan_all,
    read,
    record,
)
from tests.support.storage.store_directory import NOW_MS as CLOCK_MS
from tests.support.storage.store_directory import Clock, Directory

ORDERS = TopicPartition("orders", 0)
END = 1000
SEGMENTS = END // ROLLED_AFTER


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planned")
    with open_for_writing(path) as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 0, END)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(str(path)) as store:
        yield store


def range_of(store: Store, start: int, end: int, **options: Any) -> list[int]:
    planned = plan(store, {ORDERS: OffsetRange(start, end)}, **options)
    return offsets(read(planned.slices))


# Left out by offset


@pytest.mark.parametrize("max_slice_bytes", [1, 3000, 128 << 20])
@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (0, END), (5, 6), (199, 201), (200, 400), (395, 405), (399, 400), (400, 401), (3, 997), (END - 1, END)],
)
def test_exactly_the_records_of_the_range(store: Store, start: int, end: int, max_slice_bytes: int) -> None:
    assert range_of(store, start, end, max_slice_bytes=max_slice_bytes) == list(range(start, end))


def test_only_the_bytes_near_the_range_are_planned(store: Store) -> None:
    planned = plan(store, {ORDERS: OffsetRange(500, 510)})
    assert (planned.segments_planned, planned.segments_total) == (1, SEGMENTS)
    assert 0 < planned.planned_bytes < planned.total_bytes / 20
    assert planned.total_bytes == store.partition("orders", 0).size_bytes
    assert str(planned) == (
        f"{planned.planned_bytes} of {planned.total_bytes} bytes ({planned.planned_bytes / planned.total_bytes:.1%}),"
        " 1 of 5 segments of 1 partitions, in 1 slices for 1 tasks; topics orders"
    )
    assert planned.to_dict()["planned_bytes"] == planned.planned_bytes


def test_an_empty_range_needs_nothing(store: Store) -> None:
    planned = plan(store, {ORDERS: OffsetRange(500, 500)})
    assert (planned.slices, planned.tasks, planned.planned_bytes) == ((), (), 0)


def test_a_range_that_is_not_there_is_data_loss(store: Store) -> None:
    ranges = {ORDERS: OffsetRange(990, 1010)}
    with pytest.raises(OffsetOutOfRange, match=r"orders-0: offsets 990 to 1010 were asked for, .* from 0 to 1000"):
        plan(store, ranges)
    losses: list[DataLoss] = []
    assert offsets(read(plan(store, ranges, on_data_loss=losses.append).slices)) == list(range(990, END))
    assert [(loss.asked_start, loss.asked_end) for loss in losses] == [(990, 1010)]


# Left out by time


def test_what_is_too_early_is_left_out(store: Store) -> None:
    planned = plan_all(store, times=TimeRange(NOW_MS + 700))
    assert planned.segments_planned == 2
    found = offsets(read(planned.slices))
    assert found == list(range(found[0], END))
    assert 600 <= found[0] <= 700


def test_within_a_large_segment_reading_starts_near_the_time(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for begin in range(0, 20_000, 100):
            log.append([record(number) for number in range(begin, begin + 100)])
        planned = plan_all(store, times=TimeRange(NOW_MS + 19_000))
        assert planned.planned_bytes < planned.total_bytes * 0.07
        found = offsets(read(planned.slices))
        assert found == list(range(found[0], 20_000))
        assert 18_800 < found[0] <= 19_000


def test_times_that_do_not_rise_lose_nothing(tmp_path: Path) -> None:
    times = [5000, 100, 100, 7000, 200, 200, 300, 6000, 100, 400] * 40
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for number, time in enumerate(times):
            if number % 50 == 0:
                log.roll()
            log.append([replace(record(number), timestamp_ms=time + number)])
        for not_before_ms in (0, 150, 3000, 5050, 6500, 7350, 8000):
            table = read(plan_all(store, times=TimeRange(not_before_ms), max_slice_bytes=700).slices)
            late = [number for number, time in enumerate(times) if time + number >= not_before_ms]
            assert set(late) <= set(offsets(table))


def test_a_segment_that_knows_no_time_is_read(path: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(path, tmp_path / "copied"))
    (copied / "orders-0" / "00000000000000000200.timeindex").write_bytes(b"")
    with open_store(str(copied)) as store:
        planned = plan_all(store, times=TimeRange(NOW_MS + 900))
        assert set(range(200, 400)) <= set(offsets(read(planned.slices)))
        assert planned.segments_planned == 2


HOUR_MS = 3_600_000


def hourly(path: Path, timestamp_type: str) -> Store:
    """Ten segments of a topic, an hour apart."""
    clock = Clock()
    with Directory(path, clock).open({"log.retention.ms": -1}) as store:
        store.create_topic("orders", 1, {"message.timestamp.type": timestamp_type})
        log = store.partition("orders", 0)
        for _ in range(10):
            log.append([Record(value=b"x", timestamp_ms=clock.now_ms)])
            log.roll()
            clock.now_ms += HOUR_MS
    return open_store(str(path))


def test_what_is_too_late_is_left_out_where_the_log_sets_the_times(tmp_path: Path) -> None:
    with hourly(tmp_path, "LogAppendTime") as store:
        between = TimeRange(CLOCK_MS + 3 * HOUR_MS, CLOCK_MS + 5 * HOUR_MS)
        # One hour more than asked for: clocks are not exact.
        assert offsets(read(plan_all(store, times=between).slices)) == [3, 4, 5]


def test_what_is_too_late_is_read_where_producers_set_the_times(tmp_path: Path) -> None:
    with hourly(tmp_path, "CreateTime") as store:
        assert offsets(read(plan_all(store, times=TimeRange(before_ms=CLOCK_MS + 5 * HOUR_MS)).slices)) == list(
            range(10)
        )


def test_older_segments_of_such_a_topic_may_have_times_of_producers(tmp_path: Path) -> None:
    hourly(tmp_path, "CreateTime").close()
    with Directory(tmp_path, Clock()).open({"log.retention.ms": -1}) as store:
        store.alter_topic_config("orders", {"message.timestamp.type": "LogAppendTime"})
    with open_store(str(tmp_path)) as store:
        assert store.topic_config("orders").message_timestamp_type == "LogAppendTime"
        assert offsets(read(plan_all(store, times=TimeRange(before_ms=CLOCK_MS + 5 * HOUR_MS)).slices)) == list(
            range(10)
        )


# Cut and put together


def test_slices_have_about_the_wanted_size(store: Store) -> None:
    planned = plan_all(store, max_slice_bytes=3_500)
    assert len(planned.slices) == 3 * SEGMENTS
    assert all(found.size_bytes < 1.3 * 3_500 for found in planned.slices)
    assert all(one.end_offset == two.start_offset for one, two in pairwise(planned.slices))
    assert planned.planned_bytes < 1.3 * planned.total_bytes


def test_small_segments_are_put_together(path: Path, store: Store) -> None:
    assert len(plan_all(store).tasks) == 1
    planned = plan_all(store, max_slice_bytes=600_000)
    assert [len(task) for task in planned.tasks] == [2, 2, 1]
    assert [found for task in planned.tasks for found in task] == list(planned.slices)


@pytest.mark.parametrize("min_slices", [1, 2, 3, 8])
def test_there_are_about_as_many_tasks_as_wanted(tmp_path: Path, min_slices: int) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for begin in range(0, 40_000, 500):
            log.append([record(number) for number in range(begin, begin + 500)])
        planned = plan_all(store, min_slices=min_slices)
        assert min_slices <= len(planned.tasks) <= min_slices + 1
        assert offsets(read(planned.slices)) == list(range(40_000))


def test_a_tiny_slice_does_not_make_a_task_of_every_index_entry(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = len(plan_all(store, max_slice_bytes=1).tasks)
    monkeypatch.setattr(planning, "MANY_TASKS", 20)
    planned = plan_all(store, max_slice_bytes=1)
    assert SEGMENTS <= len(planned.tasks) <= 20 < entries
    assert offsets(read(planned.slices)) == list(range(END))
    # What somebody asked for by number, and a size that is worth a task, are taken as they are.
    assert len(plan_all(store, max_slice_bytes=1, min_slices=10**9).tasks) == entries
    monkeypatch.setattr(planning, "WORTH_A_TASK_BYTES", 1)
    assert len(plan_all(store, max_slice_bytes=1).tasks) == entries


def test_partitions_share_tasks(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 30)
        for number in range(30):
            store.partition("orders", number).append([record(0)])
        planned = plan_all(store)
        assert (len(planned.slices), len(planned.tasks), planned.partitions) == (30, 1, 30)


def test_a_plan_travels(store: Store) -> None:
    planned = plan_all(store, max_slice_bytes=5_000)
    assert pickle.loads(pickle.dumps(planned.tasks)) == planned.tasks
    assert str(planned.slices[0]).startswith("orders-0: offsets 0 to ")


# What is hidden


def test_each_slice_knows_the_aborted_transactions_that_it_needs(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for number in range(60):
            producer: dict[str, Any] = {"producer_id": number % 3, "producer_epoch": 0, "is_transactional": True}
            records = [record(value) for value in range(10)]
            log.append(records, base_sequence=number // 3 * 10, **producer)
            if number % 3 == 2:
                log.end_transaction(0, 0, commit=False)
                log.end_transaction(1, 0, commit=True)
                log.end_transaction(2, 0, commit=number % 2 == 0)
            if number % 20 == 0:
                log.roll()
        whole = offsets(log.read_arrow(isolation="read_committed"))
        planned = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=1)
        assert offsets(read(planned.slices)) == whole
        assert 0 < len(whole) < 600
        assert max(len(found.aborted) for found in planned.slices) < 8 < len(planned.slices)
        everything = [record.offset for record in log.read(0)]
        assert offsets(read(plan_all(store, max_slice_bytes=1).slices)) == everything


# What it costs


class Counting(LocalFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()


def _counted(name: str) -> Callable[..., Any]:
    def call(self: Counting, path: str, **options: Any) -> Any:
        self.calls[name] += 1
        return getattr(LocalFileSystem, name)(self, path, **options)

    return call


for _name in ("open", "entry", "exists", "read_all"):
    setattr(Counting, _name, _counted(_name))


def calls_to_plan(path: Path, **options: Any) -> Counter[str]:
    files = Counting()
    with LocatedStore(Location(str(path)), str(path), files) as store:
        isolation = options.get("isolation", Isolation.READ_UNCOMMITTED)
        ranges = resolve(store, select_partitions(store, topics=["orders"]), isolation=isolation)
        assert plan(store, ranges, **options).segments_planned > 1
    return files.calls


def made_of_tiny_segments(path: Path, count: int) -> Path:
    """What many rolls would leave, one batch of ten records in each segment."""
    with open_for_writing(path / "seed") as store:
        store.create_topic("orders", 1)
        store.partition("orders", 0).append([record(number) for number in range(10)])
    batch = (path / "seed" / "orders-0" / "00000000000000000000.log").read_bytes()
    folder = path / "many" / "orders-0"
    folder.mkdir(parents=True)
    for number in range(count):
        stem = folder / f"{number * 10:020}"
        stem.with_suffix(".log").write_bytes(struct.pack(">q", number * 10) + batch[8:])
        stem.with_suffix(".index").touch()
        stem.with_suffix(".timeindex").write_bytes(struct.pack(">qi", NOW_MS + 9, 9))
        if number:
            stem.with_suffix(".snapshot").write_bytes(encode_producer_snapshot([]))
    return folder.parent


@pytest.mark.parametrize("isolation", Isolation)
def test_no_segment_is_opened_to_plan_it(tmp_path: Path, isolation: Isolation) -> None:
    few = calls_to_plan(made_of_tiny_segments(tmp_path / "few", 20), isolation=isolation)
    many = calls_to_plan(made_of_tiny_segments(tmp_path / "more", 400), isolation=isolation)
    assert few == many
    assert few.total() < 60


def test_by_time_one_read_for_each_segment(tmp_path: Path) -> None:
    path = made_of_tiny_segments(tmp_path, 400)
    opened = calls_to_plan(path, times=TimeRange(NOW_MS))["open"]
    assert opened - calls_to_plan(path)["open"] in range(399, 401)


def test_tiny_segments_become_few_tasks(tmp_path: Path) -> None:
    with open_store(str(made_of_tiny_segments(tmp_path, 1000))) as store:
        planned = plan_all(store)
        assert (len(planned.slices), len(planned.tasks)) == (1000, 2)
        assert offsets(read(planned.slices)) == list(range(10_000))


def test_garbage_collection_is_enabled_after_planning(path: Path) -> None:
    assert gc.isenabled()
    explain(str(path), subscribe="orders")
    assert gc.isenabled()
    with pytest.raises(UnknownTopic):
        explain(str(path), subscribe="nothing")
    assert gc.isenabled()
    gc.disable()
    try:
        explain(str(path), subscribe="orders")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_whole_segments_are_planned_without_their_indexes(store: Store) -> None:
    planned = plan_all(store)
    *whole, active = store.partition("orders", 0).view.segments
    assert planned.segments_planned == len(whole) + 1 == SEGMENTS
    assert not any("offset_index" in vars(segment) for segment in whole)
    assert "offset_index" in vars(active)
