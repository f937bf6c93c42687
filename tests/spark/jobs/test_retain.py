"""`job retain`: the segments that `duralog retain` deletes, and the files that it leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.errors import StoreLocked, UnknownTopic
from duralog.spark.jobs import retain, verify
from duralog.storage.log.retention import AgingLog, Removable
from tests.support.commands import run
from tests.support.places import GOLDEN

pytestmark = pytest.mark.spark

MARKER = ".kafka_cleanshutdown"
BY_SIZE = {"retention.bytes": 1_100_000, "retention.ms": -1}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "one" / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def test_a_plan_changes_nothing(spark: SparkSession, store: Path) -> None:
    before = contents(store)
    report = retain(spark, str(store), overrides=BY_SIZE, dry_run=True)
    (removal,) = report.removals
    assert (removal.topic, removal.base_offset, removal.end_offset, removal.size_bytes) == ("plain", 0, 3229, 1_045_518)
    assert contents(store) == before
    assert len(report.configs) == 19


def test_the_plan_is_carried_out(spark: SparkSession, store: Path) -> None:
    plan = retain(spark, str(store), overrides=BY_SIZE, dry_run=True)
    report = retain(spark, str(store), overrides=BY_SIZE)
    assert report.removals == plan.removals
    assert sorted(path.name for path in (store / "plain-0").glob("*.log")) == [f"{3229:020}.log", f"{6000:020}.log"]
    assert not list(store.rglob("*.deleted"))
    assert (store / MARKER).exists()
    assert verify(spark, str(store)).is_sound
    with duralog.open(str(store), read_only=True) as opened:
        assert opened.partition("plain", 0).start_offset == 3229


@dataclass(frozen=True)
class FirstSegment:
    """A policy of one's own: it is pickled with the tasks."""

    topic: str

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        if log.topic == self.topic:
            yield Removable(log.segments[0], "it is the first")


def test_other_policies(spark: SparkSession, store: Path) -> None:
    report = retain(spark, str(store), policies=[FirstSegment("txn")])
    (removal,) = report.removals
    assert (removal.topic, removal.policy, removal.reason) == ("txn", "FirstSegment", "it is the first")


def test_topics_and_a_partition(spark: SparkSession, store: Path) -> None:
    report = retain(spark, str(store), topics=["codecs", "plain"], partition=0, overrides=BY_SIZE, dry_run=True)
    assert [str(partition) for partition in report.configs] == ["codecs-0", "plain-0"]
    with pytest.raises(UnknownTopic, match="there is no topic nothing"):
        retain(spark, str(store), topics=["nothing"], dry_run=True)
    with pytest.raises(UnknownTopic, match="there is no partition 99 of any topic"):
        retain(spark, str(store), partition=99)


def test_a_directory_in_use(spark: SparkSession, store: Path) -> None:
    with duralog.open(str(store), config={"log.retention.ms": -1}):
        with pytest.raises(StoreLocked):
            retain(spark, str(store), overrides=BY_SIZE)
        assert retain(spark, str(store), overrides=BY_SIZE, dry_run=True).size_bytes == 1_045_518


def test_a_partition_that_fails_costs_the_others_nothing(spark: SparkSession, store: Path) -> None:
    (store / "codecs-0" / f"{0:020}.log").unlink()
    (store / "codecs-0" / f"{0:020}.log").mkdir()
    report = retain(spark, str(store), overrides=BY_SIZE)
    assert [removal.topic for removal in report.removals] == ["plain"]
    ((failed, reason),) = report.failures.items()
    assert str(failed) == "codecs-0"
    assert f"{0:020}.log" in reason


def test_removals_as_a_frame_and_json(spark: SparkSession, store: Path) -> None:
    report = retain(spark, str(store), overrides=BY_SIZE, dry_run=True)
    (row,) = report.frame(spark).collect()
    assert (row.topic, row.partition, row.size_bytes, row.policy) == ("plain", 0, 1_045_518, "BeyondSize")
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["segments"], told["bytes"], told["removals"][0]["end_offset"]) == (1, 1_045_518, 3229)


@pytest.mark.parametrize("style", [[], ["--json"], ["--dry-run"]])
def test_the_command(spark: SparkSession, store: Path, tmp_path: Path, style: list[str]) -> None:
    other = Path(shutil.copytree(store, tmp_path / "two" / "store"))
    limits = ["--retention-bytes", 1_100_000, "--retention-ms", -1]
    by_job = run("job", "retain", *style, *limits, store).stdout
    assert by_job == run("retain", *style, *limits, other).stdout.replace(str(other), str(store))
    assert contents(store).keys() == contents(other).keys()


def test_a_default_in_force_is_reported(spark: SparkSession, store: Path) -> None:
    assert "Kafka's default of 7 days" in run("job", "retain", "--dry-run", store).stdout
