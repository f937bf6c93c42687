"""The group `duralog cluster`, and the directories that each of its commands takes."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import WHERE

cluster_app = typer.Typer(
    name="cluster",
    cls=CommandGroup,
    help="Log directories of several nodes: compare, heal, restore.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Directories = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DIR", help="Log directories of all nodes: paths, URLs, globs, or a JSON manifest.", show_default=False
    ),
]
MoreData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR",
        help="A directory, instead of the arguments; may be given again.",
        rich_help_panel=WHERE,
    ),
]


def paths_given(directories: list[str] | None, data: list[str] | None) -> list[str]:
    if directories and data:
        raise WrongUsage(f"{directories[0]!r} and --data {data[0]!r} are two places: give one of them")
    paths = directories or data
    if not paths:
        raise WrongUsage("where? Give the log directories of all nodes as arguments, or with --data DIR")
    return paths
