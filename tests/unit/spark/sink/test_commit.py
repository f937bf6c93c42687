"""The commit: all tasks once, in their order, whatever was staged beside, repeated, given up or damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, InvalidConfig, InvalidRecord, RecordTooLarge, StorageError, StoreLocked
from duralog.format.record import Record
from duralog.spark.sink import commit as committing
from duralog.spark.sink.commit import abandon, check_free, commit, discard, recover, set_committed
from duralog.spark.sink.commit_journal import is_committed, remember
from duralog.spark.sink.staging import GARBAGE_AGE_MS
from duralog.spark.sink.write_options import AppVersion
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.store import Store
from tests.support.spark.staged_writes import NOW_MS, WRITER, make_topic, options_of, rows_of, stage, values_in, write

OTHER = "f" * 32


def left_in(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("duralog-sink*"))


def test_rows_follow_in_the_order_of_their_tasks(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=[f"{task} {row}" for row in range(3)])] for task in range(12)])
    report = commit(staged[::-1], options, writer=WRITER)
    assert values_in(tmp_path) == {("t", 0): [f"{task} {row}".encode() for task in range(12) for row in range(3)]}
    assert (report.records, report.partitions, report.is_repeated) == (36, 1, False)
    assert left_in(tmp_path) == []


def test_the_next_write_goes_behind_and_the_directory_is_left_clean(tmp_path: Path) -> None:
    for label in ("one", "two"):
        write(options_of(tmp_path, topic="t"), [rows_of(value=[label])])
    assert values_in(tmp_path) == {("t", 0): [b"one", b"two"]}
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_topic_whose_making_was_interrupted(tmp_path: Path) -> None:
    """Keys go by how many partitions there are in all; those without a folder yet are made by the commit."""
    make_topic(tmp_path, "t", 3)
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"t-{number}")
    with Store(str(tmp_path), read_only=True) as store:
        assert (store.partitions("t"), store.partition_count("t")) == ([0], 3)
    write(options_of(tmp_path, topic="t"), [rows_of(partition=[0, 1, 2], value=["x", "y", "z"])])
    assert values_in(tmp_path) == {("t", 0): [b"x"], ("t", 1): [b"y"], ("t", 2): [b"z"]}


def test_segments_roll_as_they_are_filled(tmp_path: Path) -> None:
    make_topic(tmp_path, "t", 1, {"segment.bytes": 1 << 20})
    rows = rows_of(value=[os.urandom(1000) for _ in range(4000)])
    write(options_of(tmp_path, topic="t", batchSize="100k"), [rows], [rows])
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        assert log.end_offset == 8000
        assert [segment.size_bytes for segment in log.segments if segment.size_bytes > 1 << 20] == []
        assert len(log.segments) >= 8
        assert store.partition("t", 0).read_arrow(7990).num_rows == 10


def test_a_task_without_rows(tmp_path: Path) -> None:
    report = write(options_of(tmp_path, topic="t"), [], [rows_of(value=["x"])], [rows_of(value=["y"]).slice(1)])
    assert report.records == 1
    assert values_in(tmp_path) == {("t", 0): [b"x"]}


def test_no_rows_at_all(tmp_path: Path) -> None:
    named = AppVersion(application="a", version=1)
    report = write(options_of(tmp_path, topic="t"), [], transaction=named)
    assert (report.records, report.partitions) == (0, 0)
    assert write(options_of(tmp_path, topic="t"), [], transaction=named).is_repeated


def test_unreported_attempts_leave_nothing(tmp_path: Path) -> None:
    """A task that was tried again, and one of which a second attempt ran at the same time."""
    options = options_of(tmp_path, topic="t")
    tasks = [[rows_of(value=["first"])], [rows_of(value=["second"])]]
    lost, taken = stage(options, tasks), stage(options, tasks)
    assert len(left_in(tmp_path)) == 4
    assert {task.name for task in lost}.isdisjoint(task.name for task in taken)
    commit(taken, options, writer=WRITER)
    assert values_in(tmp_path) == {("t", 0): [b"first", b"second"]}
    assert left_in(tmp_path) == []


def test_what_other_writes_have_staged_stays_for_them(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    others = stage(options, [[rows_of(value=["other"])]], writer=OTHER)
    write(options, [rows_of(value=["mine"])])
    commit(others, options, writer=OTHER)
    assert values_in(tmp_path) == {("t", 0): [b"mine", b"other"]}


def test_what_a_dead_driver_left_goes_after_a_week(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    old, recent = (stage(options, [[rows_of(value=["x"])]], writer=OTHER)[0].name for _ in range(2))
    assert old is not None
    seconds = (NOW_MS - GARBAGE_AGE_MS) / 1000
    os.utime(tmp_path / old, (seconds - 1, seconds - 1))
    write(options, [rows_of(value=["mine"])])
    assert left_in(tmp_path) == [recent]


def test_an_aborted_write_leaves_nothing(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    stage(options, [[rows_of(value=["x"])], [rows_of(value=["y"])]])
    discard(options, writer=WRITER)
    assert left_in(tmp_path) == []
    assert values_in(tmp_path) == {}


def test_an_abort_does_not_undo_what_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark aborts a write whose commit has failed; once the journal is on disk, it will be completed."""
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=["x"])]])
    monkeypatch.setattr(committing, "_append_all", lambda *_, **__: (_ for _ in ()).throw(StorageError("disk full")))
    with pytest.raises(StorageError, match="disk full"):
        commit(staged, options, writer=WRITER)
    monkeypatch.undo()
    discard(options, writer=WRITER)
    assert recover(str(tmp_path))
    assert values_in(tmp_path) == {("t", 0): [b"x"]}
    assert left_in(tmp_path) == []


def test_a_version_is_committed_once(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    reports = [
        write(
            options,
            [rows_of(value=[f"{application} {version}"])],
            transaction=AppVersion(application=application, version=version),
        )
        for application, version in [("a", 0), ("a", 0), ("b", 0), ("a", 2), ("a", 1), ("a", 3), ("a", 3)]
    ]
    assert [report.is_repeated for report in reports] == [False, True, False, False, True, False, True]
    assert values_in(tmp_path) == {("t", 0): [b"a 0", b"b 0", b"a 2", b"a 3"]}
    assert left_in(tmp_path) == ["duralog-sink.committed"]


def test_no_application_is_forgotten(tmp_path: Path) -> None:
    """However many came since: one that rests for years may repeat its last write."""
    files = LocalFileSystem()
    for number in range(1100):
        remember(files, str(tmp_path), AppVersion(application=f"query {number}", version=5))
    known = [
        is_committed(files, str(tmp_path), AppVersion(application=f"query {number}", version=version))
        for number, version in ((0, 4), (0, 5), (0, 6), (1099, 5), (1100, 5))
    ]
    assert known == [True, True, False, True, False]


@pytest.mark.parametrize(
    ("name", "way_out"), [("duralog-sink.committed", "set_committed"), ("duralog-sink.journal", "abandon")]
)
def test_a_damaged_memory_is_not_guessed_at(tmp_path: Path, name: str, way_out: str) -> None:
    options = options_of(tmp_path, topic="t")
    named = AppVersion(application="app a", version=0)
    write(options, [rows_of(value=["x"])], transaction=named)
    (tmp_path / name).write_bytes(b'00000000\n{"version":1}\n')
    with pytest.raises(CorruptRecord, match=rf"{name}: wrong checksum: .*duralog\.spark\.committing\.{way_out}"):
        write(options, [rows_of(value=["y"])], transaction=named)
    assert values_in(tmp_path) == {("t", 0): [b"x"]}


def test_a_damaged_journal_can_be_given_up(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    write(options, [rows_of(value=["x"])])
    (tmp_path / "duralog-sink.journal").write_bytes(b"damaged")
    assert abandon(str(tmp_path))
    write(options, [rows_of(value=["y"])])
    assert values_in(tmp_path) == {("t", 0): [b"x", b"y"]}


@pytest.fixture
def forgotten(tmp_path: Path) -> Path:
    """Two queries and an application have written, and what is remembered of them is damaged."""
    options = options_of(tmp_path, topic="t")
    for application, version in (("query 1", 4), ("query 2", 7), ("app a", 2)):
        named = AppVersion(application=application, version=version)
        write(options, [rows_of(value=[f"{application} {version}"])], transaction=named)
    path = tmp_path / "duralog-sink.committed"
    path.write_bytes(path.read_bytes()[:-5])
    return tmp_path


def repeat(path: Path, application: str, version: int) -> bool:
    """Whether the write was taken for one that was committed before."""
    named = AppVersion(application=application, version=version)
    return write(options_of(path, topic="t"), [rows_of(value=["again"])], transaction=named).is_repeated


def test_what_was_committed_is_said_again(forgotten: Path) -> None:
    damaged = (forgotten / "duralog-sink.committed").read_bytes()
    set_aside = set_committed(str(forgotten), {"query 1": 4, "app a": 1})
    assert set_aside == f"{forgotten}/duralog-sink.committed.damaged"
    assert Path(set_aside).read_bytes() == damaged
    assert repeat(forgotten, "query 1", 4)
    assert not repeat(forgotten, "query 1", 5)
    # Who said that version 1 was the last of this one has version 2 again, as asked for.
    assert not repeat(forgotten, "app a", 2)
    # A new one begins with 0; of any other nobody knows.
    assert not repeat(forgotten, "query 3", 0)
    assert not repeat(forgotten, "query 3", 1)
    with pytest.raises(StorageError) as told:
        repeat(forgotten, "query 2", 7)
    assert "whether its version 7 was committed is not known" in str(told.value)
    assert f"set_committed('{forgotten}', {{'query 2': 7}})" in str(told.value)
    assert set_committed(str(forgotten), {"query 2": 7}) is None
    assert repeat(forgotten, "query 2", 7)
    assert repeat(forgotten, "query 1", 5)
    assert values_in(forgotten)[("t", 0)].count(b"again") == 4


def test_nothing_else_was_committed(forgotten: Path) -> None:
    set_committed(str(forgotten), {"query 1": 4}, is_all=True)
    assert repeat(forgotten, "query 1", 4)
    assert not repeat(forgotten, "query 9", 3)


def test_a_second_damaged_file_does_not_replace_the_first(forgotten: Path) -> None:
    path = forgotten / "duralog-sink.committed"
    kept = []
    for content in (b"one", b"two"):
        path.write_bytes(content)
        kept.append(set_committed(str(forgotten), {}))
    assert [Path(str(name)).read_bytes() for name in kept] == [b"one", b"two"]


@pytest.mark.parametrize("last", [{"1234": 5}, {"query 1": -2}])
def test_what_cannot_be_a_name_or_version_is_refused(forgotten: Path, last: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match="expected 'query ID', 'app NAME' or 'app-to TOPIC NAME'"):
        set_committed(str(forgotten), last)


def test_an_interrupted_write_of_a_forgotten_query_is_completed(
    forgotten: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs themselves show what is there of it."""
    set_committed(str(forgotten), {"query 2": 7})
    with monkeypatch.context() as patched:
        patched.setattr(committing, "is_committed", lambda *_: False)
        patched.setattr(committing, "remember", lambda *_: (_ for _ in ()).throw(StorageError("disk full")))
        with pytest.raises(StorageError, match="disk full"):
            repeat(forgotten, "query 1", 5)
    monkeypatch.undo()
    assert recover(str(forgotten))
    assert values_in(forgotten)[("t", 0)].count(b"again") == 1
    assert repeat(forgotten, "query 1", 5)


@pytest.mark.parametrize("where", ["the batches", "the table", "the end"])
def test_a_damaged_staged_file_ends_the_write_before_it_is_decided(tmp_path: Path, where: str) -> None:
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=["x" * 500])], [rows_of(value=["y" * 500])]])
    path = tmp_path / str(staged[1].name)
    data = bytearray(path.read_bytes())
    data[{"the batches": 200, "the table": len(data) - 60, "the end": len(data) - 1}[where]] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord, match=str(staged[1].name)):
        commit(staged, options, writer=WRITER)
    assert values_in(tmp_path) == {}
    assert not (tmp_path / "duralog-sink.journal").exists()


def test_a_staged_file_that_the_driver_does_not_see(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=["x"])]])
    (tmp_path / str(staged[0].name)).unlink()
    with pytest.raises(StorageError, match="on a disk that the driver and all executors see"):
        commit(staged, options, writer=WRITER)


def test_a_directory_that_another_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "LOCK_WAIT_SECONDS", 0.0)
    options = options_of(tmp_path, topic="t")
    check_free(str(tmp_path))
    with Store(str(tmp_path)):
        with pytest.raises(StoreLocked, match=r"option kafka\.bootstrap\.servers"):
            write(options, [rows_of(value=["x"])])
        with pytest.raises(StoreLocked, match=r"option kafka\.bootstrap\.servers"):
            check_free(str(tmp_path))
    check_free(str(tmp_path))


def test_a_commit_waits_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store(str(tmp_path))
    monkeypatch.setattr("duralog.spark.sink.commit.time.sleep", lambda _: other.close())
    write(options_of(tmp_path, topic="t"), [rows_of(value=["x"])])
    assert values_in(tmp_path) == {("t", 0): [b"x"]}


CHANGES: dict[str, tuple[dict[str, object], type[Exception], str]] = {
    "compacted": ({"cleanup.policy": "compact"}, InvalidRecord, "t is compacted and accepts no record without a key"),
    "smaller": ({"max.message.bytes": 100}, RecordTooLarge, "max.message.bytes is 100"),
    "more partitions": ({}, InvalidRecord, "t has 2 partitions, but 1 when the partitions of the rows were chosen"),
    "recompressed": ({"compression.type": "zstd"}, InvalidRecord, "compression.type of t has changed"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_topic_that_changes_between_tasks_and_commit(tmp_path: Path, case: str) -> None:
    config, kind, told = CHANGES[case]
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=["x" * 200])]])
    make_topic(tmp_path, "t", 2 if case == "more partitions" else 1, config)
    with pytest.raises(kind, match=told):
        commit(staged, options, writer=WRITER)
    assert values_in(tmp_path) == {}
    assert not (tmp_path / "duralog-sink.journal").exists()


def test_rows_that_name_their_partition_do_not_care_how_many_there_are(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t", partitions=2)
    staged = stage(options, [[rows_of(value=["x"], partition=[1])]])
    make_topic(tmp_path, "t", 3, {})
    commit(staged, options, writer=WRITER)
    assert values_in(tmp_path) == {("t", 1): [b"x"]}


@pytest.mark.parametrize("transaction", [None, AppVersion(application="a", version=1)])
def test_a_write_that_fails_once_it_is_decided_says_that_it_will_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction: AppVersion | None
) -> None:
    options = options_of(tmp_path, topic="t")
    with monkeypatch.context() as patched:
        patched.setattr(committing, "append_rest", lambda *_, **__: (_ for _ in ()).throw(StorageError("disk full")))
        with pytest.raises(StorageError) as told:
            write(options, [rows_of(value=["x"])], transaction=transaction)
    assert "the write is decided, but was interrupted: disk full. Nothing of it is lost: " in str(told.value)
    assert f"duralog.spark.committing.recover('{tmp_path}')" in str(told.value)
    assert ("Do not write the rows again" in str(told.value)) == (transaction is None)
    assert recover(str(tmp_path))
    assert values_in(tmp_path) == {("t", 0): [b"x"]}


def test_log_append_time_is_the_logs_to_give(tmp_path: Path) -> None:
    make_topic(tmp_path, "t", 1, {"message.timestamp.type": "LogAppendTime"})
    write(options_of(tmp_path, topic="t", codec="lz4"), [rows_of(value=["x"], timestamp=[5])])
    with Store(str(tmp_path), read_only=True) as store:
        (record,) = store.partition("t", 0).read(0)
    assert (record.timestamp_ms, record.timestamp_type.name) == (NOW_MS, "LOG_APPEND_TIME")


def test_an_interrupted_write_that_cannot_be_completed_is_reported_and_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(tmp_path, topic="t")
    write(options, [rows_of(value=["before"])])
    staged = stage(options, [[rows_of(value=["x"])]])
    monkeypatch.setattr(committing, "_append_all", lambda *_, **__: (_ for _ in ()).throw(StorageError("disk full")))
    with pytest.raises(StorageError):
        commit(staged, options, writer=WRITER)
    monkeypatch.undo()
    (tmp_path / str(staged[0].name)).unlink()
    with pytest.raises(StorageError, match=r"cannot be completed: .* from these offsets on: t-0 1\. .*abandon"):
        write(options, [rows_of(value=["y"])], writer=OTHER)
    assert abandon(str(tmp_path))
    assert not abandon(str(tmp_path))
    assert not recover(str(tmp_path))
    write(options, [rows_of(value=["y"])])
    assert values_in(tmp_path) == {("t", 0): [b"before", b"y"]}


def test_a_log_that_lost_records_since_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(tmp_path, topic="t", batchSize=10)
    staged = stage(options, [[rows_of(value=["x", "y", "z"])]])
    monkeypatch.setattr(committing, "remove_journal", lambda *_: (_ for _ in ()).throw(StorageError("crash")))
    with pytest.raises(StorageError, match="crash"):
        commit(staged, options, writer=WRITER)
    monkeypatch.undo()
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        assert log.end_offset == 3
        log.roll()
        log.delete_segments([0], "test")
    with pytest.raises(StorageError, match="the log was compacted or truncated since, from offset 0 on"):
        recover(str(tmp_path))


def test_times_are_judged_by_the_clock_of_the_task(tmp_path: Path) -> None:
    """Between the tasks and the commit, or a commit and its completion, any time may pass: a write that was decided
    must never be refused after that, since it would stand before all others."""
    make_topic(tmp_path, "t", 1, {"message.timestamp.before.max.ms": 1000})
    options = options_of(tmp_path, topic="t")
    staged = stage(options, [[rows_of(value=["x"], timestamp=[NOW_MS - 900])]])
    commit(staged, options, writer=WRITER, clock=lambda: NOW_MS + 3_600_000)
    assert values_in(tmp_path) == {("t", 0): [b"x"]}
    with pytest.raises(InvalidRecord, match="column timestamp, row 0 of task 0"):
        stage(options, [[rows_of(value=["y"], timestamp=[NOW_MS - 1001])]])


def interrupt(monkeypatch: pytest.MonkeyPatch, step: str, write: Callable[[], object]) -> None:
    """A write during which the driver dies before this step of its commit."""
    with monkeypatch.context() as patched:
        patched.setattr(committing, step, lambda *_, **__: (_ for _ in ()).throw(StorageError("killed")))
        with pytest.raises(StorageError, match="killed"):
            write()


def test_what_others_wrote_meanwhile_is_not_taken_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single record has the same bytes whenever it was written: its time stands in the header of its batch."""
    options = options_of(tmp_path, topic="t")
    interrupt(monkeypatch, "_append_all", lambda: write(options, [rows_of(value=["tick"])]))
    with Store(str(tmp_path)) as store:
        store.partition("t", 0).append([Record(value=b"tick", timestamp_ms=NOW_MS + 1)])
    assert recover(str(tmp_path))
    assert values_in(tmp_path) == {("t", 0): [b"tick", b"tick"]}


def test_a_write_that_was_remembered_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever compaction has made of it, before the journal could be removed."""
    make_topic(tmp_path, "t", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    options = options_of(tmp_path, topic="t")
    named = AppVersion(application="a", version=1)
    rows = [rows_of(key=["k", "k"], value=["1", "2"])]
    interrupt(monkeypatch, "remove_journal", lambda: write(options, rows, transaction=named))
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        log.append([Record(key=b"k", value=b"3")])
        log.roll()
        store.compact("t", 0)
    assert write(options, rows, transaction=named).is_repeated
    assert values_in(tmp_path) == {("t", 0): [b"3"]}
    assert left_in(tmp_path) == ["duralog-sink.committed"]
