"""`duralog retain`: which segments expire, and why; delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from duralog.cli.applied_retention import AppliedRetention, applied_retentions, write_applied
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
    ServerProperties,
    TopicChoices,
)
from duralog.cli.voice.screen import Screen, screen
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.error_text import printable
from duralog.config.times import duration_text, now_ms
from duralog.errors import DuralogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from duralog.cli.voice.output import Output
    from duralog.config import TopicConfig
    from duralog.operations.retain import RetainRequest
    from duralog.operations.workers import Workers
    from duralog.storage.log.retention import Removal

_NAMES = ("partition", "base_offset", "end_offset", "bytes", "policy", "why")
_RIGHT = ("base_offset", "end_offset", "bytes")
_CUT = {"partition": 12, "why": 40}
_POLICIES = {"BelowLogStart": "log start offset", "BeyondSize": "retention.bytes", "BeyondAge": "retention.ms"}
_LIMITS = ("retention.ms", "retention.bytes")


def retain(
    ctx: typer.Context,
    directory: Directory = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    retention_ms: Annotated[
        int | None,
        typer.Option(
            "--retention-ms",
            metavar="MS",
            min=-1,
            help="As if this were the topics' retention.ms.",
            rich_help_panel=HOW,
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option(
            "--retention-bytes",
            metavar="N",
            min=-1,
            help="As if this were the topics' retention.bytes.",
            rich_help_panel=HOW,
        ),
    ] = None,
    server_properties: ServerProperties = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the last two)
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Delete expired segments.

    By time, by size and by log start offset, as Kafka does. Topics without delete in their cleanup.policy only lose
    segments below their log start offset; the two overrides do not change that. They apply to this run only. Topics
    that set no retention have that of --server-properties, or Kafka's default of 7 days; the output names the retention
    of each topic and where it came from. Without --dry-run, no broker may have the directory open.

    Exit code: 0 done, 1 something could not be read or deleted, 2 wrong usage, 130 interrupted.
    """
    chosen = engine_given(ctx)
    path = chosen.directory(directory, data)
    with errors_shown(), names_checked(path, topic, partition, at_once=chosen.is_spark):
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import broker_config, check_no_partition
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.retain import RetainRequest

        say_warnings(wanted=not quiet, reports_offline=True)
        if not chosen.is_spark:
            check_no_partition(path)
        request = RetainRequest(
            path=path,
            now_ms=now_ms(),
            choice=Choice(topic or None, partition),
            overrides=_overrides(retention_ms, retention_bytes),
            config=broker_config(server_properties),
            dry_run=dry_run,
        )
        unknown = _unknown_retention(request)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            _run(request, workers, shown, unknown=unknown, are_defaults_kafkas=server_properties is None)


def _overrides(retention_ms: int | None, retention_bytes: int | None) -> dict[str, int]:
    limits = (("retention.ms", retention_ms), ("retention.bytes", retention_bytes))
    return {name: value for name, value in limits if value is not None}


def _unknown_retention(request: RetainRequest) -> str | None:
    """The warning of a dry run on a directory without the configs of its topics. Without a dry run, it is refused."""
    from duralog.operations.retain import RetentionUnknown, check_retention_known
    from duralog.storage.metadata.folder import METADATA_PARTITION

    try:
        check_retention_known(request)
    except RetentionUnknown:
        warning = (
            f"there is no {METADATA_PARTITION} in here, so the retention configs of its topics are not known, and "
            f"the wrong segments could be deleted: give --retention-ms or --retention-bytes for this run. A broker"
            " with several log.dirs has it in one of them"
        )
        if not request.dry_run:
            raise DuralogError(f"{request.path}: {warning}") from None
        return warning
    return None


def _run(
    request: RetainRequest, workers: Workers, screen: Screen, *, unknown: str | None, are_defaults_kafkas: bool
) -> None:
    """Ends the command with an exit code if something could not be read or deleted.

    `unknown` is the warning of `_unknown_retention`. With `are_defaults_kafkas`, no `server.properties` was given.
    """
    from duralog.operations.retain import retain

    result = retain(request, workers, on_progress=screen.bar.show)
    output = screen.output
    for partition, failure in result.failures.items():
        screen.say_error(partition, failure)
    if unknown is not None:
        output.note(request.path, unknown)
    elif are_defaults_kafkas:
        _note_defaults(output, request.path, result.configs.values())
    configs = {partition.topic: config for partition, config in result.configs.items()}
    applied = applied_retentions(configs, request.overrides)
    _write_removals(output, result.removals, applied, partitions=len(result.configs), dry_run=request.dry_run)
    if not result.is_well:
        raise typer.Exit(FAILURE)


def _note_defaults(output: Output, directory: str, configs: Iterable[TopicConfig]) -> None:
    """If a topic has no retention of its own, and Kafka's default was applied."""
    from duralog.config import Origin

    for config in configs:
        is_default = all(config.source(name).origin is Origin.DEFAULT for name in _LIMITS)
        if "delete" in config.cleanup_policy and is_default:
            output.note(
                directory, "without --server-properties, topics that set no retention have Kafka's default of 7 days"
            )
            return


def _write_removals(
    output: Output,
    removals: Sequence[Removal],
    applied: Sequence[AppliedRetention],
    *,
    partitions: int,
    dry_run: bool,
) -> None:
    """The segments that were or would be deleted, which retention was applied, and the summary."""
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
    verb = ("would be deleted" if dry_run else "deleted") if removals else "expires" if dry_run else "has expired"
    touched = len({(removal.topic, removal.partition) for removal in removals})
    what = f"{plural(len(removals), 'segment')} of {plural(touched, 'partition')}" if removals else "no segment"
    output.heading(
        f"{what} {verb}, {size_text(freed)} {'would be ' if dry_run else ''}freed; "
        f"{plural(partitions, 'partition')} checked"
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
