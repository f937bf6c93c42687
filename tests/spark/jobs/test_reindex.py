"""`job reindex`: indexes as Kafka built them, from the logs alone; damaged logs are left to `repair`."""

from __future__ import annotations

import errno
import importlib
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.errors import StoreLocked, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.spark.jobs import reindex, verify
from duralog.spark.jobs.chosen_partitions import log_bytes
from duralog.spark.jobs.holding import hold
from tests.support import commands
from tests.support.places import GOLDEN

pytestmark = pytest.mark.spark

reindex_module = importlib.import_module("duralog.spark.jobs.reindex")

MARKER = ".kafka_cleanshutdown"
INDEXES = ("*.index", "*.timeindex", "*.txnindex")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def indexes(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for pattern in INDEXES
        for file in sorted(path.glob(f"*/{pattern}"))
        if "__cluster_metadata" not in str(file)
    }


def logs(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.glob("*/*.log"))}


def remove_indexes(path: Path) -> None:
    for name in indexes(path):
        (path / name).unlink()


def test_indexes_come_out_as_kafka_built_them(spark: SparkSession, store: Path) -> None:
    before, logs_before = indexes(store), logs(store)
    remove_indexes(store)
    report = reindex(spark, str(store))
    assert report.is_done
    after = indexes(store)
    assert {name: data for name, data in after.items() if data} == {name: data for name, data in before.items() if data}
    assert logs(store) == logs_before
    assert (store / MARKER).exists()
    assert verify(spark, str(store)).is_sound
    assert report.summary()["segments"] == 23


def test_wrong_indexes_are_replaced(spark: SparkSession, store: Path) -> None:
    before = indexes(store)
    for name, data in before.items():
        (store / name).write_bytes(data[: len(data) // 2] + b"\xff" * 24)
    reindex(spark, str(store))
    assert {name: data for name, data in indexes(store).items() if data} == {
        name: data for name, data in before.items() if data
    }


def test_right_indexes_stay_right(spark: SparkSession, store: Path) -> None:
    before = indexes(store)
    report = reindex(spark, str(store))
    # Closing a log that was opened may write the epochs and the producers anew.
    actions = [action for found in report.partitions for action in found.actions]
    assert not [action for action in actions if action.file.endswith("index")]
    assert indexes(store) == before


def test_old_formats(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "legacy"
    shutil.copytree(GOLDEN / "legacy", path, ignore=shutil.ignore_patterns("*.gz", *INDEXES))
    assert reindex(spark, str(path)).is_done
    assert verify(spark, str(path), deep=True).is_sound
    assert len([name for name in indexes(path) if name.endswith(".index")]) == 12


def test_a_damaged_log_is_left_alone(spark: SparkSession, store: Path) -> None:
    log = store / "codecs-2" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[1000] ^= 1
    log.write_bytes(data)
    before = {file.name: file.read_bytes() for file in log.parent.iterdir() if file.is_file()}
    report = reindex(spark, str(store), topics=["codecs"])
    (failed,) = [found for found in report.partitions if found.failure is not None]
    assert str(failed.partition) == "codecs-2"
    assert "position 0: wrong checksum" in str(failed.failure)
    assert {file.name: file.read_bytes() for file in log.parent.iterdir() if file.is_file()} == before
    assert (store / MARKER).exists()


def test_what_cannot_be_read_costs_the_others_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(reindex_module, "check_partition", refused)
    with hold(str(store), with_metadata=False) as held:
        found = reindex_module._reindex_partition(held.lend(TopicPartition("plain", 0)))
    assert (found.segments, found.failure) == (0, "[Errno 13] Permission denied")
    assert not (store / MARKER).exists()
    assert log_bytes(str(store / "nowhere")) == 0


def test_what_is_refused(spark: SparkSession, store: Path) -> None:
    with duralog.open(str(store)), pytest.raises(StoreLocked):
        reindex(spark, str(store))
    with pytest.raises(UnknownTopic, match="there is no topic nothing"):
        reindex(spark, str(store), topics=["nothing"])


def test_the_report_as_a_frame(spark: SparkSession, store: Path) -> None:
    remove_indexes(store)
    frame = reindex(spark, str(store), topics=["plain"]).frame(spark)
    (row,) = frame.collect()
    assert (row.topic, row.segments, row.bytes, row.changed, row.failure) == ("plain", 3, 2_245_084, 6, None)


run = partial(commands.run, "job", "reindex")


def test_the_command(spark: SparkSession, store: Path) -> None:
    remove_indexes(store)
    lines = run(store, "--topic", "plain").stdout.splitlines()
    assert lines[0].split() == ["partition", "what", "file", "detail"]
    assert lines[1].split()[:3] == ["plain-0", "built", f"{0:020}.index"]
    assert lines[-1].startswith("3 segments of 1 partition indexed, 2.14 MiB in ")
    assert lines[-1].endswith("; 6 files changed")
    rows = [json.loads(line) for line in run(store, "--json").stdout.splitlines()]
    assert (rows[-1]["kind"], rows[-1]["failures"]) == ("summary", 0)
    change = store / "codecs-2" / f"{0:020}.log"
    change.write_bytes(change.read_bytes()[:-1])
    assert "! codecs-2: the log is damaged" in run(store, code=1).stdout
