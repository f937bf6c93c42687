"""The options that the jobs share which write tables: where, in which format, and how to reach that place."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.options import HOW, WHICH

WHERE = "Where to"

TableTarget = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A folder, or s3://bucket/folder and the like. Each topic is a table of its own in it.",
        show_default=False,
    ),
]
TableFormatChoice = Annotated[
    str, typer.Option("--format", "-f", metavar="NAME", help="parquet, delta or iceberg.", rich_help_panel=WHERE)
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--target-option",
        metavar="NAME=VALUE",
        help="How to reach the target: region, endpoint_override, ...; catalog.type, catalog.uri, ... for Iceberg."
        " May be given again.",
        rich_help_panel=WHERE,
    ),
]
WithHeaders = Annotated[
    bool, typer.Option("--headers", help="Also a column of the records' headers.", rich_help_panel=WHERE)
]
IsolationChoice = Annotated[
    str,
    typer.Option(
        "--isolation",
        metavar="LEVEL",
        help="read_committed, or read_uncommitted: also data of aborted and open transactions.",
        rich_help_panel=WHICH,
    ),
]
SliceBytes = Annotated[
    str, typer.Option("--max-split", metavar="SIZE", help="How much of the log a task reads.", rich_help_panel=HOW)
]
