"""`duralog compact`: compact a log directory that no broker has open, or explain what compaction would do to it.

This module is the command line; `compact_run` compacts and `compact_explain` explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.common.failures import FAILURE, WrongUsage, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    ConfigOverrides,
    Data,
    Directory,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoice,
    config_settings,
    local_directory_given,
    now_ms,
    parsed,
    parsed_time,
    standard_output,
)
from duralog.cli.common.unknown_names import names_checked
from duralog.config.byte_sizes import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duralog.cli.common.output import Output
    from duralog.config import TopicConfig
    from duralog.storage.store import Store

_SMALLEST_MAP_BYTES = 1024


def compact(
    directory: Directory = None,
    data: Data = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", "-e", help="Only tell what would happen, and why not.", rich_help_panel=HOW),
    ] = False,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    config: ConfigOverrides = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="As if nothing had been compacted: old tombstones go.", rich_help_panel=HOW),
    ] = False,
    roll: Annotated[
        bool,
        typer.Option("--roll", help="Begin new segments first: the active one is compacted, too.", rich_help_panel=HOW),
    ] = False,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=1, max=64, help="Compact each log with so many threads.", rich_help_panel=HOW
        ),
    ] = 2,
    map_bytes: Annotated[
        str | None,
        typer.Option(
            "--map-bytes",
            metavar="SIZE",
            help="Memory for the map of keys; without it, log.cleaner.dedupe.buffer.size.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    records: Annotated[
        int,
        typer.Option(
            "--records", "-r", metavar="N", min=0, help="With --explain: list so many that go.", rich_help_panel=HOW
        ),
    ] = 0,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="With --explain: as if it were that time.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Compact compacted topics, or explain why it does not happen.

    Of each key, only the last record stays. It does what Kafka's cleaner does, however little is new, and takes up
    where that stopped. With --explain nothing is changed and the directory may be in use; without it, no broker may
    have it open.

    Exit code: 0 done, 1 a partition could not be compacted or read, or is damaged, 2 wrong usage, 130 interrupted.
    """
    given = local_directory_given(directory, data)
    overrides = config_settings(config)
    memory_bytes = None if map_bytes is None else parsed("--map-bytes", parse_bytes, map_bytes)
    if memory_bytes is not None and memory_bytes < _SMALLEST_MAP_BYTES:
        raise WrongUsage(f"--map-bytes: a map has at least {_SMALLEST_MAP_BYTES} bytes")
    if explain and roll:
        raise WrongUsage("--roll changes the directory, --explain does not: give one of them")
    if not explain and (records or now is not None):
        raise WrongUsage("--records and --now go with --explain")
    at_ms = parsed_time("--now", now)
    with told_plainly(), names_checked(given, topic, partition):
        from duralog.cli.common.compilation import announce_compilation
        from duralog.cli.common.logs import say_warnings

        announce_compilation(quiet=quiet)
        say_warnings(wanted=not quiet)
        from duralog.cli.common.chosen_partition import is_any_unknown
        from duralog.cli.common.opened_store import opened_store, tasks_at_once
        from duralog.cli.compact.explain import explain_all
        from duralog.cli.compact.run import compact_all
        from duralog.cli.compact.view import CompactionView
        from duralog.storage.disk.found_files import directory_of

        path, chosen = directory_of(given)
        if chosen is not None:
            topic, partition = chosen.topic, chosen.partition
        if overrides and topic is None:
            raise WrongUsage("--config is of one topic: give --topic")
        output = standard_output(as_json=as_json, quiet=quiet)
        tasks = tasks_at_once()
        with opened_store(
            path, read_only=explain, server_properties=server_properties, quiet=quiet, scheduler=tasks
        ) as store:
            found = _compacted(store, topic, partition, overrides, output)
            is_shown = not (no_progress or quiet)
            with CompactionView(len(found), is_rehearsal=explain, wanted=is_shown) as view:
                output.before_writing = view.hide
                try:
                    if explain:
                        at_ms = now_ms() if at_ms is None else at_ms
                        is_well = explain_all(
                            store,
                            found,
                            output,
                            view,
                            now_ms=at_ms,
                            memory_bytes=memory_bytes,
                            again=again,
                            records=records,
                        )
                    else:
                        is_well = compact_all(
                            store,
                            found,
                            output,
                            view,
                            tasks,
                            roll=roll,
                            again=again,
                            threads=threads,
                            memory_bytes=memory_bytes,
                        )
                finally:
                    output.flush()
            is_well = is_well and not is_any_unknown(store, topic, partition)
        if not is_well:
            raise typer.Exit(FAILURE)


def _compacted(
    store: Store, topic: str | None, partition: int | None, overrides: Mapping[str, object], output: Output
) -> Sequence[tuple[str, int, TopicConfig]]:
    """The chosen partitions that are compacted, and the configs that hold for each."""
    from duralog.cli.common.chosen_partition import choose_partitions
    from duralog.errors import InvalidConfig
    from duralog.storage.log.retention import COMPACT

    chosen = [
        (name, number, store.topic_config(name).with_overrides(overrides))
        for name, number in choose_partitions(store, topic, partition)
    ]
    found = [(name, number, config) for name, number, config in chosen if COMPACT in config.cleanup_policy]
    if topic is not None and chosen and not found:
        policy = chosen[0][2].text("cleanup.policy") or "empty"
        raise InvalidConfig(
            f"{topic} is not compacted, its cleanup.policy is {policy}: --config cleanup.policy=compact treats it as if"
            " it were, for this run. Records without a key are removed then: look with --explain first"
        )
    if not chosen:
        output.note(store.path, "there is no partition in it")
    elif not found:
        output.note(
            store.path,
            f"no partition of its {len(chosen)} is of a compacted topic; to treat a topic as one, give --topic and"
            " --config cleanup.policy=compact",
        )
    return found
