"""`duralog group` on a directory that Kafka wrote; tests/broker has it on a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from duralog.command_line import app
from duralog.storage.store import Store

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "store"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["group", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def objects(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


def test_groups_of_kafka() -> None:
    (group,) = objects("list", GOLDEN)
    assert group == {
        "kind": "group",
        "group": "readers",
        "state": None,
        "type": "classic",
        "members": 0,
        "partitions": 2,
        "lag": 5481,
    }
    assert "readers" in run("list", GOLDEN).stdout


def test_offsets_of_a_group() -> None:
    _, *offsets = objects("describe", GOLDEN, "-g", "readers")
    assert [(row["topic"], row["partition"], row["committed"], row["end_offset"], row["lag"]) for row in offsets] == [
        ("plain", 0, 3000, 6001, 3001),
        ("txn", 0, 0, 2480, 2480),
    ]
    assert "3001" in run("describe", GOLDEN).stdout
    assert "there is no group nobody" in run("describe", GOLDEN, "-g", "nobody", code=1).stderr


def test_a_directory_without_groups(tmp_path: Path) -> None:
    Store(str(tmp_path)).close()
    assert objects("list", tmp_path) == []
    assert "no groups" in run("list", tmp_path).stdout


def test_what_needs_a_broker() -> None:
    run("delete", GOLDEN, "-g", "readers", "--yes", code=2)
    run("delete", "127.0.0.1:1", "-g", "readers", code=2)
    run("reset", GOLDEN, "-g", "readers", "-t", "plain", "--earliest", code=2)
    run("reset", "127.0.0.1:1", "-g", "readers", "-t", "plain", code=2)
    run("reset", "127.0.0.1:1", "-g", "readers", "-t", "plain", "--earliest", "--latest", code=2)
