"""`job repair`: the files, and the report, that `duralog repair` leaves; partitions that are sound stay untouched."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.errors import DuralogError, StoreLocked
from duralog.spark.jobs import repair, verify
from duralog.storage.repair import partition_repair
from duralog.storage.repair.repair import Repair
from tests.support.commands import run
from tests.support.places import GOLDEN

pytestmark = pytest.mark.spark

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory that Kafka closed in order."""
    path = tmp_path / "one" / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


@pytest.fixture
def twin(store: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes another copy of the directory as it is then."""
    return lambda: Path(shutil.copytree(store, tmp_path / "two" / "store"))


def change_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def damage(store: Path) -> None:
    change_byte(store / "codecs-2" / f"{0:020}.log", 1000)
    change_byte(store / "plain-0" / f"{0:020}.log", 500_000)
    change_byte(store / "plain-0" / f"{3229:020}.index", 7)
    change_byte(store / "txn-0" / f"{80:020}.snapshot", 9)
    (store / "codecs-1" / f"{0:020}.timeindex").unlink()
    (store / "recovery-point-offset-checkpoint").write_text("0\n1\nplain 0 999999\n")
    with (store / "codecs-4" / f"{0:020}.log").open("ab") as log:
        log.write(b"\0" * 5 + b"half a batch")


def contents(path: Path) -> dict[str, bytes]:
    """Of all files, but for the lock's, and without the time in reports of the quarantine."""
    return {
        str(file.relative_to(path)): re.sub(rb'"time_ms": \d+', b"", file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def told(report: Any, repairs: list[Any], path: Path) -> Any:
    everything = [
        [repaired.to_dict() for repaired in repairs],
        [action.to_dict() for action in report.actions],
        [str(error) for error in report.left],
    ]
    return json.loads(json.dumps(everything).replace(str(path), "."))


def by_command(path: Path, **options: Any) -> Any:
    work = Repair(str(path), **options)
    repairs = list(work.run())
    return told(work, repairs, path)


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_outcome_is_that_of_the_command(
    spark: SparkSession, store: Path, twin: Callable[[], Path], dry_run: bool
) -> None:
    damage(store)
    other = twin()
    before = contents(store)
    report = repair(spark, str(store), dry_run=dry_run)
    expected = by_command(other, dry_run=dry_run)
    assert told(report, list(report.repairs), store) == expected
    assert contents(store) == contents(other)
    assert (contents(store) == before) is dry_run
    assert report.is_well
    assert (store / MARKER).exists()
    if not dry_run:
        assert verify(spark, str(store)).is_sound


def test_what_was_quarantined_comes_back(spark: SparkSession, store: Path, twin: Callable[[], Path]) -> None:
    log = store / "codecs-2" / f"{0:020}.log"
    change_byte(log, 1000)
    repair(spark, str(store))
    (quarantined,) = (store / "codecs-2" / "duralog-quarantine").glob("*.bytes")
    data = quarantined.read_bytes()
    assert len(log.read_bytes()) + len(data) == (GOLDEN / "store" / "codecs-2" / log.name).stat().st_size
    change_byte(quarantined, 1000)
    other = twin()
    report = repair(spark, str(store), restore=True)
    assert told(report, list(report.repairs), store) == by_command(other, restore=True)
    assert contents(store) == contents(other)
    assert log.read_bytes() == (GOLDEN / "store" / "codecs-2" / log.name).read_bytes()


def test_a_sound_directory_stays_as_it_is(spark: SparkSession, store: Path) -> None:
    before = contents(store)
    report = repair(spark, str(store))
    assert all(repaired.is_sound for repaired in report.repairs)
    assert len(report.repairs) == 20
    assert contents(store) == before


def test_a_directory_that_was_not_closed_does_not_count_as_closed(spark: SparkSession, store: Path) -> None:
    damage(store)
    (store / MARKER).unlink()
    repair(spark, str(store))
    assert not (store / MARKER).exists()


def test_damaged_metadata_is_not_cut_unless_named(spark: SparkSession, store: Path, twin: Callable[[], Path]) -> None:
    (log,) = (store / "__cluster_metadata-0").glob("*.log")
    change_byte(log, log.stat().st_size - 40)
    other = twin()
    report = repair(spark, str(store))
    assert not report.is_well
    assert told(report, list(report.repairs), store) == by_command(other)
    assert contents(store) == contents(other)
    repair(spark, str(store), topics=["__cluster_metadata"])
    by_command(other, topics=["__cluster_metadata"])
    assert contents(store) == contents(other)


def test_only_what_is_chosen(spark: SparkSession, store: Path) -> None:
    damage(store)
    report = repair(spark, str(store), topics=["codecs"], partition=2)
    assert [str(repaired.partition) for repaired in report.repairs] == ["codecs-2"]
    assert not verify(spark, str(store)).is_sound


def test_one_that_cannot_be_checked_again_costs_the_others_nothing(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata log is repaired here, and not in a task."""
    (log,) = (store / "__cluster_metadata-0").glob("*.log")
    log.with_suffix(".index").unlink()
    change_byte(store / "codecs-2" / f"{0:020}.log", 1000)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(partition_repair, "check_partition", refused)
    report = repair(spark, str(store))
    assert {str(found.partition): found.failure for found in report.repairs if found.failure is not None} == {
        "__cluster_metadata-0": "[Errno 5] Input/output error"
    }
    assert [str(found.partition) for found in report.repairs if found.actions] == ["codecs-2"]
    assert not report.is_well
    assert not (store / MARKER).exists()


def test_a_directory_in_use_is_refused(spark: SparkSession, store: Path) -> None:
    with duralog.open(str(store)), pytest.raises(StoreLocked):
        repair(spark, str(store))
    with duralog.open(str(store)), pytest.raises(StoreLocked):
        repair(spark, str(store), dry_run=True)
    with pytest.raises(DuralogError, match="there is no such directory"):
        repair(spark, str(store / "missing"))


def test_actions_as_a_frame(spark: SparkSession, store: Path) -> None:
    damage(store)
    frame = repair(spark, str(store)).frame(spark)
    quarantined = frame.where("action = 'quarantined'").collect()
    assert {row.topic for row in quarantined} == {"codecs", "plain"}
    assert all(row.bytes > 0 for row in quarantined)
    (row,) = frame.where("topic is null and detail like 'plain-0:%'").collect()
    assert (row.kind, row.action, row.detail) == (
        *("action", "corrected"),
        "plain-0: 999999 becomes 6001, where the log ends",
    )


@pytest.mark.parametrize("style", [[], ["--json"], ["--quiet"]])
def test_the_command(spark: SparkSession, store: Path, twin: Callable[[], Path], style: list[str]) -> None:
    damage(store)
    other = twin()
    by_job, by_threads = run("job", "repair", *style, store).stdout, run("repair", *style, other).stdout
    assert by_job == by_threads.replace(str(other), str(store))
