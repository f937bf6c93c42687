"""`duralog cluster heal`: fill damaged and short copies with batches of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.cluster.cluster_command import Directories, MoreData, cluster_app, paths_given
from duralog.cli.voice.engine import (
    DEFAULT_MASTER,
    THREADS,
    Conf,
    EngineChoice,
    Master,
    StorageOptions,
    engine_given,
)
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ReadThreads,
    TopicChoices,
    named_values,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.tables import plural, size_text
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.operations.cluster.heal import HealedCopy, HealedPartition, HealReport

_MOST_LINES = 20
"""Of each kind, for a copy. JSON has all."""


@cluster_app.command()
def heal(
    ctx: typer.Context,
    directories: Directories = None,
    data: MoreData = None,
    dry_run: DryRun = False,
    truncate_acknowledged: Annotated[
        bool,
        typer.Option(
            "--truncate-acknowledged",
            help="Also quarantine acknowledged batches that only one copy has.",
            rich_help_panel=HOW,
        ),
    ] = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    storage_option: StorageOptions = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the next three)
    threads: ReadThreads = 2,  # noqa: ARG001
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Fill damaged and short copies with batches of the others.

    Missing batches come from the copy that counts, byte for byte, and damaged bytes go to quarantine. A diverged copy
    is truncated, as in Kafka. Sound copies are not touched. No broker may have the directories open; those in object
    stores are only read. If it is interrupted, run it again.

    Exit code: 0 all copies are sound now, or would be; 1 something is left; 2 wrong usage; 130 interrupted.
    """
    chosen = engine_given(ctx, with_both=("storage_option",))
    paths = paths_given(directories, data)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown():
        from duralog.cli.voice.logs import say_nothing

        chosen.announce(quiet=quiet)
        say_nothing()  # The report has all that is logged.
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.cluster.heal import HealRequest, heal_cluster

        request = HealRequest(
            paths=paths,
            choice=Choice(topic or None, partition),
            storage_options=storage_options,
            truncate_acknowledged=truncate_acknowledged,
            dry_run=dry_run,
        )
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            view = _Healed(shown.output)
            report = heal_cluster(request, workers, on_progress=shown.bar.show, on_partition=view.add)
            view.end(report)
        if not report.is_well:
            raise typer.Exit(FAILURE)


class _Healed:
    def __init__(self, output: Output) -> None:
        self._output = output

    def add(self, found: HealedPartition) -> None:
        output = self._output
        for copy in found.copies:
            if output.as_json:
                output.object(copy.to_dict())
            elif not output.quiet:
                self._copy(copy)
            if copy.failure is not None:
                output.damage(f"{copy.plan.location.url}: {found.partition}: not healed: {copy.failure}")
        for first, last in found.lost:
            if output.as_json:
                output.object(
                    {"kind": "lost", "partition": str(found.partition), "first_offset": first, "last_offset": last}
                )
            output.damage(
                f"{found.partition}: offsets {first} to {last}: lost: no copy has them without damage. A backup may:"
                " give its directories, too. Otherwise consumers skip them"
            )
        for problem in found.problems:
            if problem.kind.value in ("unreadable-copy", "replica-missing"):
                output.damage(str(problem))
            else:
                output.note(str(found.partition), problem.text)

    def _copy(self, copy: HealedCopy) -> None:
        output, plan = self._output, copy.plan
        node = "?" if plan.node_id is None else plan.node_id
        output.heading(printable(f"{copy.partition}, node {node}: {plan.location.url}"))
        self._lines([f"wrong       {printable(finding)}" for finding in plan.findings])
        if copy.set_aside is not None:
            self._lines([f"set aside   the folder, as {printable(copy.set_aside)}"])
        self._lines(
            [
                f"fill        offsets {part.first_offset} to {part.last_offset}, {plural(part.size_bytes, 'byte')} from"
                f" {printable(copy.sources[part.copy])}"
                for part in plan.filled
            ]
        )
        self._lines(
            [
                f"quarantine  {plural(gone.end - gone.start, 'byte')} of {gone.base_offset:020}.log from position"
                f" {gone.start} on: {printable(gone.reason)}"
                for gone in plan.dropped
            ]
        )

    def _lines(self, lines: list[str]) -> None:
        for line in lines[:_MOST_LINES]:
            self._output.line(line)
        if len(lines) > _MOST_LINES:
            self._output.line(f"            and {len(lines) - _MOST_LINES:,} more: --json shows all")

    def end(self, report: HealReport) -> None:
        output = self._output
        for problem in report.problems:
            if output.as_json:
                output.object(problem.to_dict())
            else:
                output.note(problem.directory, problem.text)
        if output.as_json:
            output.object(report.to_dict())
            return
        healed = report.healed
        words = [
            f"{_copies(len(healed))} {'would be healed' if report.dry_run else 'healed'}",
            f"{sum(each.sound for each in report.partitions):,} sound",
        ]
        filled = sum(copy.plan.filled_bytes for copy in healed)
        quarantined = sum(copy.plan.quarantined_bytes for copy in healed)
        if filled:
            words.append(f"{size_text(filled)} from other copies")
        if quarantined:
            words.append(f"{size_text(quarantined)} to quarantine")
        words.append(f"{plural(report.left, 'problem')} left" if report.left else "nothing left to do")
        output.heading(", ".join(words) + ("; nothing was changed" if report.dry_run else ""))


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count:,} copies"
