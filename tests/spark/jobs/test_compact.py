"""`job compact`: what a store's compaction leaves, in both forms; reports, choices, and what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import duralog
from duralog.command_line import app
from duralog.errors import DuralogError, InvalidConfig, StoreLocked, UnknownTopic
from duralog.format.checksum import crc32c
from duralog.format.varint import decode_varint
from duralog.reports.compact import CompactionForm, CompactReport
from duralog.scanning.executor import TaskProgress
from duralog.spark.jobs import compact
from duralog.spark.jobs.compaction.frames import KeyTasks
from duralog.storage.compaction.report import CompactionReport
from tests.support.spark.compact_job_directory import (
    COMPACTED,
    NOW_MS,
    RETENTION_MS,
    compacted_by_a_store,
    contents,
    copied,
    is_closed_in_order,
    make_directory,
    open_store,
)

pytestmark = pytest.mark.spark

SMALL_MAP_BYTES = 24 * 800
"""Room for the keys of all partitions but that of `changes-0`."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("compact") / "original")


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "data")
    return tmp_path / "data"


def forms(report: CompactReport) -> dict[str, CompactionForm | None]:
    return {str(found.partition): found.form for found in report.partitions}


def figures(report: CompactionReport) -> dict[str, object]:
    told = asdict(report)
    for name in ("seconds", "map_seconds", "rewrite_seconds", "map_fill"):
        del told[name]
    return told


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_result_is_that_of_a_store(spark: SparkSession, path: Path, shuffled: bool) -> None:
    """Twice: the second time tombstones and markers are past their time, and part of the log was compacted before."""
    expected = copied(path, "expected")
    for now_ms in (NOW_MS, NOW_MS + 2 * RETENTION_MS):
        compacted_by_a_store(expected, now_ms=now_ms, again=now_ms > NOW_MS)
        report = compact(spark, str(path), now_ms=now_ms, shuffled=shuffled, again=now_ms > NOW_MS)
        assert report.is_well
        assert [tuple(found.partition) for found in report.partitions] == COMPACTED
        assert contents(path) == contents(expected)
    assert is_closed_in_order(path)
    assert report.totals()["expired_tombstones"] > 0


def test_new_records_behind_compacted_ones(spark: SparkSession, path: Path) -> None:
    """The clean part asks, the new part answers."""
    expected = copied(path, "expected")
    for directory in (path, expected):
        compacted_by_a_store(directory)
        with open_store(directory, NOW_MS) as store:
            log = store.partition("changes", 0)
            log.append([duralog.Record(key=b"key-%d" % key, value=b"new") for key in range(0, 3000, 3)])
            log.roll()
    compacted_by_a_store(expected, now_ms=NOW_MS + 5)
    report = compact(spark, str(path), now_ms=NOW_MS + 5, shuffled=True, memory_bytes=1 << 20)
    assert report.reports[0].superseded_records > 400
    assert contents(path) == contents(expected)


def test_the_form_is_chosen_by_the_keys(spark: SparkSession, path: Path) -> None:
    expected = compacted_by_a_store(copied(path, "expected"))
    report = compact(spark, str(path), now_ms=NOW_MS, memory_bytes=SMALL_MAP_BYTES)
    assert forms(report) == {
        "changes-0": CompactionForm.SHUFFLED,
        "changes-1": CompactionForm.ONE_TASK,
        "ledger-0": CompactionForm.ONE_TASK,
    }
    assert [found.rounds for found in report.reports] == [1, 1, 1]
    assert contents(path) == contents(expected)


def test_rounds_if_that_is_wanted(spark: SparkSession, path: Path) -> None:
    expected = compacted_by_a_store(copied(path, "expected"), memory_bytes=SMALL_MAP_BYTES)
    report = compact(spark, str(path), now_ms=NOW_MS, memory_bytes=SMALL_MAP_BYTES, shuffled=False)
    assert report.reports[0].rounds > 1
    assert contents(path) == contents(expected)


def test_reports_are_those_of_a_store(spark: SparkSession, path: Path) -> None:
    with open_store(copied(path, "expected"), NOW_MS) as store:
        expected = [figures(store.compact(topic, number, memory_bytes=1 << 20)) for topic, number in COMPACTED]
    shown: list[TaskProgress] = []
    report = compact(spark, str(path), now_ms=NOW_MS, memory_bytes=1 << 20, on_progress=shown.append)
    assert [figures(found) for found in report.reports] == expected
    assert shown[-1].tasks_done == shown[-1].tasks == 1  # They are small, so they share it.
    assert shown[-1].weight_done > 100_000
    rows = report.frame(spark).collect()
    assert [(row.topic, row.partition, row.records_after) for row in rows] == [
        (*found.partition, found.report.records_after) for found in report.partitions if found.report is not None
    ]
    told = json.loads(json.dumps(report.to_dict()))
    assert told["records_before"] == sum(found.records_before for found in report.reports)
    assert told["per_partition"][2]["aborted_records"] > 0


def test_a_dry_run_reports_what_the_run_does(spark: SparkSession, path: Path) -> None:
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()}
    with open_store(path, NOW_MS):
        inside = {file for file in path.rglob("*") if file.is_file()}
        would = compact(spark, str(path), now_ms=NOW_MS, memory_bytes=SMALL_MAP_BYTES * 10, dry_run=True)
        assert {file for file in path.rglob("*") if file.is_file()} == inside
    assert would.is_rehearsal
    assert {file.name for file in before} == {file.name for file in path.rglob("*") if file.is_file()}
    done = compact(spark, str(path), now_ms=NOW_MS, memory_bytes=SMALL_MAP_BYTES * 10)
    assert would.totals() == done.totals()


def test_partitions_and_topics_are_chosen(spark: SparkSession, path: Path) -> None:
    before = contents(path)
    report = compact(spark, str(path), topics=["changes"], partition=1, now_ms=NOW_MS)
    assert list(forms(report)) == ["changes-1"]
    after = contents(path)
    changed = {name.partition("/")[0] for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"changes-1", "cleaner-offset-checkpoint"}


def test_too_little_is_left_alone(spark: SparkSession, path: Path) -> None:
    compact(spark, str(path), now_ms=NOW_MS)
    report = compact(spark, str(path), now_ms=NOW_MS, min_dirty_ratio=0.5)
    assert report.totals()["idle"] == 3
    assert "0.0% of the log is new, this job compacts above 50.0%" in report.reports[0].notes[0]


def test_all_of_a_log_with_a_new_segment(spark: SparkSession, path: Path) -> None:
    with open_store(path, NOW_MS) as store:
        store.partition("changes", 1).append([duralog.Record(key=b"last", value=b"v")])
        end_offset = store.partition("changes", 1).end_offset
    report = compact(spark, str(path), topics=["changes"], partition=1, roll=True, now_ms=NOW_MS)
    assert report.reports[0].end_offset == end_offset


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_directory_that_was_not_closed_in_order(spark: SparkSession, path: Path, shuffled: bool) -> None:
    (path / ".kafka_cleanshutdown").unlink()
    log = sorted((path / "changes-0").glob("*.log"))[-1]
    with log.open("ab") as file:
        file.write(b"half a batch")
    report = compact(spark, str(path), topics=["changes"], now_ms=NOW_MS, shuffled=shuffled)
    assert report.is_well
    assert log.stat().st_size == 0
    assert not is_closed_in_order(path), "the other partitions were not looked at"


def test_one_that_fails_costs_the_others_nothing(spark: SparkSession, path: Path) -> None:
    (path / "changes-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    report = compact(spark, str(path), now_ms=NOW_MS)
    assert not report.is_well
    assert [str(found.partition) for found in report.failures] == ["changes-0"]
    assert "belongs to another topic" in str(report.failures[0].failure)
    assert report.totals()["compacted"] == 2
    assert not is_closed_in_order(path)
    again = compact(spark, str(path), now_ms=NOW_MS, shuffled=True, topics=["changes"])
    assert "belongs to another topic" in str(again.failures[0].failure)


def test_damage_is_reported_and_copied(spark: SparkSession, path: Path) -> None:
    log = sorted((path / "changes-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    expected = compacted_by_a_store(copied(path, "expected"))
    report = compact(spark, str(path), now_ms=NOW_MS, shuffled=True)
    assert not report.is_well
    assert "wrong checksum" in report.reports[0].corrupt_batches[0]
    assert contents(path) == contents(expected)


def test_offsets_that_do_not_rise_are_left_to_one_task(spark: SparkSession, path: Path) -> None:
    """A mark would mean two records."""
    log = path / "changes-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    length, body = decode_varint(data, 61, size)
    _, second = decode_varint(data, body + length, size)
    data[second + 2] = 0  # The offset delta of the second record, after its attributes and its timestamp delta.
    data[17:21] = crc32c(bytes(data[21:size])).to_bytes(4)
    log.write_bytes(data)
    expected = compacted_by_a_store(copied(path, "expected"))
    report = compact(spark, str(path), now_ms=NOW_MS, shuffled=True)
    assert forms(report)["changes-0"] is CompactionForm.ONE_TASK
    assert forms(report)["changes-1"] is CompactionForm.SHUFFLED
    assert contents(path) == contents(expected)


def test_a_directory_in_use_is_refused(spark: SparkSession, path: Path) -> None:
    with open_store(path, NOW_MS), pytest.raises(StoreLocked):
        compact(spark, str(path))


def test_what_is_not_there_or_not_compacted(spark: SparkSession, path: Path) -> None:
    with pytest.raises(UnknownTopic, match="nothing"):
        compact(spark, str(path), topics=["nothing"])
    with pytest.raises(UnknownTopic, match="partition 9"):
        compact(spark, str(path), partition=9)
    with pytest.raises(InvalidConfig, match="events is not compacted"):
        compact(spark, str(path), topics=["events"])
    with pytest.raises(InvalidConfig, match="memory_bytes"):
        compact(spark, str(path), memory_bytes=10)
    with pytest.raises(InvalidConfig, match="a config needs the topics that it is for"):
        compact(spark, str(path), topic_config={"cleanup.policy": "compact"})
    with pytest.raises(DuralogError, match="no such directory"):
        compact(spark, str(path / "nowhere"))
    report = compact(spark, str(path), topics=["events"], topic_config={"cleanup.policy": "compact"}, roll=True)
    assert list(forms(report)) == ["events-0"]
    assert is_closed_in_order(path)


@pytest.fixture
def run(spark: SparkSession) -> CliRunner:
    return CliRunner()


def test_the_command_writes_a_table(run: CliRunner, path: Path) -> None:
    result = run.invoke(app, ["job", "compact", str(path), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "3 partitions would be compacted" in result.output
    result = run.invoke(app, ["job", "compact", str(path), "--shuffled", "--map-bytes", "1M"])
    assert result.exit_code == 0, result.output
    assert "changes-0" in result.output
    assert "3 partitions compacted" in result.output


def test_the_command_writes_json(run: CliRunner, path: Path) -> None:
    result = run.invoke(app, ["job", "compact", str(path), "--json", "--topic", "ledger"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["partition", "summary"]
    assert (lines[0]["topic"], lines[0]["form"], lines[0]["failure"]) == ("ledger", "one task", None)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--map-bytes", "3"], "at least 1024 bytes"),
        (["--config", "cleanup.policy=compact"], "give --topic"),
        (["--dry-run", "--roll"], "--roll changes the directory"),
    ],
)
def test_wrong_usage(run: CliRunner, path: Path, options: list[str], told: str) -> None:
    result = run.invoke(app, ["job", "compact", str(path), *options])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_both_passes_of_the_shuffled_form_show_how_far_they_are(spark: SparkSession, path: Path) -> None:
    shown: list[TaskProgress] = []
    compact(spark, str(path), topics=["changes"], partition=1, now_ms=NOW_MS, shuffled=True, on_progress=shown.append)
    ends = {progress.name: progress.tasks - progress.tasks_done for progress in shown}
    assert ends == {"compact changes-1: keys": 0, "compact changes-1": 0}


def test_a_dead_worker_is_reported_in_a_sentence(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(path)
    monkeypatch.setattr(KeyTasks, "judge", dies)
    report = compact(spark, str(path), topics=["changes"], partition=1, now_ms=NOW_MS, shuffled=True)
    failure = report.failures[0].failure
    assert failure is not None
    assert failure.startswith("compact changes-1: keys: a task failed: ")
    assert "\n" not in failure
    assert contents(path) == before


def dies(_tasks: KeyTasks, _batches: object) -> Iterator[object]:
    os._exit(1)
    yield
