"""Counting what consumers of a cluster were served, through damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import duralog
from duralog.command_line import app
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes, write_high_watermark
from tests.support.cluster.recorded import consumed, unpack


def figures(report: Any) -> dict[str, Any]:
    found = report.to_dict()
    return {name: found[name] for name in ("topics", "partitions", "prefixes")}


def test_the_directories_of_a_cluster_count_as_a_good_copy_does(tmp_path: Path) -> None:
    nodes = three_nodes(tmp_path)
    options: dict[str, Any] = {"prefix_length": 1, "hot_keys": 2}
    expected = figures(duralog.stats(nodes[2], **options))
    flip(logs(nodes[0])[1], 300)
    cut(logs(nodes[0])[3], 100)
    logs(nodes[1])[2].unlink()
    found = duralog.stats([str(node) for node in nodes], **options)
    assert figures(found) == expected
    assert [key.key for key in found.shapes[TOPIC].hot_keys] == [b"k0", b"k1"]
    for node in nodes:
        write_high_watermark(node, 30)
    assert duralog.stats(f"{tmp_path}/broker-*").topics[0].records == 30


def test_a_recorded_cluster(tmp_path: Path) -> None:
    truth = unpack(tmp_path)
    report = duralog.stats(f"{tmp_path}/broker-*/data*")
    counted = {f"{each.topic}-{each.partition}": each.records for each in report.partitions}
    assert counted == {name: len(consumed(truth, name)) for name in counted}
    assert len(counted) == 8
    (users,) = [each for each in report.partitions if each.topic == "users"]
    assert users.compaction is not None
    command = CliRunner().invoke(app, ["stats", f"{tmp_path}/broker-*/data*", "--json"])
    assert command.exit_code == 0
    shown = json.loads(command.stdout)["partitions"]
    assert {f"{each['topic']}-{each['partition']}": each["records"] for each in shown} == counted
    missing = CliRunner().invoke(app, ["stats", f"{tmp_path}/no-*"])
    assert missing.exit_code == 1
    assert "no directory matches" in missing.stderr
