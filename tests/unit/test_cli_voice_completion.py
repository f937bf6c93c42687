"""Completion in the shells themselves: bash always, zsh's and fish's scripts where those are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duralog.cli.completion import SCRIPTS
from duralog.command_line import app
from tests.needed_programs import needs

BASH = """
eval "$(duralog completion bash)"
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _duralog duralog
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "a directory"
    for name in ("orders-0", "orders-1", "orders-10", "customers-0", "__consumer_offsets-3", "old-0.0a-delete", "x"):
        (path / name).mkdir(parents=True)
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a command `duralog` that is this Python's."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "duralog"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m duralog "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}


def answer(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duralog"],
        env={**environment, "_DURALOG_COMPLETE": "complete_lines", "_DURALOG_LINE": line},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_bash(directory: Path, environment: dict[str, str]) -> None:
    place = f"'{directory}'"
    expected = {
        "duralog verif": "verify",
        "duralog topic ": "list describe create alter delete",
        "duralog verify --par": "--partition",
        f"duralog verify {place} --topic ": "customers orders",
        f"duralog consume -d {place} -t or": "orders",
        f"duralog verify --data={place} --topic=cu": "customers",
        f"duralog verify {place} -t __": "__consumer_offsets",
        f"duralog consume {place} -t orders -p ": "0 1 10",
        f"duralog job compact {place} -t customers -p ": "0",
        "duralog topic create data -t x -c retention.": "retention.bytes= retention.ms=",
        "duralog produce data -t x --codec z": "zstd",
        "duralog job export data lake --format ": "delta iceberg parquet",
        "duralog completion ": "bash zsh fish",
        "duralog topic describe localhost:9092 -t ": "",
        f"duralog verify {directory}/missing -t ": "",
        "duralog verify 'not closed -t ": "",
    }
    shell = subprocess.run(
        ["bash", "--norc", "-c", f"compopt() {{ :; }}\n{BASH}"],
        input="\n".join(expected) + "\n",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert shell.stderr == ""
    assert dict(zip(expected, shell.stdout.splitlines(), strict=True)) == expected


@needs("fish")
def test_fish(directory: Path, environment: dict[str, str]) -> None:
    asked = f'duralog completion fish | source; complete -C "duralog verify \\"{directory}\\" --topic o"'
    shell = subprocess.run(
        ["fish", "--no-config", "-c", asked], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert shell.stdout.split() == ["orders"]


@needs("zsh")
def test_zsh_takes_the_script(environment: dict[str, str]) -> None:
    asked = 'autoload -Uz compinit; compinit -D -u; eval "$(duralog completion zsh)"; print -r -- $_comps[duralog]'
    shell = subprocess.run(["zsh", "-f", "-c", asked], env=environment, capture_output=True, text=True, timeout=60)
    assert (shell.stdout.strip(), shell.stderr) == ("_duralog", "")


def test_meanings_stand_behind_a_tab(environment: dict[str, str]) -> None:
    lines = answer("duralog verify --jso", environment).stdout.splitlines()
    assert lines == ["--json\tOne JSON object a line, and nothing else."]


def test_an_answer_loads_nothing_heavy(directory: Path, environment: dict[str, str]) -> None:
    program = (
        "import os, sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=open(os.environ['LOADED'], 'w')))\n"
        "from duralog.command_line import main\n"
        "main()\n"
    )
    loaded = directory.parent / "loaded"
    line = f"duralog verify '{directory}' -t o"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "_DURALOG_COMPLETE": "complete_lines", "_DURALOG_LINE": line, "LOADED": str(loaded)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout.split() == ["orders"]
    heavy = {"numpy", "numba", "pyarrow", "pyspark", "kio", "nicegui", "confluent_kafka", "rich.console"}
    assert heavy.isdisjoint(loaded.read_text().split())


def test_the_script_is_that_of_the_shell_in_use() -> None:
    for name, script in SCRIPTS.items():
        assert CliRunner().invoke(app, ["completion"], env={"SHELL": f"/usr/bin/{name}"}).stdout == script
        assert CliRunner().invoke(app, ["completion", name]).stdout == script
    refused = CliRunner().invoke(app, ["completion", "tcsh"])
    assert refused.exit_code == 2
    assert "give bash, zsh or fish" in refused.stderr
    assert CliRunner().invoke(app, ["completion"], env={"SHELL": ""}).exit_code == 2
