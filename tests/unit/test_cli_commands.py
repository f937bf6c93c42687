"""What all commands have in common: help at once, the same options for the same things, every option documented."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from duralog.command_line import app

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = ["verify", "repair", "lookup", "retain", "compact"]
TOPIC_COMMANDS = ["list", "describe", "create", "alter", "delete"]


def options(*command: str) -> Iterator[str]:
    found: object = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]  # type: ignore[attr-defined]
    for parameter in found.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "option":
            yield from (name for name in parameter.opts if name.startswith("--") and name != "--help")


def test_the_command_line_loads_nothing_heavy() -> None:
    program = "import sys, duralog.command_line; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert {"numpy", "numba", "llvmlite", "pyarrow"}.isdisjoint(loaded.stdout.split())


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), *(["topic", name] for name in TOPIC_COMMANDS)])
def test_common_options_and_help(command: list[str]) -> None:
    names = set(options(*command))
    assert {"--topic", "--json", "--quiet"} <= names
    if command[0] != "topic":
        assert "--partition" in names
    assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), *(["topic", name] for name in TOPIC_COMMANDS)])
def test_every_option_is_documented(command: list[str]) -> None:
    text = (DOCS / "commands.md").read_text()
    assert f"duralog {' '.join(command)} DIR" in text
    missing = [name for name in options(*command) if f"`{name}" not in text]
    assert missing == []
