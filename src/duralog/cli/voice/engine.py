"""The engine of a command, threads of this process or Spark: its options, and the Spark session.

Nothing of PySpark is loaded before a command starts a session.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duralog.cli.voice.completions import ENGINES, engines
from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.options import HOW, SPARK, WHICH, directory_given, local_directory_given, named_values
from duralog.errors import DuralogError, MissingExtra

if TYPE_CHECKING:
    from duralog.operations.chosen_partition import Choice
    from duralog.operations.workers import OnSpark, Workers


def _known_engine(name: str) -> str:
    if name not in ENGINES:
        raise WrongUsage(f"--engine: {name!r} is none of {', '.join(ENGINES)}")
    return name


EngineChoice = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Work on threads of this process, or on spark: partitions in parallel, also on a cluster.",
        rich_help_panel=HOW,
        autocompletion=engines,
        callback=_known_engine,
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
THREADS, ON_SPARK = ENGINES
DEFAULT_MASTER = "local[*]"
_SPARK_ONLY = ("master", "conf", "storage_option")
_MASTER = re.compile(
    r"yarn|(?:spark|k8s)://.+|local(?:\[(?:\*|[1-9]\d*)(?:,\d+)?\]|-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\])?"
)
"""What Spark accepts. It refuses anything else with a Java stack trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The chosen engine and its options."""

    command: str
    name: str
    threads: int
    master: str = DEFAULT_MASTER
    conf: Sequence[str] = field(default_factory=tuple)

    @property
    def is_spark(self) -> bool:
        return self.name == ON_SPARK

    def directory(self, argument: str | None, data: str | None) -> str:
        """The place of DIR or `--data`. Spark can read an object store."""
        return (directory_given if self.is_spark else local_directory_given)(argument, data)

    def choice(self, given: str, topics: list[str] | None, partition: int | None) -> tuple[str, Choice]:
        """The log directory and the partitions. On threads, DIR may be a partition's folder."""
        from duralog.operations.chosen_partition import Choice, chosen_in

        if self.is_spark:
            return given, Choice(topics or None, partition)
        return chosen_in(given, topics or None, partition)

    def announce(self, *, quiet: bool) -> None:
        """On threads, the first call of a kernel may compile it in this process. On Spark, PySpark must be
        installed.
        """
        if not self.is_spark:
            from duralog.cli.voice.compilation import announce_compilation

            announce_compilation(quiet=quiet)
        elif find_spec("pyspark") is None:
            raise MissingExtra("to work with Spark", "PySpark", extra="spark")

    @contextmanager
    def workers(self) -> Iterator[Workers]:
        from duralog.operations.workers import Threads

        if not self.is_spark:
            yield Threads(self.threads)
            return
        with on_spark(self.command, master=self.master, conf=self.conf) as spark:
            yield spark


def engine_given(
    ctx: typer.Context,
    *,
    only_threads: Sequence[str] = ("threads",),
    only_spark: Sequence[str] = (),
    with_both: Sequence[str] = (),
) -> Engine:
    """The engine of a command with the parameters `engine`, `master` and `conf`.

    A parameter of the other engine is wrong usage, except those of `with_both`.
    """
    given: dict[str, Any] = ctx.params
    name = given.get("engine", ON_SPARK)
    for parameter in only_threads if name == ON_SPARK else (*_SPARK_ONLY, *only_spark):
        source = None if parameter in with_both else ctx.get_parameter_source(parameter)
        if source is not None and source.name != "DEFAULT":
            option = next(each for each in ctx.command.params if each.name == parameter).opts[0]
            other = THREADS if name == ON_SPARK else ON_SPARK
            raise WrongUsage(f"{option} needs --engine {other}, not --engine {name}")
    return Engine(
        command=str(ctx.info_name),
        name=name,
        threads=given.get("threads", 2),
        master=given["master"],
        conf=given["conf"] or (),
    )


@contextmanager
def on_spark(name: str, *, master: str = DEFAULT_MASTER, conf: Sequence[str] = ()) -> Iterator[OnSpark]:
    """A session for one job, stopped at its end. A session that already runs in this process is reused, and not
    stopped.
    """
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
    """If Ctrl-C interrupts a call to Java, py4j raises the error and also logs it with its stack to the root logger."""

    def is_of_use(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith("while sending command.")

    root = logging.getLogger()
    root.addFilter(is_of_use)
    try:
        yield
    finally:
        root.removeFilter(is_of_use)


def _not_started(master: str, error: Exception) -> DuralogError:
    """Why Spark did not start: the message in the Java or Python stack trace that it raises."""
    lines = [line.strip() for line in str(getattr(error, "java_exception", error)).splitlines()]
    reason = next(filter(None, lines), type(error).__name__)
    if "JAVA_GATEWAY_EXITED" in reason:
        reason = "Java did not start. Install Java 17 or newer, put it on the PATH or set JAVA_HOME, and check --conf"
    elif "stopped SparkContext" in reason:
        reason = "the session ended before it began: check that a master runs at that address"
    return DuralogError(f"Spark cannot be started with --master {master}: {reason}")
