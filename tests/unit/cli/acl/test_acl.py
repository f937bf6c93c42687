"""`duralog acl` on a directory. On a broker: tests/interop/security/test_acl_tools.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import duralog
from duralog.command_line import app


@pytest.fixture
def data(tmp_path: Path) -> str:
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("orders")
    return str(tmp_path / "data")


def run(*arguments: str) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(app, ["acl", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout.splitlines(), result.stderr


def test_entries_are_added_listed_and_removed(data: str) -> None:
    code, lines, _ = run(
        "add", data, "--allow-principal", "User:etl", "--consumer", "--topic", "orders", "--group", "g"
    )
    assert code == 0
    assert len(lines) == 4
    assert run("add", data, "--allow-principal", "User:etl", "--consumer", "--topic", "orders", "--group", "g")[0] == 0
    _, lines, _ = run("list", data, "--json")
    assert [(each["resource_type"], each["operation"]) for each in map(json.loads, lines)] == [
        ("topic", "read"),
        ("topic", "describe"),
        ("group", "read"),
    ]
    code, lines, _ = run("remove", data, "--topic", "orders", "--operation", "Read", "--yes", "--json")
    assert (code, len(lines)) == (0, 1)
    assert len(run("list", data, "--json")[1]) == 2
    assert run("list", data, "--principal", "User:other")[1] == ["(no entries)"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "--topic", "t"), "for whom?"),
        (("add", "--allow-principal", "User:a"), "for what?"),
        (("add", "--allow-principal", "a", "--topic", "t"), "Could not parse principal"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--operation", "fly"), "expected one of all, read"),
        (("add", "--allow-principal", "User:a", "--cluster", "--operation", "read"), "is not one of a cluster"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --group"),
        (
            ("add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"),
            "Invalid patternType",
        ),
        (("remove", "--topic", "t"), "give --yes"),
        (("remove", "--yes"), "of what?"),
    ],
)
def test_wrong_usage(data: str, arguments: tuple[str, ...], reason: str) -> None:
    code, _, err = run(*arguments, "--data", data)
    assert code == 2
    assert reason in " ".join(err.replace("│", " ").split())


def test_a_running_broker_is_named(data: str) -> None:
    with duralog.open(data):
        code, _, err = run("add", data, "--allow-principal", "User:a", "--topic", "t")
    assert code == 1
    assert "give its HOST:PORT" in err
