"""The `duralog` command.

Modules that take long to load (numba, pyarrow, numpy) are imported by the commands that need them, so that
`duralog --help` is instant.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from duralog import __version__
from duralog.cli.acl.command import acl_app
from duralog.cli.bench.command import bench
from duralog.cli.cluster.command import cluster_app
from duralog.cli.compact.command import compact
from duralog.cli.completion import ASKED, answer_shell, completion
from duralog.cli.config.command import config_app
from duralog.cli.doctor.command import doctor
from duralog.cli.dump.command import dump
from duralog.cli.group.command import group_app
from duralog.cli.job.command import job_app
from duralog.cli.lookup import lookup
from duralog.cli.records.consume import ConsumeCommand, consume
from duralog.cli.records.produce import produce
from duralog.cli.repair import repair
from duralog.cli.retain import retain
from duralog.cli.serve import serve
from duralog.cli.stats.command import stats
from duralog.cli.topic.command import topic_app
from duralog.cli.user.command import user_app
from duralog.cli.verify import MORE_ARGUMENTS, verify
from duralog.cli.voice.failures import CLOSED_PIPE, FAILURE, INTERRUPTED, leave_standard_output, say
from duralog.cli.voice.help_pages import LOOK, LOOK_AFTER, PIPELINE, TALK, TOOLS, CommandGroup
from duralog.cli.voice.logs import say_warnings
from duralog.config.error_text import describe
from duralog.console.command import console

app = typer.Typer(
    name="duralog",
    cls=CommandGroup,
    help="Apache Kafka's log storage: the same files on disk, byte for byte.",
    epilog="duralog COMMAND --help shows more. DIR is a log directory: what Kafka calls log.dirs.",
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
    version: Annotated[  # noqa: ARG001 (its callback prints it)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    say_warnings()  # Until the command chooses otherwise.


app.command(rich_help_panel=TALK)(serve)
app.command(rich_help_panel=TALK)(produce)
app.command(rich_help_panel=TALK, cls=ConsumeCommand)(consume)
app.add_typer(topic_app, rich_help_panel=TALK)
app.add_typer(group_app, rich_help_panel=TALK)
app.add_typer(config_app, rich_help_panel=TALK)
app.add_typer(user_app, rich_help_panel=TALK)
app.add_typer(acl_app, rich_help_panel=TALK)
app.command(rich_help_panel=LOOK)(dump)
app.command(rich_help_panel=LOOK)(lookup)
app.command(rich_help_panel=LOOK)(stats)
app.command(rich_help_panel=LOOK)(console)
app.command(rich_help_panel=LOOK_AFTER, context_settings=MORE_ARGUMENTS)(verify)
app.command(rich_help_panel=LOOK_AFTER)(repair)
app.command(rich_help_panel=LOOK_AFTER)(compact)
app.command(rich_help_panel=LOOK_AFTER)(retain)
app.add_typer(cluster_app, rich_help_panel=LOOK_AFTER)
app.add_typer(job_app, rich_help_panel=PIPELINE)
app.command(rich_help_panel=TOOLS)(doctor)
app.command(rich_help_panel=TOOLS)(bench)
app.command(rich_help_panel=TOOLS)(completion)


def main() -> None:
    _open_standard_streams()
    if ASKED in os.environ:
        answer_shell(app)
    try:
        app(prog_name="duralog")
    except SystemExit as left:
        # typer and rich, which write the help, exit with their own code after a broken pipe.
        if isinstance(left.__context__, BrokenPipeError):
            leave_standard_output()
            sys.exit(CLOSED_PIPE)
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        leave_standard_output()  # Usually help could not be written to standard output.
        say(f"error: {describe(error)}")
        sys.exit(FAILURE)


def _open_standard_streams() -> None:
    """Open the standard streams that the caller has closed, to the null device.

    Otherwise the next opened file, perhaps a log, would get the number of standard error, and what libraries write
    there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
