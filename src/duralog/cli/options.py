"""The options that all commands on a log directory share: the same names for the same things."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from duralog.cli.times import parse_time
from duralog.errors import DuralogError

if TYPE_CHECKING:
    from duralog.cli.output import Output

_T = TypeVar("_T")

WHICH = "Which"
HOW = "How"

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A log directory: what Kafka calls log.dirs.", show_default=False)
]
TopicChoice = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only this topic.", rich_help_panel=WHICH)
]
PartitionChoice = Annotated[
    int | None,
    typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition.", rich_help_panel=WHICH),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, and nothing else.", rich_help_panel=HOW)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, notes or progress.", rich_help_panel=HOW)]
ServerProperties = Annotated[
    str | None,
    typer.Option(
        "--server-properties",
        metavar="FILE",
        help="The broker's server.properties: its defaults hold for topics that set nothing themselves.",
        rich_help_panel=HOW,
    ),
]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="No progress bar.", rich_help_panel=HOW)]


def standard_output(*, as_json: bool, quiet: bool) -> Output:
    """Where a command writes what it was asked for."""
    from duralog.cli.output import Output

    return Output(sys.stdout.buffer, as_json=as_json, colour=sys.stdout.isatty() and not as_json, quiet=quiet)


def parsed(option: str, parse: Callable[[str], _T], text: str) -> _T:
    """The value of an option; a wrong one ends the command with what was wrong."""
    try:
        return parse(text)
    except (ValueError, DuralogError) as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def parsed_time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    return parsed(option, lambda value: parse_time(value, now_ms=now_ms()), text)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def config_settings(given: list[str] | None) -> dict[str, object]:
    """The values of `--config NAME=VALUE`, by name."""
    return {**named_values("--config", given)}


def named_values(option: str, given: list[str] | None) -> dict[str, str]:
    """The values of an option `NAME=VALUE` that may be given again, by name."""
    values: dict[str, str] = {}
    for setting in given or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{option}: {setting!r} is not of the form NAME=VALUE")
        values[name.strip()] = value
    return values
