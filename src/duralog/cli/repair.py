"""`duralog repair`: bring a log directory in order. `storage.repair` does the work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from duralog.cli.common.failures import FAILURE, printable, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    Data,
    Directory,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoice,
    local_directory_given,
    standard_output,
)
from duralog.cli.common.tables import Table, fitting, plural, size_text
from duralog.cli.common.unknown_names import names_checked
from duralog.operations.lock_holder import lock_holder_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duralog.cli.common.output import Output
    from duralog.errors import CorruptRecord
    from duralog.storage.repair.folder_changes import Action
    from duralog.storage.repair.partition_repair import PartitionRepair
    from duralog.storage.repair.repair import Repair

_ACTION = {"what": -12, "file": -36, "detail": -1}


def repair(
    directory: Directory = None,
    data: Data = None,
    dry_run: DryRun = False,
    restore: Annotated[
        bool,
        typer.Option("--restore", help="Also put back what is valid in quarantine.", rich_help_panel=HOW),
    ] = False,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Rebuild indexes and snapshots, quarantine damaged bytes.

    Partitions that are sound are not touched. Nothing is thrown away: what is taken out of a log goes to the folder
    duralog-quarantine in its partition, with a report. Valid batches behind the damage stay, except in the last
    segment: there they go to quarantine too, and --restore puts them back. No broker may have the directory open.

    Exit code: 0 all is well now, or would be; 1 something is still wrong; 2 wrong usage; 130 interrupted.
    """
    given = local_directory_given(directory, data)
    with told_plainly(), names_checked(given, topic, partition):
        from duralog.cli.common.compilation import announce_compilation
        from duralog.cli.common.logs import say_nothing
        from duralog.cli.common.progress import Progress

        announce_compilation(quiet=quiet)
        say_nothing()
        from duralog.storage.disk.found_files import directory_of
        from duralog.storage.repair.repair import Repair

        path, chosen = directory_of(given)
        from duralog.operations.opened_store import check_log_directory

        check_log_directory(path)
        if chosen is not None:
            topic, partition = chosen.topic, chosen.partition
        output = standard_output(as_json=as_json, quiet=quiet)
        with lock_holder_named(path):
            work = Repair(path, topic=topic, partition=partition, restore=restore, dry_run=dry_run)
        try:
            with Progress(work.size_bytes, wanted=not (no_progress or quiet)) as progress:
                output.before_writing = progress.hide
                is_well = _run(work, output, progress)
        finally:
            output.flush()
        if not is_well:
            raise typer.Exit(FAILURE)


def _run(work: Repair, output: Output, progress: Any) -> bool:
    """Returns whether nothing is left to do."""
    read = 0

    def show(done: int, name: str) -> None:
        nonlocal read
        progress.begin(name)
        progress.advance(done - read)
        read = done

    repairs: list[PartitionRepair] = []
    for repaired in work.run(show):
        repairs.append(repaired)
        write_repair(output, repaired)
    write_end_of_repair(output, repairs, work)
    return not work.left and not any(repaired.left or repaired.failure for repaired in repairs)


class Repaired(Protocol):
    """What there is to tell of a directory beside its partitions."""

    @property
    def dry_run(self) -> bool: ...
    @property
    def actions(self) -> Sequence[Action]: ...
    @property
    def left(self) -> Sequence[CorruptRecord]: ...


def write_repair(output: Output, repaired: PartitionRepair) -> None:
    """What was done to one partition."""
    if output.as_json:
        output.object(repaired.to_dict())
    elif not repaired.is_sound:
        _write(repaired, output)


def write_end_of_repair(output: Output, repairs: Sequence[PartitionRepair], work: Repaired) -> None:
    """What was done to the directory itself, and the summary."""
    if output.as_json:
        for action in work.actions:
            output.object(action.to_dict())
    else:
        _write_actions(work.actions, output)
    for error in work.left:
        output.finding(error)
    _summarise(work, repairs, output)


def _write(repaired: PartitionRepair, output: Output) -> None:
    output.heading(f"{printable(str(repaired.partition))}: log ends at offset {repaired.end_offset}")
    _write_actions(repaired.actions, output)
    if repaired.failure is not None:
        output.line(f"! {printable(repaired.folder)}: cannot be repaired: {printable(repaired.failure)}")
    for error in repaired.left:
        output.finding(error)
    if repaired.restorable_batches:
        count = plural(repaired.restorable_batches, "batch")
        output.note(repaired.folder, f"{count} in quarantine can go back into the log: duralog repair --restore")


def _write_actions(actions: Sequence[Action], output: Output) -> None:
    if output.quiet:
        return
    rows = [[action.verb, printable(os.path.basename(action.file)), printable(action.detail)] for action in actions]
    columns = _ACTION if output.width is None else fitting(tuple(_ACTION), rows=rows)
    table = Table(output, columns, cut=("file", "detail"))
    for row in rows:
        table.row(row)


def _summarise(work: Repaired, repairs: Sequence[PartitionRepair], output: Output) -> None:
    changed = [repaired for repaired in repairs if repaired.actions]
    quarantined = sum(action.bytes for repaired in changed for action in repaired.actions)
    left = len(work.left) + sum(len(repaired.left) + (repaired.failure is not None) for repaired in repairs)
    if output.as_json:
        output.object(
            {
                "kind": "summary",
                "dry_run": work.dry_run,
                "partitions": len(repairs),
                "repaired": len(changed),
                "quarantined_bytes": quarantined,
                "left": left,
            }
        )
        return
    sound = sum(repaired.is_sound for repaired in repairs)
    words = [
        f"{plural(len(changed), 'partition')} {'would be repaired' if work.dry_run else 'repaired'}",
        f"{sound:,} sound",
    ]
    if quarantined:
        words.append(f"{size_text(quarantined)} to quarantine")
    words.append(f"{plural(left, 'finding')} left" if left else "nothing left to do")
    output.heading(", ".join(words) + ("; nothing was changed" if work.dry_run else ""))
