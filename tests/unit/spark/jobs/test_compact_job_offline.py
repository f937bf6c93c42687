"""`job compact` of a directory with a partition that is offline: it is reported, and the others are compacted."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.reports.compact import CompactReport
from duralog.spark.jobs.compact import compact
from tests.support.spark.lake_directory import run_here

compact_module = importlib.import_module("duralog.spark.jobs.compact")


class Session:
    """As much of a Spark session as the job asks before its tasks run."""

    @property
    def sparkContext(self) -> Session:  # noqa: N802
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Topics with a folder more than the metadata knows."""
    run_here(monkeypatch, compact_module)
    with duralog.open(str(tmp_path / "data"), {"log.cleaner.enable": False}) as store:
        for topic, policy in (("changes", "compact"), ("events", "delete")):
            store.create_topic(topic, 1, {"cleanup.policy": policy})
            store.partition(topic, 0).append([duralog.Record(key=b"k", value=b"v")] * 5)
            store.partition(topic, 0).roll()
    for topic in ("changes", "events"):
        shutil.copytree(tmp_path / "data" / f"{topic}-0", tmp_path / "data" / f"{topic}-5")
    return tmp_path / "data"


def run(path: Path, **options: Any) -> CompactReport:
    return compact(Session(), str(path), **options)  # type: ignore[arg-type]


def test_it_is_a_failure_and_the_others_are_compacted(path: Path) -> None:
    report = run(path)
    assert [str(found.partition) for found in report.partitions] == ["changes-0", "changes-5"]
    assert [found.records_after for found in report.reports] == [1]
    (failed,) = report.failures
    assert failed.failure == f"it is offline: {path}/changes-5: the cluster metadata does not place this partition here"
    assert not report.is_well


def test_it_can_be_named(path: Path) -> None:
    (found,) = run(path, topics=["changes"], partition=5).partitions
    assert (found.failure or "").startswith("it is offline: ")
