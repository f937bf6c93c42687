"""Copies are healed on Spark as on threads: the same report, the same files."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.errors import StoreLocked
from duralog.operations.cluster.heal import HealReport, HealRequest, heal_cluster
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes
from tests.support.commands import run

FOLDER = f"{TOPIC}-0"


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    """Each copy has damage where another one is good. One directory was closed cleanly."""
    found = three_nodes(tmp_path)
    flip(logs(found[0])[0], 300)
    flip(logs(found[1])[1], 100)
    cut(logs(found[2])[3], 300)
    logs(found[2])[2].unlink()
    (found[0] / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":17}')
    return found


def heal(nodes: list[Path], workers: Workers, **options: Any) -> HealReport:
    return heal_cluster(HealRequest(paths=[str(node) for node in nodes], **options), workers)


def contents(nodes: list[Path]) -> dict[str, bytes]:
    """By path, without the names and reports of quarantined bytes, which have the time."""
    return {
        f"{node.name}/{path.relative_to(node)}": path.read_bytes()
        for node in nodes
        for path in sorted(node.rglob("*"))
        if path.is_file() and "quarantine" not in str(path) and path.suffix != ".snapshot"
    }


def shown(report: HealReport) -> list[Any]:
    return [
        {**copy.to_dict(), "directory": Path(copy.to_dict()["directory"]).name, "filled": len(copy.to_dict()["filled"])}
        for each in report.partitions
        for copy in each.copies
    ]


def test_copies_are_healed_on_spark_as_on_threads(spark: SparkSession, nodes: list[Path], tmp_path: Path) -> None:
    others = [shutil.copytree(node, tmp_path / "threads" / node.name) for node in nodes]
    damaged = contents(nodes)
    preview = heal(nodes, OnSpark(spark), dry_run=True)
    assert contents(nodes) == damaged
    report, expected = heal(nodes, OnSpark(spark)), heal(others, TWO_THREADS)
    assert report.is_well
    assert len(report.healed) == 3
    assert shown(report) == shown(expected) == shown(preview)
    assert {**asdict(report), "partitions": (), "seconds": 0} == {**asdict(expected), "partitions": (), "seconds": 0}
    assert contents(nodes) == contents(others)
    assert (nodes[0] / ".kafka_cleanshutdown").exists()
    assert not (nodes[1] / ".kafka_cleanshutdown").exists()
    assert all((node / ".lock").read_bytes() == b"" for node in nodes)
    assert not heal(nodes, OnSpark(spark)).healed


def test_a_directory_in_use_is_refused_on_spark(spark: SparkSession, nodes: list[Path]) -> None:
    damaged = [path.read_bytes() for node in (nodes[0], nodes[2]) for path in logs(node)]
    with duralog.open(nodes[1]), pytest.raises(StoreLocked, match="is in use by"):
        heal(nodes, OnSpark(spark))
    assert [path.read_bytes() for node in (nodes[0], nodes[2]) for path in logs(node)] == damaged


def test_the_command_heals_on_spark(spark: SparkSession, nodes: list[Path]) -> None:
    result = run("cluster", "heal", *map(str, nodes), "--engine", "spark")
    assert "3 copies healed" in result.stdout
    assert run("cluster", "verify", *map(str, nodes), "--engine", "spark").exit_code == 0
