"""Every command of the tree is held to the same conventions.

A new command is held to them by being there. What is left out of a rule is named here, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from duralog.cli.voice.help_pages import PANELS
from duralog.command_line import app
from tests.support.places import DOCS

OWN_PAGES = {"serve": "broker.md", "dump": "dump.md", "console": "console.md"}
"""Commands whose options stand on a page of their own; `commands.md` links to it."""

COMMON_OPTIONS = {
    "--data": ("-d", {"DIR", "DIR|HOST:PORT"}),
    "--topic": ("-t", {"NAME"}),
    "--partition": ("-p", {"N"}),
    "--json": (None, {""}),
    "--quiet": ("-q", {""}),
    "--no-progress": (None, {""}),
    "--dry-run": ("-n", {""}),
    "--yes": ("-y", {""}),
    "--offset": ("-o", {"N"}),
    "--time": (None, {"TIME"}),
    "--key": ("-k", {"TEXT"}),
    "--group": ("-g", {"NAME"}),
    "--follow": ("-f", {""}),
    "--listen": ("-l", {"HOST:PORT"}),
    "--limit": ("-n", {"N"}),
    "--server-properties": (None, {"FILE"}),
    "--threads": (None, {"N"}),
    "--codec": (None, {"NAME"}),
    "--map-bytes": (None, {"SIZE"}),
    "--master": (None, {"URL"}),
    "--conf": (None, {"NAME=VALUE"}),
}
ALIASES = {"--earliest", "--latest", "--offset", "--time"}
"""Second names of what Kafka's tool calls `--to-earliest` and so on."""
METAVARS = {
    *("DIR", "HOST:PORT", "DIR|HOST:PORT", "FILE", "NAME", "N", "SIZE", "TIME", "TEXT", "NAME=VALUE", "URL", "MS"),
    *("ADDRESS", "HEX", "A:B", "R", "PARTITION=OFFSET", "DURATION"),
}
ARGUMENTS = {"DIR", "HOST:PORT", "DIR|HOST:PORT", "PATH", "TARGET", "SHELL", "NAME", "NAME=VALUE"}
OPTION_PANELS = ["Where", "Which", "What", "Where to", "How", "Spark"]

NO_PLACE = {"completion", "bench", "doctor", "user entry"}
"""They work on no directory, or on one that is theirs to choose."""
NO_RESULTS = {"serve", "console", "completion", "user entry"}
"""They run until they are stopped, or print something that is neither rows nor objects."""


@dataclass(frozen=True)
class Found:
    path: str
    command: Any

    @property
    def options(self) -> list[Any]:
        return [p for p in self.command.params if p.param_type_name == "option" and not p.hidden]

    @property
    def arguments(self) -> list[Any]:
        return [p for p in self.command.params if p.param_type_name == "argument"]

    def option(self, name: str) -> Any:
        return next((p for p in self.command.params if name in p.opts), None)


def walk(command: Any, path: str = "") -> Iterator[Found]:
    for name, child in command.commands.items():
        whole = f"{path} {name}".strip()
        if hasattr(child, "commands"):
            yield from walk(child, whole)
        else:
            yield Found(whole, child)


ROOT: Any = typer.main.get_command(app)
COMMANDS = list(walk(ROOT))
every_command = pytest.mark.parametrize("found", COMMANDS, ids=[found.path for found in COMMANDS])


def help_of(found: Found) -> str:
    return found.command.callback.__doc__ or ""


def long_names(option: Any) -> list[str]:
    return [name for name in (*option.opts, *option.secondary_opts) if name.startswith("--")]


@every_command
def test_help_answers_in_both_spellings(found: Found) -> None:
    answers = [CliRunner().invoke(app, [*found.path.split(), flag], env={"COLUMNS": "80"}) for flag in ("-h", "--help")]
    assert [answer.exit_code for answer in answers] == [0, 0]
    assert answers[0].stdout == answers[1].stdout
    assert max(map(len, answers[0].stdout.splitlines())) <= 80
    for noise in ("<bool>", "<str>", "list["):
        assert noise not in answers[0].stdout
    panels = re.findall("^╭─ ([A-Z][a-z ]+) ─", answers[0].stdout, re.MULTILINE)
    shown = [panel for panel in panels if panel in OPTION_PANELS]
    assert shown == sorted(shown, key=OPTION_PANELS.index)


@every_command
def test_the_first_line_fits_the_list_of_commands(found: Found) -> None:
    first = help_of(found).strip().split("\n\n")[0]
    assert "\n" not in first
    assert first.endswith(".")
    assert first[0].isupper()
    assert len(first) <= 62


@every_command
def test_exit_codes_are_documented(found: Found) -> None:
    paragraphs = help_of(found).split("\n\n")
    codes = next((paragraph for paragraph in paragraphs if paragraph.strip().startswith("Exit code:")), None)
    assert codes is not None
    assert "2 wrong usage" in codes
    assert codes.strip().endswith(".")


@every_command
def test_every_option_says_what_it_is(found: Found) -> None:
    for option in found.options:
        assert option.help, option.opts
        assert option.help.endswith("."), (option.opts, option.help)
        assert option.help[0].isupper() or option.help.split()[0].strip(",") in (
            *("none", "parquet", "read_committed"),
        ), (option.opts, option.help)
        assert option.rich_help_panel in OPTION_PANELS, option.opts
        if not option.is_flag:
            assert option.metavar in METAVARS, (option.opts, option.metavar)


@every_command
def test_the_same_options_for_the_same_things(found: Found) -> None:
    for option in found.options:
        (name, *others) = long_names(option)
        assert not set(others) - ALIASES or option.secondary_opts, option.opts
        shorts = [short for short in option.opts if not short.startswith("--")]
        if name in COMMON_OPTIONS:
            short, metavars = COMMON_OPTIONS[name]
            assert shorts == ([] if short is None else [short]), (found.path, name)
            assert (option.metavar or "") in metavars, (found.path, name)


def test_a_name_has_one_short_form_and_one_metavar() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for found in COMMANDS:
        for option in found.options:
            name = long_names(option)[0]
            if name in ("--data", "--records", "--format", "--to", "--schema-registry"):
                # A directory, or for some a broker too; dump shows records; a table's format, or a record's; to a file,
                # or to a directory; where a registry is served, or asked.
                continue
            shorts = tuple(short for short in option.opts if not short.startswith("--"))
            form = (shorts, "" if option.is_flag else option.metavar)
            assert seen.setdefault(name, form) == form, (found.path, name)


@every_command
def test_a_place_is_given_as_the_argument_or_with_data(found: Found) -> None:
    assert {argument.metavar for argument in found.arguments} <= ARGUMENTS
    if found.path in NO_PLACE:
        return
    assert found.option("--data") is not None
    assert found.arguments
    assert not found.arguments[0].required


@every_command
def test_results_can_be_parsed_and_silenced(found: Found) -> None:
    if found.path not in NO_RESULTS:
        assert found.option("--json") is not None
        assert found.option("--quiet") is not None


PLACED = [found for found in COMMANDS if found.path not in NO_PLACE]


def required_options(found: Found) -> list[str]:
    required = [option for option in found.options if option.required]
    return [word for option in required for word in (option.opts[0], "0" if option.metavar == "N" else "x")]


@pytest.mark.parametrize("found", PLACED, ids=[found.path for found in PLACED])
def test_two_places_or_none_are_wrong_usage(found: Found, tmp_path: Path) -> None:
    words = [*found.path.split(), *required_options(found)]
    more = ["target"] if len(found.arguments) > 1 else []
    nowhere = CliRunner().invoke(app, [*words, *(["--yes"] if found.option("--yes") else [])], env={"COLUMNS": "200"})
    assert nowhere.exit_code == 2
    assert "where?" in nowhere.stderr
    assert "--data" in nowhere.stderr
    if found.path == "console":
        return  # A broker's address and the directory that it serves may both be given.
    twice = CliRunner().invoke(app, [*words, str(tmp_path), *more, "--data", str(tmp_path)], env={"COLUMNS": "400"})
    assert twice.exit_code == 2
    assert "give one of them" in " ".join(twice.stderr.split())
    assert list(tmp_path.iterdir()) == []


# Documentation


def page_of(found: Found) -> str:
    commands = (DOCS / "commands.md").read_text()
    page = OWN_PAGES.get(found.path)
    if page is None:
        return commands
    assert f"({page}" in commands
    return (DOCS / page).read_text()


@every_command
def test_every_command_and_option_is_documented(found: Found) -> None:
    text = page_of(found)
    assert f"duralog {found.path}" in text
    commands = (DOCS / "commands.md").read_text()
    for option in found.options:
        for name in long_names(option):
            assert f"`{name}" in text or f"`{name}" in commands, (found.path, name)


def test_the_first_table_has_every_command() -> None:
    text = (DOCS / "commands.md").read_text().split("\n\n")[1]
    rows = set(re.findall(r"^\| \[?`duralog ([a-z]+)`", text, re.M))
    assert rows == set(ROOT.commands)


def test_nothing_is_documented_that_does_not_exist() -> None:
    text = (DOCS / "commands.md").read_text()
    known = {name for found in COMMANDS for option in found.options for name in long_names(option)} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - known == set()
    paths = {found.path for found in COMMANDS} | set(ROOT.commands)
    named = re.findall(r"^(?:\$ )?duralog ((?:topic |group |config |job )?[a-z]+)", text, re.M)
    assert named
    assert set(named) - paths == set()


@every_command
def test_usage_in_the_documentation_names_every_option(found: Found) -> None:
    """The usage lines: `duralog NAME DIR [--option]...`, over several lines where one is too short."""
    if found.path in OWN_PAGES:
        return
    text = (DOCS / "commands.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in re.split(r"\n(?=duralog |\$ )", block)]
    told = " ".join(line for line in lines if line.startswith(f"duralog {found.path} ") and re.search(r"\[|DIR", line))
    assert told
    common = {"--data", "--help", "--engine", "--master", "--conf", "--config-file"}
    if found.path.startswith("job "):
        common |= {"--json", "--quiet", "--no-progress", "--topic", "--partition"}
    missing = [
        option.opts
        for option in found.options
        if not {*long_names(option)} & common and not any(f"{name}" in told for name in long_names(option))
    ]
    assert missing == []


# The list of commands


def test_the_list_of_commands_is_in_panels_and_fits() -> None:
    without = CliRunner().invoke(app, [], env={"COLUMNS": "80"})
    asked = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"})
    assert asked.stdout.rstrip() == (without.stdout or without.output).rstrip()
    lines = asked.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert titles == ["Options", *PANELS]
    listed = [line for line in lines if line.startswith("│ ") and not line.startswith("│ --")]
    assert {line.split()[1] for line in listed} == set(ROOT.commands)
    assert len(listed) == len(ROOT.commands)
    assert all(line.rstrip("│ ").endswith(".") for line in listed)
