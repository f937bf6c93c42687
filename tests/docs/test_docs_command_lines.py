"""Every `duralog` command line of a page names a command that is there, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_blocks import blocks, prose

from duralog.command_line import app
from tests.docs.documented_pages import PAGES, name_of

COMMAND = typer.main.get_command(app)
NO_COMMANDS = ("duralog is ready on",)
"""What looks like a command line and is none: lines that a command prints."""


def command_lines(page: str) -> Iterator[tuple[int, str]]:
    for block in blocks(page):
        if block.language in ("python", "properties", "yaml"):
            continue
        lines = re.sub(r"\\\n\s*|\n(?= {4,}\S)", " ", block.text)
        for line in lines.splitlines():
            yield from ((block.line, found) for found in re.findall(r"(?:^|[|&;] *|\$ )(?=duralog )(.*)", line))
    for number, line in enumerate(prose(page).splitlines()):
        yield from ((number, found) for found in re.findall(r"`(duralog [^`]*)`", line))


def wrong(line: str) -> str | None:
    """What is wrong with a command line, if anything."""
    line = re.sub(r"\s#\s.*", "", line)
    is_synopsis = re.search(r"[\[(]-", line) is not None
    if not is_synopsis:
        line = re.split(r" [|>&]|;", line)[0]
    plain = re.sub(r"[\[\]()]|\.\.\.", " ", line) if is_synopsis else line
    try:
        words = shlex.split(plain)[1:]
    except ValueError:
        words = plain.split()[1:]
    command, path = COMMAND, "duralog"
    while hasattr(command, "commands") and words and not words[0].startswith("-") and words[0].islower():
        if words[0] not in command.commands:
            return f"{path} has no command {words[0]!r}"
        path = f"{path} {words[0]}"
        command = command.commands[words.pop(0)]
    known = set(options_of(command))
    for word in words:
        name = word.split("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*|-[A-Za-z]", name) and name not in known:
            return f"{path} has no option {name}"
    return None


def options_of(command: Any) -> Iterator[str]:
    yield from ("--help", "-h")
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for subcommand in getattr(command, "commands", {}).values():
        yield from options_of(subcommand)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_are_right(page: Path) -> None:
    mistakes = [
        f"line {number + 1}: {line}: {mistake}"
        for number, line in command_lines(page.read_text(encoding="utf-8"))
        if not line.startswith(NO_COMMANDS) and (mistake := wrong(line)) is not None
    ]
    assert mistakes == []


def test_there_are_command_lines_to_check() -> None:
    assert sum(1 for page in PAGES for _ in command_lines(page.read_text(encoding="utf-8"))) > 200


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("duralog verify data --deep", None),
        ("duralog consume a:1 -t x --json | duralog produce b:1 -t x --from-json", None),
        ("duralog dump x --records | cut -c 1-10", None),
        ("duralog job NAME PATH [--master URL]", None),
        ("duralog verify data --depp", "duralog verify has no option --depp"),
        ("duralog lookup DIR (--offset N | --tmie TIME)", "duralog lookup has no option --tmie"),
        ("duralog verfy data", "duralog has no command 'verfy'"),
        ("duralog topic creat data", "duralog topic has no command 'creat'"),
    ],
)
def test_a_mistake_is_found(line: str, mistake: str | None) -> None:
    assert wrong(line) == mistake
