"""`duralog repair`: repairs a log directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.engine import DEFAULT_MASTER, THREADS, Conf, EngineChoice, Master, engine_given
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    Data,
    Directory,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoices,
)
from duralog.cli.voice.screen import Screen, screen
from duralog.cli.voice.tables import Table, fitting, plural, size_text
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duralog.cli.voice.output import Output
    from duralog.operations.repair import RepairRequest
    from duralog.operations.workers import Workers
    from duralog.reports.repair import RepairReport
    from duralog.storage.repair.folder_changes import Action
    from duralog.storage.repair.partition_repair import PartitionRepair

_ACTION = {"what": -12, "file": -36, "detail": -1}


def repair(
    ctx: typer.Context,
    directory: Directory = None,
    data: Data = None,
    dry_run: DryRun = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Also restore valid batches from quarantine.", rich_help_panel=HOW)
    ] = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the last two)
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Rebuild indexes and snapshots, quarantine damaged bytes.

    Sound partitions are not touched. Nothing is discarded: bytes that are removed from a log go to the folder
    duralog-quarantine in its partition, with a report. Valid batches after the damage stay, except in the last segment:
    there they are quarantined too, and --restore puts them back. No broker may have the directory open.

    Exit code: 0 everything is sound now, or would be; 1 something is still wrong; 2 wrong usage; 130 interrupted.
    """
    chosen = engine_given(ctx)
    given = chosen.directory(directory, data)
    with errors_shown(), names_checked(given, topic, partition, at_once=chosen.is_spark):
        chosen.announce(quiet=quiet)
        from duralog.operations.repair import RepairRequest

        path, choice = chosen.choice(given, topic, partition)
        request = RepairRequest(path=path, choice=choice, restore=restore, dry_run=dry_run)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            _run(request, workers, shown)


def _run(request: RepairRequest, workers: Workers, screen: Screen) -> None:
    """Ends the command with an exit code if something is still wrong."""
    from duralog.cli.voice.logs import say_nothing
    from duralog.operations.repair import repair

    say_nothing()  # The report has all that the store logs.
    output = screen.output

    def show(repaired: PartitionRepair) -> None:
        if output.as_json:
            output.object(repaired.to_dict())
        elif not repaired.is_sound:
            _write(repaired, output)

    result = repair(request, workers, on_progress=screen.bar.show, on_partition=show)
    if output.as_json:
        for action in result.actions:
            output.object(action.to_dict())
    else:
        _write_actions(result.actions, output)
    for error in result.left:
        output.finding(error)
    _summarise(result, output)
    if not result.is_well:
        raise typer.Exit(FAILURE)


def _write(repaired: PartitionRepair, output: Output) -> None:
    output.heading(f"{printable(str(repaired.partition))}: log ends at offset {repaired.end_offset}")
    _write_actions(repaired.actions, output)
    if repaired.failure is not None:
        output.line(f"! {printable(repaired.folder)}: cannot be repaired: {printable(repaired.failure)}")
    for error in repaired.left:
        output.finding(error)
    if repaired.restorable_batches:
        count = plural(repaired.restorable_batches, "batch")
        output.note(repaired.folder, f"{count} in quarantine can be restored: duralog repair --restore")


def _write_actions(actions: Sequence[Action], output: Output) -> None:
    if output.quiet:
        return
    rows = [[action.verb, printable(os.path.basename(action.file)), printable(action.detail)] for action in actions]
    columns = _ACTION if output.width is None else fitting(tuple(_ACTION), rows=rows)
    table = Table(output, columns, cut=("file", "detail"))
    for row in rows:
        table.row(row)


def _summarise(result: RepairReport, output: Output) -> None:
    repairs = result.repairs
    changed = [repaired for repaired in repairs if repaired.actions]
    quarantined = sum(action.bytes for repaired in changed for action in repaired.actions)
    left = len(result.left) + sum(len(repaired.left) + (repaired.failure is not None) for repaired in repairs)
    if output.as_json:
        output.object(
            {
                "kind": "summary",
                "dry_run": result.dry_run,
                "partitions": len(repairs),
                "repaired": len(changed),
                "quarantined_bytes": quarantined,
                "left": left,
            }
        )
        return
    sound = sum(repaired.is_sound for repaired in repairs)
    words = [
        f"{plural(len(changed), 'partition')} {'would be repaired' if result.dry_run else 'repaired'}",
        f"{sound:,} sound",
    ]
    if quarantined:
        words.append(f"{size_text(quarantined)} to quarantine")
    words.append(f"{plural(left, 'finding')} left" if left else "nothing left to do")
    output.heading(", ".join(words) + ("; nothing was changed" if result.dry_run else ""))
