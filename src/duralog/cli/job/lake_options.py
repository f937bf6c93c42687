"""The options of jobs that write tables: the target, its format, and how to reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.completions import ISOLATION_LEVELS, TABLE_FORMATS, isolation_levels, table_formats
from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.options import HOW, WHERE_TO, WHICH, directory_given
from duralog.cli.voice.tables import plural
from duralog.cli.voice.unknown_names import names_checked

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.spark.jobs.export_report import ExportedTable, ExportReport
    from duralog.spark.jobs.snapshots.report import SnapshotReport, SnapshotTable

_SHOWN_FIELDS = 10
_SHOWN_RANGES = 20
"""Of a topic. JSON has all."""


def _one_of(option: str, names: Sequence[str]) -> Callable[[str], str]:
    def checked(name: str) -> str:
        if name not in names:
            raise WrongUsage(f"{option}: {name!r} is none of {', '.join(names)}")
        return name

    return checked


LogDirectories = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DIR",
        help="A log directory as all machines see it, or all of a cluster: paths, URLs, globs, or a JSON manifest.",
        show_default=False,
    ),
]
TableTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="A folder, or s3://bucket/folder and the like. Each topic becomes a table in it.",
        show_default=False,
    ),
]
TableFormatChoice = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="NAME",
        help="parquet, delta or iceberg.",
        rich_help_panel=WHERE_TO,
        autocompletion=table_formats,
        callback=_one_of("--format", TABLE_FORMATS),
    ),
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--target-option",
        metavar="NAME=VALUE",
        help="How to reach the target (region, ..., catalog.uri for Iceberg); may be given again.",
        rich_help_panel=WHERE_TO,
    ),
]
WithHeaders = Annotated[
    bool, typer.Option("--headers", help="Also a column of the records' headers.", rich_help_panel=WHERE_TO)
]
IsolationChoice = Annotated[
    str,
    typer.Option(
        "--isolation",
        metavar="NAME",
        help="read_committed, or read_uncommitted: also records of aborted and open transactions.",
        rich_help_panel=WHICH,
        autocompletion=isolation_levels,
        callback=_one_of("--isolation", ISOLATION_LEVELS),
    ),
]
ChosenColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="TEXT",
        help="Only these fields of decoded keys and values, as value.id,value.customer.name.",
        show_default=False,
        rich_help_panel=HOW,
    ),
]
SliceBytes = Annotated[
    str, typer.Option("--max-split", metavar="SIZE", help="How much of the log a task reads.", rich_help_panel=HOW)
]


def note_columns(output: Output, table: ExportedTable | SnapshotTable) -> None:
    """How keys and values were decoded, what became of the table's columns, and what is not in them."""
    topic, bad_records = table.topic, table.bad_records
    for finding in table.findings:
        output.note(*finding.split(": ", 1))
    for change in table.column_changes:
        output.note(topic, change)
    if bad_records:
        output.note(topic, f"{plural(bad_records, 'record')} with a key or value that does not decode: see _corrupt")
    if table.left_out_fields:
        named = [f"{name} ({plural(count, 'time')})" for name, count in table.left_out_fields.items()]
        more = len(named) - _SHOWN_FIELDS
        shown = ", ".join([*named[:_SHOWN_FIELDS], *([f"and {more} more"] if more > 0 else [])])
        output.note(
            topic,
            f"fields that are not in the table, since no record of the sample has them: {shown}. To have them, give"
            " --value-format json with a JSON Schema as --value-schema, and another target",
        )


def note_copies(output: Output, report: ExportReport | SnapshotReport) -> None:
    """Of a cluster: what is wrong with the directories, and what was read from other copies."""
    for problem in report.problems:
        output.note(*problem.split(": ", 1))
    for table in report.tables:
        for healed in table.healed[:_SHOWN_RANGES]:
            output.note(*healed.split(": ", 1))
        if len(table.healed) > _SHOWN_RANGES:
            more = plural(len(table.healed) - _SHOWN_RANGES, "range")
            output.note(table.topic, f"and {more} more from other copies: --json shows all")


def chosen_columns(text: str | None) -> list[str] | None:
    """The value of `--columns`."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def source_and_target(
    directories: list[str] | None, target: str | None, data: list[str] | None
) -> tuple[str | list[str], str]:
    """The log directory, or those of a cluster, and where the tables go.

    With `--data`, the one argument is where the tables go.
    """
    if directories and data:
        raise WrongUsage(f"{directories[0]!r} and --data {data[0]!r} are two places: give one of them")
    paths = [directory_given(path, None) for path in directories or data or ()]
    if not paths and target is None:
        raise WrongUsage("where? Give DIR as the argument, or --data DIR")
    if not paths or target is None:
        raise WrongUsage("TARGET is missing: give the folder of the tables after DIR")
    return paths[0] if len(paths) == 1 else paths, target


def names_checked_in(path: str | list[str], topics: list[str] | None) -> AbstractContextManager[None]:
    """See `names_checked`. Errors about the directories of a cluster list its topics already."""
    return names_checked(path, topics, may_be_a_cluster=True, at_once=True) if isinstance(path, str) else nullcontext()
