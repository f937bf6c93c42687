"""Export without Spark: what is in the tables, run after run, whatever happens in between."""

from __future__ import annotations

import datetime
import importlib
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import duralog
from duralog.errors import DuralogError, OffsetOutOfRange, UnknownTopic
from duralog.spark.jobs.export import ExportReport, export
from duralog.spark.lake import parquet_files, tables, writing_right
from duralog.spark.lake.table_state import StateRefused
from duralog.spark.lake.tables import LakeTable, TableRefused
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import (
    DAY_MS,
    FORMATS,
    START_MS,
    Death,
    Killed,
    append_days,
    fill_days,
    rows_of,
    run_here,
    table_of,
)

export_module = importlib.import_module("duralog.spark.jobs.export")


class Export:
    """A log directory, a target, and runs of the export from one to the other."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.target = folder / "lake"

    def run(self, **options: Any) -> ExportReport:
        return export(None, str(self.data), str(self.target), **options)  # type: ignore[arg-type]

    def rows(self, table_format: str, topic: str = "events") -> list[dict[str, Any]]:
        return rows_of(table_format, self.target / topic)

    def append(self, records: int, first: int, partition: int = 0) -> None:
        with duralog.open(str(self.data)) as store:
            append_days(store.partition("events", partition), records, first)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    run_here(monkeypatch, export_module)
    made = Export(tmp_path)
    fill_days(made.data)
    return made


def expected(path: Path, topic: str = "events", isolation: str = "read_committed") -> list[dict[str, Any]]:
    """What the store itself reads, as rows of a table."""
    rows = []
    with duralog.open(str(path), read_only=True) as store:
        for number in store.partitions(topic):
            for record in store.partition(topic, number).read(0, isolation=isolation):
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": topic,
                        "partition": number,
                        "offset": record.offset,
                        "timestamp": _time(record.timestamp_ms),
                        "timestampType": int(record.timestamp_type),
                        "date": None if record.timestamp_ms < 0 else _time(record.timestamp_ms).date(),
                    }
                )
    return rows


def _time(time_ms: int) -> Any:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return None if time_ms < 0 else epoch + datetime.timedelta(milliseconds=time_ms)


@pytest.mark.parametrize("table_format", FORMATS)
def test_every_record_is_there_once_run_after_run(job: Export, table_format: str) -> None:
    first = job.run(format=table_format)
    assert (first.records, first.tables[0].end_offsets) == (40, {0: 20, 1: 20})
    assert job.rows(table_format) == expected(job.data)
    job.append(15, 20)
    second = job.run(format=table_format)
    assert (second.records, second.tables[0].start_offsets, second.tables[0].end_offsets) == (
        15,
        {0: 20, 1: 20},
        {0: 35, 1: 20},
    )
    assert job.run(format=table_format).records == 0
    assert job.rows(table_format) == expected(job.data)
    assert table_of(table_format, job.target / "events").column_names[-1] == "date"


@pytest.mark.parametrize("table_format", FORMATS)
def test_headers_are_a_column_if_they_are_wanted(job: Export, table_format: str) -> None:
    job.run(format=table_format, headers=True)
    found = [[(header["key"], header["value"]) for header in row["headers"]] for row in job.rows(table_format)]
    assert found == [[("h", b"%d" % place)] for _ in range(2) for place in range(20)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_records_without_a_day_have_a_folder_of_their_own(job: Export, table_format: str) -> None:
    with duralog.open(str(job.data)) as store:
        store.create_topic("odd", partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
        log = store.partition("odd", 0)
        times = [START_MS, 2**62, 1_700_000_000_000_000_000, 253_402_300_800_000, 253_402_300_799_999]
        log.append([duralog.Record(value=b"%d" % time_ms, timestamp_ms=time_ms) for time_ms in times])
    report = job.run(topics=["odd"], format=table_format)
    assert report.tables[0].undated_records == 3
    dates = [row["date"] for row in rows_without_times(table_format, job.target / "odd")]
    assert dates == [datetime.date(2023, 11, 14), None, None, None, datetime.date(9999, 12, 31)]


def rows_without_times(table_format: str, path: Path) -> list[dict[str, Any]]:
    """Python has no time beyond the year 9999."""
    return sorted(table_of(table_format, path).drop_columns("timestamp").to_pylist(), key=lambda row: row["offset"])


def test_a_table_for_each_topic(job: Export) -> None:
    with duralog.open(str(job.data)) as store:
        store.create_topic("other", partitions=1)
        store.partition("other", 0).append([duralog.Record(value=b"x", timestamp_ms=START_MS)])
    report = job.run()
    assert [(table.topic, table.records) for table in report.tables] == [("events", 40), ("other", 1)]
    assert [row["value"] for row in job.rows("parquet", "other")] == [b"x"]


def test_a_topic_without_records(job: Export) -> None:
    with duralog.open(str(job.data)) as store:
        store.create_topic("empty", partitions=1)
    for table_format in FORMATS:
        target = job.target / table_format
        report = export(None, str(job.data), str(target), topics=["empty"], format=table_format)  # type: ignore[arg-type]
        assert (report.records, report.tables[0].files) == (0, 0)
        assert export(None, str(job.data), str(target), topics=["empty"], format=table_format).records == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize(("topic", "isolation"), [("txn", "read_committed"), ("txn", "read_uncommitted")])
def test_transactions_of_kafka(job: Export, table_format: str, topic: str, isolation: str) -> None:
    job.data = GOLDEN / "store"
    report = job.run(topics=[topic], format=table_format, isolation=isolation)
    found = expected(job.data, topic, isolation)
    assert report.records == len(found) > 0
    assert job.rows(table_format, topic) == found


def test_a_log_that_kafka_compacted(job: Export) -> None:
    job.data = GOLDEN / "compaction" / "after"
    report = job.run(topics=["c-none", "c-txn"])
    for table in report.tables:
        found = expected(job.data, table.topic)
        assert table.records == len(found) > 0
        assert [(row["offset"], row["value"]) for row in job.rows("parquet", table.topic)] == [
            (row["offset"], row["value"]) for row in found
        ]


def test_slices_and_days_become_files(job: Export) -> None:
    report = job.run(max_slice_bytes=400)
    assert report.tables[0].files > 8
    names = {path.name for path in (job.target / "events").rglob("*.parquet")}
    assert f"part-{0:05d}-{0:020d}-" in min(names)
    assert job.rows("parquet") == expected(job.data)


def test_few_files_are_open_at_a_time(job: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_MOST_OPEN_FILES", 1)
    monkeypatch.setattr(parquet_files, "_MOST_WAITING_BYTES", 1)
    with duralog.open(str(job.data)) as store:
        store.create_topic("mixed", partitions=1)
        log = store.partition("mixed", 0)
        for place in range(12):
            log.append([duralog.Record(value=b"v", timestamp_ms=START_MS + place % 3 * DAY_MS)])
    monkeypatch.setattr("duralog.columnar.pieces.PIECE_BYTES", 1)
    job.run(topics=["mixed"])
    assert job.rows("parquet", "mixed") == expected(job.data, "mixed")


# Crashes


CRASH_POINTS = ("first task", "last task", "commit", "state file")


def crash_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise Killed

    if point.endswith("task"):
        real = export_module._write
        calls = iter(range(1, 100))
        dies_at = 1 if point == "first task" else 2

        def write(task: Any) -> Any:
            written = real(task)
            if next(calls) == dies_at:
                raise Killed  # The files are there, and nobody knows.
            return written

        def run(_: Any, items: Any, __: Any, **___: Any) -> list[Any]:
            return [write(item) for item in items]

        monkeypatch.setattr(export_module.SparkExecutor, "run", run)
    elif point == "commit":
        monkeypatch.setattr(LakeTable, "commit", killed)
    else:
        monkeypatch.setattr(tables, "write_state", killed)


@pytest.mark.slow
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("is_first_run", [True, False])
def test_a_run_that_dies_is_made_good(
    job: Export, table_format: str, point: str, is_first_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_first_run:
        job.run(format=table_format)
        job.append(9, 20)
        job.append(9, 20, partition=1)
    elif point == "state file":
        # The very first one, before anything is written.
        with monkeypatch.context() as patched:
            crash_at(point, patched)
            with pytest.raises(Killed):
                job.run(format=table_format)
    with monkeypatch.context() as patched:
        if is_first_run and point == "state file":
            patched.setattr(tables, "write_state", _after(1, vars(tables)["write_state"]))
        else:
            crash_at(point, patched)
        with pytest.raises(Killed):
            job.run(format=table_format)
    # Other offsets than before are new now, so the files of the dead run have other names than those of the next.
    job.append(5, 40)
    report = job.run(format=table_format)
    is_committed = table_format != "parquet" and point == "state file"
    assert (report.tables[0].leftover_files > 0) is not is_committed
    assert job.rows(table_format) == expected(job.data)
    assert job.run(format=table_format).records == 0


def _after(calls: int, real: Callable[..., None]) -> Callable[..., None]:
    counted = iter(range(100))

    def write(*arguments: Any) -> None:
        if next(counted) >= calls:
            raise Killed
        real(*arguments)

    return write


@pytest.mark.slow
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("after", [False, True])
def test_a_run_may_die_at_every_file(
    job: Export, table_format: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies one file later than the one before, until one comes through; then every record is there once."""
    step = 0
    is_done = False
    while not is_done:
        step += 1
        job.append(1, 20 + step, partition=step % 2)
        with monkeypatch.context() as patched:
            death = Death(patched, step, after=after)
            try:
                job.run(format=table_format)
                is_done = not death.is_dead
            except Killed:
                assert death.is_dead
    assert step > 6
    assert job.rows(table_format) == expected(job.data)
    assert not list(job.target.rglob("*.part"))


def test_files_of_an_attempt_that_was_lost_do_not_count(job: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was compacted before the second attempt, so that it has fewer files than the first one."""
    run = export_module.SparkExecutor.run

    def run_twice(*arguments: Any, **options: Any) -> list[Any]:
        run(*arguments, **options)
        for file in job.target.rglob("*.parquet"):
            file.rename(file.with_name(f"{file.stem}-1{file.suffix}"))
        return run(*arguments, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(export_module.SparkExecutor, "run", run_twice)
    job.run()
    assert job.rows("parquet") == expected(job.data)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_task_that_outlives_its_run(job: Export, table_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the next run away while it works, and gets nothing into the table when that one has been."""
    left: list[Any] = []

    def interrupted(_: Any, items: Any, *__: Any, **___: Any) -> list[Any]:
        left.extend(items)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(export_module.SparkExecutor, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run(format=table_format)
    # More records, so that the files of the next run have other names.
    job.append(3, 20)
    job.run(format=table_format)
    for task in left:
        with pytest.raises(duralog.StoreLocked, match="the job of this task does not hold"):
            export_module._write(task)
    assert job.rows(table_format) == expected(job.data)

    def at_work(_: Any, items: Any, *__: Any, **___: Any) -> list[Any]:
        stack.enter_context(items[0].right.used())
        raise KeyboardInterrupt

    job.append(1, 23)
    with ExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(export_module.SparkExecutor, "run", at_work)
            with pytest.raises(KeyboardInterrupt):
                job.run(format=table_format)
        with pytest.raises(TableRefused, match="or a task of one that was interrupted"):
            job.run(format=table_format)
    assert job.run(format=table_format).records == 1
    assert job.rows(table_format) == expected(job.data)


def test_a_task_on_a_host_that_does_not_see_the_locks(job: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some disks that hosts share: it goes by the id of the run, which is in the file."""
    kept: list[Any] = []

    def run(_: Any, items: Any, function: Any, **__: Any) -> list[Any]:
        kept.extend(replace(item, right=replace(item.right, host="the driver's")) for item in items)
        monkeypatch.setattr(writing_right, "joined", unseen)
        return [function(item) for item in kept]

    def unseen(path: str, _: str) -> Any:
        raise duralog.StoreLocked(path)

    monkeypatch.setattr(export_module.SparkExecutor, "run", run)
    assert job.run().records == 40
    assert job.rows("parquet") == expected(job.data)
    with pytest.raises(duralog.StoreLocked):
        export_module._write(kept[0])


def test_a_file_that_was_being_written_is_removed(job: Export) -> None:
    job.run()
    half = job.target / "events" / "date=2023-11-14" / f".part-00000-{20:020d}-{30:020d}.parquet.0123.part"
    half.write_bytes(b"killed here")
    assert job.run().tables[0].leftover_files == 1
    assert not half.exists()
    assert job.rows("parquet") == expected(job.data)


def test_a_task_that_fails_leaves_no_file(job: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    log = next((job.data / "events-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(
        duralog.CorruptRecord, match=r"events-1/0{20}\.log: position \d+: .*offsets \d+ to \d+ of events-1"
    ):
        job.run()
    assert not [path for path in (job.target / "events").rglob("*") if "part-00001" in path.name]


# What is refused


@pytest.mark.parametrize("found", FORMATS)
@pytest.mark.parametrize("wanted", FORMATS)
def test_a_table_of_another_format(job: Export, found: str, wanted: str) -> None:
    job.run(format=found)
    if found == wanted:
        assert job.run(format=wanted).records == 0
        return
    before = sorted(path for path in job.target.rglob("*.parquet"))
    with pytest.raises(DuralogError, match=rf"lake/events.*{found}"):
        job.run(format=wanted)
    assert sorted(path for path in job.target.rglob("*.parquet")) == before
    assert job.rows(found) == expected(job.data)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_with_other_columns(job: Export, table_format: str) -> None:
    job.run(format=table_format, headers=True)
    with pytest.raises(DuralogError, match=r"lake/events: .*headers"):
        job.run(format=table_format)


@pytest.mark.parametrize(
    ("table_format", "files", "told"),
    [
        ("delta", "_delta_log/*.json", r"lake/events: it cannot be opened as a Delta table: [^\n]+$"),
        ("iceberg", "metadata/*.metadata.json", r"lake/events: it cannot be opened as an Iceberg table: [^\n]+$"),
        ("iceberg", "metadata/*.avro", r"lake/events: the commit failed: [^\n]+ The next run checks"),
        ("iceberg", "../iceberg-catalog.db", r"the Iceberg catalog cannot be opened: [^\n]+$"),
    ],
)
def test_a_table_that_is_damaged(job: Export, table_format: str, files: str, told: str) -> None:
    job.run(format=table_format)
    job.append(1, 20)
    for path in (job.target / "events" / files).parent.glob(files.rpartition("/")[2]):
        path.write_bytes(b"{" * 100)
    with pytest.raises(DuralogError, match=told):
        job.run(format=table_format)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_folder_with_foreign_files(job: Export, table_format: str) -> None:
    stranger = job.target / "events" / "mine.parquet"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"x")
    with pytest.raises(TableRefused, match=r"lake/events: expected an empty folder.*found mine\.parquet"):
        job.run(format=table_format)
    assert stranger.read_bytes() == b"x"


@pytest.mark.parametrize("place", ["data", "data/lake", "data/events-0/lake", "link", "data/../data"])
def test_a_target_within_the_log_directory(job: Export, place: str) -> None:
    """Kafka would not start on it."""
    (job.data.parent / "link").symlink_to(job.data)
    before = sorted(job.data.rglob("*"))
    job.target = job.data.parent / place
    with pytest.raises(TableRefused, match=r"events: the table would lie in the log directory .*/data: give a target"):
        job.run()
    assert sorted(job.data.rglob("*")) == before


def test_a_target_next_to_the_log_directory(job: Export) -> None:
    """A table has the name of its topic, which may be that of the directory."""
    job.data = job.data.rename(job.data.parent / "events")
    job.target = job.data.parent
    with pytest.raises(TableRefused, match="the table would lie in the log directory"):
        job.run()
    job.target = job.data.parent / "events-lake"
    assert job.run().records == 40


def test_a_state_file_that_is_gone_does_not_cost_the_records(job: Export) -> None:
    job.run()
    (job.target / "events" / "_duralog_export.json").unlink()
    with pytest.raises(TableRefused, match=r"expected an empty folder.*and no _duralog_export\.json"):
        job.run()
    assert job.rows("parquet") == expected(job.data)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: "{", "the state is damaged: Expecting property name"),
        (lambda _: "[]", "expected version 1, found None"),
        (lambda state: json.dumps({**state, "version": 2}), "expected version 1, found 2"),
        (lambda state: json.dumps({**state, "next_offsets": {"0": -1}}), "-1 is not an offset"),
        (lambda state: json.dumps({**state, "next_offsets": {"x": 1}}), "invalid literal"),
        (lambda state: json.dumps({**state, "next_offsets": {"0": 1.5}}), "1.5 is not an offset"),
        (lambda state: json.dumps({**state, "topic": 5}), "topic is 5"),
        (lambda state: json.dumps({name: state[name] for name in state if name != "run"}), "it has no run"),
        (lambda state: json.dumps({**state, "topic": "x"}), "of another topic: expected events, found x"),
        (lambda state: json.dumps({**state, "job": "snapshot"}), "of another job: expected export, found snapshot"),
        (lambda state: json.dumps({**state, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}), "deleted and made again"),
        (
            lambda state: json.dumps({**state, "next_offsets": {"0": 999, "1": 20}}),
            "up to offset 999, but the log ends at 20",
        ),
        (lambda state: json.dumps({**state, "isolation": "read_uncommitted"}), "was exported with read_uncommitted"),
        (lambda _: "x" * (17 << 20), "expected at most 16777216 bytes"),
    ],
)
def test_a_state_that_does_not_fit(job: Export, change: Callable[[dict[str, Any]], str], told: str) -> None:
    job.run()
    state = job.target / "events" / "_duralog_export.json"
    state.write_text(change(json.loads(state.read_text())))
    with pytest.raises(DuralogError, match=told):
        job.run()
    assert len(job.rows("parquet")) == 40


def test_a_topic_that_was_made_again(job: Export) -> None:
    job.run()
    with duralog.open(str(job.data)) as store:
        store.delete_topic("events")
        store.create_topic("events", partitions=2)
    with pytest.raises(StateRefused, match="topic events was deleted and made again since"):
        job.run()


def test_no_such_topic(job: Export) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic nope"):
        job.run(topics=["nope"])
    assert not (job.target / "nope").exists()


def test_no_such_format(job: Export) -> None:
    with pytest.raises(DuralogError, match="a table is written as parquet, delta, iceberg, not as 'csv'"):
        job.run(format="csv")


def test_a_directory_without_topics(tmp_path: Path) -> None:
    duralog.open(str(tmp_path / "none")).close()
    with pytest.raises(DuralogError, match="there is no topic in it"):
        export(None, str(tmp_path / "none"), str(tmp_path / "lake"))  # type: ignore[arg-type]


def test_records_that_retention_deleted_first(job: Export) -> None:
    job.run()
    job.append(10, 20)
    with duralog.open(str(job.data)) as store:
        store.partition("events", 0).delete_records(25)
    with pytest.raises(OffsetOutOfRange, match=r"events-0: offset 20 was asked for, but the log goes from 25 to 30"):
        job.run()
    report = job.run(fail_on_data_loss=False)
    assert report.records == 5
    assert report.tables[0].lost == ("events-0: offset 20 was asked for, but the log goes from 25 to 30",)
    assert [row["offset"] for row in job.rows("parquet") if row["partition"] == 0] == [*range(20), *range(25, 30)]


def test_two_runs_at_a_time(job: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Any, items: Any, function: Any, **__: Any) -> list[Any]:
        with pytest.raises(TableRefused, match=r"lake/events: another run of job export writes to it"):
            job.run()
        return [function(item) for item in items]

    monkeypatch.setattr(export_module.SparkExecutor, "run", run)
    assert job.run().records == 40


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("more", [0, 2])
def test_a_commit_that_another_one_came_before(
    job: Export, table_format: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more records, its files have other names, and it takes those of this one for leftovers."""
    job.run(format=table_format)
    job.append(3, 20)
    real = export_module.SparkExecutor.run

    def run(*arguments: Any, **options: Any) -> list[Any]:
        """Meanwhile, on another machine, which knows nothing of this one's lock."""
        written: list[Any] = real(*arguments, **options)
        monkeypatch.setattr(export_module.SparkExecutor, "run", real)
        shutil.move(job.target / "events" / "_duralog_export.lock", job.target / "lock")
        job.append(more, 23)
        assert job.run(format=table_format).records == 3 + more
        return written

    monkeypatch.setattr(export_module.SparkExecutor, "run", run)
    told = "is gone, which this run wrote: another one writes" if more else "the commit was refused, run it again"
    with pytest.raises(TableRefused, match=told):
        job.run(format=table_format)
    assert job.run(format=table_format).records == 0
    assert job.rows(table_format) == expected(job.data)


def test_a_delta_table_that_others_work_on(job: Export) -> None:
    from deltalake import DeltaTable

    job.run(format="delta")
    (job.target / "events" / "_duralog_export.json").unlink()
    DeltaTable(str(job.target / "events")).optimize.compact()
    job.append(3, 20)
    assert job.run(format="delta").records == 3
    assert job.rows("delta") == expected(job.data)


def test_the_files_are_what_readers_expect(job: Export) -> None:
    job.run()
    path = min((job.target / "events").rglob("*.parquet"))
    metadata = pq.ParquetFile(path).metadata
    columns = {metadata.schema.column(place).name: metadata.row_group(0).column(place) for place in range(7)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert columns["offset"].is_stats_set
    assert not columns["value"].is_stats_set
    assert [path for path in job.target.rglob(".*") if path.is_file()] == []
