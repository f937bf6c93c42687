"""The `duralog` command.

Everything that takes long to load (numba, pyarrow, numpy) is imported by the command that needs it, when it needs it:
`duralog --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from duralog import __version__
from duralog.cli.compact import compact
from duralog.cli.consume import consume
from duralog.cli.dump import dump
from duralog.cli.failures import INTERRUPTED
from duralog.cli.group import group_app
from duralog.cli.job import job_app
from duralog.cli.lookup import lookup
from duralog.cli.produce import produce
from duralog.cli.repair import repair
from duralog.cli.retain import retain
from duralog.cli.serve import serve
from duralog.cli.topic import topic_app
from duralog.cli.verify import verify
from duralog.console.command import console

app = typer.Typer(
    name="duralog",
    help="Apache Kafka's log storage: the same files on disk, byte for byte.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"duralog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


app.command()(serve)
app.command()(produce)
app.command()(consume)
app.command()(dump)
app.command()(verify)
app.command()(repair)
app.command()(lookup)
app.command()(retain)
app.command()(compact)
app.command()(console)
app.add_typer(topic_app)
app.add_typer(group_app)
app.add_typer(job_app)


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
