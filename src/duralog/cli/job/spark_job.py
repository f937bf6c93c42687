"""What all `duralog job` commands share: the group that they register with, their options, the session.

A job's command is a module `duralog.cli.job.<name>` that registers a function with `@job_app.command()`. Nothing of
PySpark is loaded before the command runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import SPARK, WHICH, named_values
from duralog.errors import DuralogError, MissingExtra

if TYPE_CHECKING:
    from duralog.operations.workers import OnSpark

job_app = typer.Typer(
    name="job",
    cls=CommandGroup,
    help="Work on whole directories with Spark, on a cluster too.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Location = Annotated[
    str | None,
    typer.Argument(metavar="DIR", help="A log directory, as all machines of the cluster see it.", show_default=False),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where to run: local[N], spark://host:port, k8s://..., yarn.",
        rich_help_panel=SPARK,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be given again.", rich_help_panel=SPARK),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="How to reach an object store: region, endpoint_override, ...; may be given again.",
        rich_help_panel=WHICH,
    ),
]
DEFAULT_MASTER = "local[*]"
_MASTER = re.compile(
    r"yarn|(?:spark|k8s)://.+|local(?:\[(?:\*|[1-9]\d*)(?:,\d+)?\]|-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\])?"
)
"""What Spark takes. It refuses anything else with a Java stack."""


@contextmanager
def on_spark(name: str, *, master: str = DEFAULT_MASTER, conf: list[str] | None = None) -> Iterator[OnSpark]:
    """A session for one job, stopped at its end. One that already runs in this process is used, and is not stopped."""
    settings = named_values("--conf", conf)
    if _MASTER.fullmatch(master) is None:
        raise WrongUsage(f"--master: {master!r} is none of local[N], spark://host:port, k8s://..., yarn")
    try:
        from duralog.spark.session import active_session, job_session
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingExtra("to work with Spark", "PySpark", extra="spark") from None
    from duralog.operations.workers import OnSpark

    running = active_session()
    if running is not None:
        yield OnSpark(running)
        return
    with _without_stacks_of_interrupts():
        try:
            spark = job_session(master, f"duralog {name}", settings)
        except Exception as error:
            raise _not_started(master, error) from error
        try:
            yield OnSpark(spark)
        except BaseException:
            with suppress(Exception):  # The first error is the one to report.
                spark.stop()
            raise
        spark.stop()


@contextmanager
def _without_stacks_of_interrupts() -> Iterator[None]:
    """A call to Java that Ctrl-C interrupts is raised, and logged with its stack as well, by py4j at the root."""

    def is_of_use(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith("while sending command.")

    root = logging.getLogger()
    root.addFilter(is_of_use)
    try:
        yield
    finally:
        root.removeFilter(is_of_use)


def _not_started(master: str, error: Exception) -> DuralogError:
    """Why Spark did not start: the sentence in the stack of Java or Python that it raises."""
    lines = [line.strip() for line in str(getattr(error, "java_exception", error)).splitlines()]
    reason = next(filter(None, lines), type(error).__name__)
    if "JAVA_GATEWAY_EXITED" in reason:
        reason = "Java did not start. It has to be 17 or newer, on the path or in JAVA_HOME, and --conf what it takes"
    elif "stopped SparkContext" in reason:
        reason = "the session was ended before it began, as if there is no master at that address"
    return DuralogError(f"Spark cannot be started with --master {master}: {reason}")
