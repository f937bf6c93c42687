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
from tests.support.needed_programs import needs

pytestmark = pytest.mark.slow

BASH = """
eval "$(duralog completion bash)"
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
    _duralog duralog
    echo "${#COMPREPLY[@]} ${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "a directory"
    for name in ("orders-0", "orders-1", "orders-10", "customers-0", "__consumer_offsets-3", "old-0.0a-delete", "x"):
        (path / name).mkdir(parents=True)
        (path / name / f"{0:020}.log").touch()
    (path / "photos-2024").mkdir()
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
        "duralog topic ": "list describe create alter move delete",
        "duralog verify --par": "--partition",
        f"duralog verify {place} --topic ": "customers orders",
        f"duralog consume -d {place} -t or": "orders",
        f"duralog verify --data={place} --topic=cu": "customers",
        f"duralog verify {place} -t __": "__consumer_offsets",
        f"duralog consume {place} -t orders -p ": "0 1 10",
        f"duralog job compact {place} -t customers -p ": "0",
        "duralog topic create data -t x -c retention.": "retention.bytes= retention.ms=",
        "duralog config ": "list get set reset",
        "duralog config set data max.connection": (
            "max.connection.creation.rate= max.connections= max.connections.per.ip= max.connections.per.ip.overrides="
        ),
        "duralog config reset data log.cleaner.th": "log.cleaner.threads",
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
    # Where nothing is offered, not even an empty word may be: bash then offers files.
    told = [f"{len(words.split())} {words}" for words in expected.values()]
    assert dict(zip(expected, shell.stdout.splitlines(), strict=True)) == dict(zip(expected, told, strict=True))


@needs("fish")
def test_fish(directory: Path, environment: dict[str, str]) -> None:
    expected = {
        f"duralog verify '{directory}' --topic o": ["orders"],
        f"duralog verify '{directory}' --topic=o": ["--topic=orders"],
        "duralog topic create data --config=retention.m": ["--config=retention.ms="],
        f"duralog verify {directory.parent}/a": [f"{directory}/"],
        f"duralog verify --data={directory.parent}/a": [f"--data={directory}/"],
    }
    asked = "duralog completion fish | source\nwhile read -l line; complete -C $line; echo end; end"
    shell = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        input="\n".join(expected) + "\n",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    answers = [answer.strip().splitlines() for answer in shell.stdout.split("end\n")[:-1]]
    assert dict(zip(expected, answers, strict=True)) == expected, shell.stderr


ZSH = """
zmodload zsh/zpty
zpty -b typing zsh -f -i
zpty -w typing 'PROMPT=; autoload -Uz compinit; compinit -D -u; eval "$(duralog completion zsh)"'
zpty -w typing 'taken() { print -r -- "$BUFFER" >>$TAKEN; BUFFER= }; zle -N taken'
zpty -w typing 'bindkey "^I" complete-word "^X" taken'
integer asked
while IFS= read -r line; do
    zpty -w -n typing "$line"$'\\t\\x18'
    (( asked += 1 ))
    until (( $(wc -l <$TAKEN) == asked )); do zpty -r -t typing seen; sleep 0.05; done
done
"""


@needs("zsh")
def test_zsh(directory: Path, environment: dict[str, str], tmp_path: Path) -> None:
    expected = {
        f"duralog verify '{directory}' --topic o": f"duralog verify '{directory}' --topic orders ",
        f"duralog verify '{directory}' --topic=o": f"duralog verify '{directory}' --topic=orders ",
        "duralog topic create data --config=retention.m": "duralog topic create data --config=retention.ms=",
        f"duralog verify --data={directory.parent}/a": f"duralog verify --data={directory.parent}/a\\ directory/",
    }
    taken = tmp_path / "taken"
    taken.touch()
    subprocess.run(
        ["zsh", "-f", "-c", ZSH],
        input="\n".join(expected) + "\n",
        env={**environment, "TAKEN": str(taken)},
        text=True,
        check=True,
        timeout=120,
    )
    assert dict(zip(expected, taken.read_text().splitlines(), strict=True)) == expected


def test_meanings_stand_behind_a_tab(environment: dict[str, str]) -> None:
    lines = answer("duralog verify --jso", environment).stdout.splitlines()
    assert lines == ["--json\tOne JSON object per line, and nothing else."]


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
