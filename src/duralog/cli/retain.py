"""`duralog retain`: which segments expire, and why; delete them. The policies are `storage.retention`'s."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duralog.cli.applied_retention import AppliedRetention, applied_retentions, write_applied
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
    ServerProperties,
    TopicChoice,
    local_directory_given,
    now_ms,
    standard_output,
)
from duralog.cli.common.tables import plural, size_text, write_table
from duralog.cli.common.times import duration_text
from duralog.cli.common.unknown_names import names_checked, topics_in
from duralog.errors import DuralogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from duralog.cli.common.output import Output
    from duralog.config import TopicConfig
    from duralog.storage.log.partition_log import PartitionLog
    from duralog.storage.log.retention import Removal
    from duralog.storage.store import Store

_NAMES = ("partition", "base_offset", "end_offset", "bytes", "policy", "why")
_RIGHT = ("base_offset", "end_offset", "bytes")
_CUT = {"partition": 12, "why": 40}
_POLICIES = {"BelowLogStart": "log start offset", "BeyondSize": "retention.bytes", "BeyondAge": "retention.ms"}
_LIMITS = ("retention.ms", "retention.bytes")

RetentionMs = Annotated[
    int | None,
    typer.Option(
        "--retention-ms",
        metavar="MS",
        min=-1,
        help="As if this were the topics' retention.ms.",
        rich_help_panel=HOW,
    ),
]
RetentionBytes = Annotated[
    int | None,
    typer.Option(
        "--retention-bytes",
        metavar="N",
        min=-1,
        help="As if this were the topics' retention.bytes.",
        rich_help_panel=HOW,
    ),
]


def retain(
    directory: Directory = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    retention_ms: RetentionMs = None,
    retention_bytes: RetentionBytes = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Delete the segments that have expired.

    By time, by size and by log start offset, as Kafka does. Topics without delete in their cleanup.policy only lose
    what lies below their log start offset; the two overrides do not change that. They
    hold for this run only. Topics that set no retention have Kafka's default of 7 days, or what --server-properties
    says; the output names the retention of each topic and where it came from. Without --dry-run, no broker may have
    the directory open.

    Exit code: 0 done, 1 something could not be read or deleted, 2 wrong usage, 130 interrupted.
    """
    path = local_directory_given(directory, data)
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.common.logs import say_warnings
        from duralog.cli.common.opened_store import opened_store

        say_warnings(wanted=not quiet)
        overrides = {
            name: value
            for name, value in (("retention.ms", retention_ms), ("retention.bytes", retention_bytes))
            if value is not None
        }
        output = standard_output(as_json=as_json, quiet=quiet)
        unknown = None if overrides else unknown_configs(path)
        if unknown is not None and not dry_run:
            raise DuralogError(f"{path}: {unknown}")
        with opened_store(path, read_only=dry_run, server_properties=server_properties, quiet=quiet) as store:
            is_shown = not (no_progress or quiet)
            removals, is_failed, looked_at = _retain(
                store, topic, partition, overrides, delete=not dry_run, is_shown=is_shown
            )
        if unknown is not None:
            output.note(path, unknown)
        elif server_properties is None:
            note_defaults(output, path, [log.config for log in looked_at])
        applied = applied_retentions({log.topic: log.config for log in looked_at}, overrides)
        write_removals(output, removals, applied, partitions=len(looked_at), dry_run=dry_run)
        output.flush()
        if is_failed:
            raise typer.Exit(FAILURE)


def unknown_configs(path: str) -> str | None:
    """What to say where the topics' own configs are not: by Kafka's defaults, what was to be kept for ever would go."""
    from duralog.storage.metadata.folder import METADATA_PARTITION

    if not topics_in(path) or os.path.isdir(os.path.join(path, str(METADATA_PARTITION))):
        return None
    return (
        f"there is no {METADATA_PARTITION} in here, so what its topics have set for retention is not known, and"
        " segments could go that must stay: give --retention-ms or --retention-bytes for this run. A broker with"
        " several log.dirs has it in one of them"
    )


def _retain(
    store: Store,
    topic: str | None,
    partition: int | None,
    overrides: dict[str, int],
    *,
    delete: bool,
    is_shown: bool,
) -> tuple[list[Removal], bool, list[PartitionLog]]:
    """What goes, or went; whether something failed; those that were looked at."""
    from duralog.cli.common.failures import describe, say
    from duralog.cli.common.progress import Progress
    from duralog.operations.chosen_partition import Choice
    from duralog.storage.log.log_retention import retain as retain_log
    from duralog.storage.log.retention import BUILT_IN_POLICIES

    removals: list[Removal] = []
    is_failed = False
    looked_at: list[PartitionLog] = []
    choice = Choice(None if topic is None else [topic], partition)
    chosen = list(choice.partitions(store))
    with Progress(len(chosen), unit="partition", wanted=is_shown) as progress:
        for name, number in chosen:
            progress.begin(f"{name}-{number}")
            try:
                log = store.partition(name, number)
                log.update_config(log.config.with_overrides({**overrides, "file.delete.delay.ms": 0}))
                looked_at.append(log)
                removals += retain_log(log, BUILT_IN_POLICIES, now_ms(), delete=delete)
            except DuralogError as error:
                is_failed = True
                progress.hide()
                say(f"error: {name}-{number}: {describe(error)}")
            progress.advance(1)
    return removals, is_failed or choice.has_lost_topics(store), looked_at


def note_defaults(output: Output, directory: str, configs: Iterable[TopicConfig]) -> None:
    """Say so if a limit that nobody has set decided about a topic."""
    from duralog.config import Origin

    for config in configs:
        is_default = all(config.source(name).origin is Origin.DEFAULT for name in _LIMITS)
        if "delete" in config.cleanup_policy and is_default:
            output.note(
                directory, "without --server-properties, topics that set no retention have Kafka's default of 7 days"
            )
            return


def write_removals(
    output: Output,
    removals: Sequence[Removal],
    applied: Sequence[AppliedRetention],
    *,
    partitions: int,
    dry_run: bool,
) -> None:
    """The segments that went or would go, which retention was applied, and the summary."""
    freed = sum(removal.size_bytes for removal in removals)
    if output.as_json:
        write_applied(output, applied, ())
        for removal in removals:
            output.object(_object(removal))
        output.object(
            {
                "kind": "summary",
                "dry_run": dry_run,
                "partitions": partitions,
                "segments": len(removals),
                "bytes": freed,
            }
        )
        return
    if removals and not output.quiet:
        rows = [_cells(removal) for removal in removals]
        write_table(output, _NAMES, rows, right=_RIGHT, cut=_CUT, least=("policy", "end_offset"))
    write_applied(output, applied, {removal.topic for removal in removals})
    verb = ("would go" if dry_run else "went") if removals else "expires" if dry_run else "has expired"
    touched = len({(removal.topic, removal.partition) for removal in removals})
    what = f"{plural(len(removals), 'segment')} of {plural(touched, 'partition')}" if removals else "no segment"
    output.heading(
        f"{what} {verb}, {size_text(freed)} {'would be ' if dry_run else ''}freed; "
        f"{plural(partitions, 'partition')} looked at"
    )


def _cells(removal: Removal) -> list[str]:
    return [
        printable(f"{removal.topic}-{removal.partition}"),
        str(removal.base_offset),
        str(removal.end_offset),
        f"{removal.size_bytes:,}",
        _POLICIES.get(removal.policy, removal.policy),
        _reason(removal),
    ]


def _reason(removal: Removal) -> str:
    if removal.expiry is None:
        return removal.reason
    age_ms, retention_ms = removal.expiry
    return f"its newest record is {duration_text(age_ms)} old, retention.ms is {duration_text(retention_ms)}"


def _object(removal: Removal) -> dict[str, Any]:
    return {
        "kind": "segment",
        "topic": removal.topic,
        "partition": removal.partition,
        "base_offset": removal.base_offset,
        "end_offset": removal.end_offset,
        "bytes": removal.size_bytes,
        "policy": _POLICIES.get(removal.policy, removal.policy),
        "reason": removal.reason,
    }
