"""What all `duralog job` commands share: the group that they register with, their options, the session, progress.

A job's command is a module `duralog.cli.job_<name>` that registers a function with `@job_app.command()`. Nothing of
PySpark is loaded before the command runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.common.completions import topic_names
from duralog.cli.common.failures import WrongUsage
from duralog.cli.common.help_pages import CommandGroup
from duralog.cli.common.options import SPARK, WHICH, named_values, parsed
from duralog.cli.common.progress import Progress
from duralog.cli.common.tables import plural
from duralog.config.byte_sizes import parse_bytes
from duralog.errors import DuralogError, MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duralog.scanning.executor import TaskProgress

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
"""What Spark takes. Of anything else it tells with a stack."""
_SMALLEST_MAP_BYTES = 1024


def map_size(text: str) -> int:
    """The value of `--map-bytes`."""
    size_bytes = parsed("--map-bytes", parse_bytes, text)
    if size_bytes < _SMALLEST_MAP_BYTES:
        raise WrongUsage(f"--map-bytes: a map has at least {_SMALLEST_MAP_BYTES} bytes")
    return size_bytes


@contextmanager
def spark_session(name: str, *, master: str = DEFAULT_MASTER, conf: list[str] | None = None) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. One that is running in this process already is used, and goes on."""
    settings = named_values("--conf", conf)
    if _MASTER.fullmatch(master) is None:
        raise WrongUsage(f"--master: {master!r} is none of local[N], spark://host:port, k8s://..., yarn")
    try:
        from duralog.spark.session import active_session, job_session
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingExtra("to work with Spark", "PySpark", extra="spark") from None
    running = active_session()
    if running is not None:
        yield running
        return
    with _without_stacks_of_interrupts():
        try:
            spark = job_session(master, f"duralog {name}", settings)
        except Exception as error:
            raise _not_started(master, error) from error
        try:
            yield spark
        except BaseException:
            with suppress(Exception):  # What went wrong first is to be told.
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
    """Where Spark does not come up: what it says of it, which comes as a stack of Java's or of Python's."""
    lines = [line.strip() for line in str(getattr(error, "java_exception", error)).splitlines()]
    told = next(filter(None, lines), type(error).__name__)
    if "JAVA_GATEWAY_EXITED" in told:
        told = "Java did not start. It has to be 17 or newer, on the path or in JAVA_HOME, and --conf what it takes"
    elif "stopped SparkContext" in told:
        told = "the session was ended before it began, as by a master that nobody answers for"
    return DuralogError(f"Spark cannot be started with --master {master}: {told}")


class JobProgress:
    """A bar for the tasks of a job, one phase after the other: on a terminal only."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._bar: Progress | None = None
        self._phase = ""
        self._done = 0

    def __enter__(self) -> JobProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def hide(self) -> None:
        if self._bar is not None:
            self._bar.hide()

    def show(self, progress: TaskProgress) -> None:
        if self._bar is None or progress.name != self._phase:
            self.hide()
            self._bar = Progress(progress.weight, wanted=self._wanted, is_in_bytes=progress.is_in_bytes)
            self._phase, self._done = progress.name, 0
        self._bar.begin(f"{progress.name}: {progress.tasks_done} of {plural(progress.tasks, 'task')}")
        self._bar.advance(progress.weight_done - self._done)
        self._done = progress.weight_done
