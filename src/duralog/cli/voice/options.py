"""The options that commands share: the same names, short forms and words for the same things.

The argument or `--data` says where a command works, never both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from duralog.cli.voice.completions import codecs, partition_numbers, topic_config_settings, topic_names
from duralog.cli.voice.failures import WrongUsage
from duralog.config.byte_sizes import parse_bytes
from duralog.config.times import now_ms, parse_time
from duralog.errors import DuralogError
from duralog.operations.addresses import is_broker, is_url

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output

_T = TypeVar("_T")
_SMALLEST_MAP_BYTES = 1024

WHERE = "Where"
WHICH = "Which"
WHAT = "What"
WHERE_TO = "Where to"
HOW = "How"
SPARK = "Spark"
OPTION_PANELS = (WHERE, WHICH, WHAT, WHERE_TO, HOW, SPARK)
"""The panels of a command's help, in this order."""


def as_text(param: typer.CallbackParam, text: str | None) -> str | None:
    """A name that must be UTF-8: Kafka clients abort the process on other bytes."""
    if text is not None:
        check_text(param.opts[0], text)
    return text


def check_can_ask(what: str, *, yes: bool) -> None:
    """Check, before anything is opened, that there is a terminal to ask on. `what` completes "give --yes to"."""
    if not yes and not sys.stdin.isatty():
        raise WrongUsage(f"this is not a terminal, so nothing can be asked: give --yes to {what}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless `--yes` was given. Ends the command with exit code 1 if it is not wanted."""
    if not yes and not typer.confirm(question, err=True):
        raise typer.Exit(1)


def check_text(option: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WrongUsage(f"{option}: {text!r} is not text: it must be UTF-8") from None


Directory = Annotated[
    str | None, typer.Argument(metavar="DIR", help="A log directory: what Kafka calls log.dirs.", show_default=False)
]
Data = Annotated[
    str | None,
    typer.Option("--data", "-d", metavar="DIR", help="The directory, instead of the argument.", rich_help_panel=WHERE),
]
TopicChoice = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="Only this topic.",
        rich_help_panel=WHICH,
        autocompletion=topic_names,
        callback=as_text,
    ),
]
TopicChoices = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="Only this topic; may be given again.",
        rich_help_panel=WHICH,
        autocompletion=topic_names,
    ),
]
TopicName = Annotated[
    str,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="The topic.",
        rich_help_panel=WHICH,
        show_default=False,
        autocompletion=topic_names,
        callback=as_text,
    ),
]
PartitionChoice = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        metavar="N",
        min=0,
        help="Only this partition.",
        rich_help_panel=WHICH,
        autocompletion=partition_numbers,
    ),
]
CodecChoice = Annotated[
    str | None,
    typer.Option(
        "--codec",
        metavar="NAME",
        help="none, gzip, snappy, lz4 or zstd.",
        rich_help_panel=HOW,
        autocompletion=codecs,
    ),
]
ConfigOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="As if this were a config of the --topic; may be given again.",
        rich_help_panel=HOW,
        autocompletion=topic_config_settings,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Only show what would happen; change nothing.", rich_help_panel=HOW)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=HOW)]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object per line, and nothing else.", rich_help_panel=HOW)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, notes or progress.", rich_help_panel=HOW)]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="No progress bar.", rich_help_panel=HOW)]
ReadThreads = Annotated[
    int,
    typer.Option("--threads", metavar="N", min=1, max=64, help="The number of reading threads.", rich_help_panel=HOW),
]
IndexInterval = Annotated[
    str | None,
    typer.Option(
        "--index-interval",
        metavar="SIZE",
        help="The topics' index.interval.bytes; indexes must then match exactly.",
        rich_help_panel=HOW,
    ),
]
MAP_BYTES = typer.Option(
    "--map-bytes", metavar="SIZE", help="Memory for the map of keys; on Spark, of each task.", rich_help_panel=HOW
)
ServerProperties = Annotated[
    str | None,
    typer.Option(
        "--server-properties",
        metavar="FILE",
        help="The broker's server.properties, for configs that topics do not set.",
        rich_help_panel=HOW,
    ),
]


def directory_given(argument: str | None, data: str | None) -> str:
    """The directory that the argument DIR or `--data` names. An address is refused, or a directory of that name would
    be created.
    """
    place = place_given(argument, data, "DIR")
    if is_broker(place):
        raise WrongUsage(f"{place!r} is the address of a broker, and this command works on a directory: give DIR")
    return place


def local_directory_given(argument: str | None, data: str | None) -> str:
    """The same, on this machine: a URL is refused, too."""
    place = directory_given(argument, data)
    if is_url(place):
        raise WrongUsage(
            f"{place!r} is a URL, and this command works on a directory of this machine: copy it here; verify and"
            " stats with --engine spark, job export and job snapshot read object stores"
        )
    return place


def place_given(argument: str | None, data: str | None, metavar: str) -> str:
    """The value of the argument of that metavar, or of `--data`. Neither, or both, is wrong usage."""
    if argument is not None and data is not None:
        raise WrongUsage(f"{argument!r} and --data {data!r} are two places: give one of them")
    place = data if argument is None else argument
    if not place:
        raise WrongUsage(f"where? Give {metavar} as the argument, or --data {metavar}")
    return place


def standard_output(*, as_json: bool, quiet: bool) -> Output:
    """Where a command writes its result."""
    from duralog.cli.voice.output import Output
    from duralog.cli.voice.terminal import shows_colours, width_of

    return Output(
        sys.stdout.buffer,
        as_json=as_json,
        colour=not as_json and shows_colours(sys.stdout),
        quiet=quiet,
        width=width_of(sys.stdout),
    )


def parsed(option: str, parse: Callable[[str], _T], text: str) -> _T:
    """The parsed value of an option. An invalid one ends the command with an error."""
    try:
        return parse(text)
    except (ValueError, DuralogError) as error:
        raise WrongUsage(f"{option}: {error}") from None


def map_size(text: str) -> int:
    """The value of `--map-bytes`."""
    size_bytes = parsed("--map-bytes", parse_bytes, text)
    if size_bytes < _SMALLEST_MAP_BYTES:
        raise WrongUsage(f"--map-bytes: a map has at least {_SMALLEST_MAP_BYTES} bytes")
    return size_bytes


def index_interval_bytes(text: str | None) -> int | None:
    """The value of `--index-interval`."""
    return None if text is None else parsed("--index-interval", parse_bytes, text)


def parsed_time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    return parsed(option, lambda value: parse_time(value, now_ms=now_ms()), text)


def config_settings(given: list[str] | None) -> dict[str, object]:
    """The values of `--config NAME=VALUE`, by name."""
    settings = named_values("--config", given)
    for value in settings.values():
        check_text("--config", value)
    return {**settings}


def named_values(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """The values of an option `NAME=VALUE` that may be given again, by name."""
    values: dict[str, str] = {}
    for setting in given or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise WrongUsage(f"{option}: {setting!r} is not of the form NAME=VALUE")
        check_text(option, name)
        values[name.strip()] = value
    return values
