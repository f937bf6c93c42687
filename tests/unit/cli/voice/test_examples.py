"""The examples of `--help` are command lines that the parser takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from duralog.broker.broker import Broker
from duralog.cli.voice.examples import EXAMPLES
from duralog.command_line import app

ROOT: Any = typer.main.get_command(app)
LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def names(command: Any, path: str = "") -> set[str]:
    found: set[str] = set()
    for name, child in command.commands.items():
        whole = f"{path} {name}".strip()
        found |= names(child, whole) if hasattr(child, "commands") else {whole}
    return found


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == names(ROOT), "add them to duralog.cli.voice.examples"


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_can_be_parsed(name: str, line: str) -> None:
    """Each `duralog` of a pipe, with the real parser. An argument that is not an option's is a place or a name."""
    commands = re.findall(r"duralog [^|)]*", line)
    parsed = [_parsed(shlex.split(command.rstrip('"'))[1:]) for command in commands]
    assert name in parsed


@pytest.mark.parametrize("line", EXAMPLES["serve"])
def test_an_example_of_serve_has_all_that_a_broker_needs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything up to the start: the configs, the listener and its protection."""
    made: list[Broker] = []
    monkeypatch.setattr("duralog.cli.serve._serve", lambda broker, _ready_path: made.append(broker))
    monkeypatch.setattr("duralog.cli.voice.logs.log_to_standard_error", lambda **_: None)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, shlex.split(line)[1:])
    assert (ended.exit_code, ended.output) == (0, "")
    assert len(made) == 1


def _parsed(words: list[str]) -> str:
    command, context = ROOT, ROOT.make_context("duralog", [*words])
    path = []
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, words)
        path.append(name)
        context = command.make_context(name, [*words], parent=context)
    return " ".join(path)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_help_ends_with_the_examples(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "120"}).stdout
    lines = [line.strip() for line in shown.rstrip().splitlines()]
    assert lines[-len(EXAMPLES[name]) - 1 :] == ["Examples:", *EXAMPLES[name]]
