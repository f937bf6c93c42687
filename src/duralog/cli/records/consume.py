"""`duralog consume`: the records of a topic, from a directory or through a broker.

This module is the command line; `consumed_store` and `client.consuming` read, `shown_records` shows.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from duralog.cli.voice.addresses import is_broker
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    WHICH,
    AsJson,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicName,
    as_text,
    parsed_time,
    standard_output,
)
from duralog.cli.voice.target import Target, TargetData, target_given
from duralog.cli.voice.unknown_names import names_checked


def consume(
    target: Target = None,
    data: TargetData = None,
    *,
    topic: TopicName,
    partition: PartitionChoice = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", "-o", min=0, metavar="N", help="From this offset on.", rich_help_panel=WHICH),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="From this time on: ISO 8601 (UTC), epoch ms, or an age like 2h.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", min=0, metavar="N", help="From N offsets before the end of each partition.", rich_help_panel=WHICH
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, metavar="N", help="Stop after N records.", rich_help_panel=WHICH),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="Join this consumer group and commit its offsets (broker only).",
            rich_help_panel=WHICH,
            callback=as_text,
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Skip aborted and open transactions.", rich_help_panel=WHICH)
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Wait for more records at the end, until Ctrl-C.", rich_help_panel=HOW),
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", help="Only the values, as they are, one a line.", rich_help_panel=HOW)
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Show the records of a topic, to its end or continuously.

    Starts at the beginning without --offset, --time, --tail or --group. A line has partition, offset, time, key, value
    and headers.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data)
    if sum(given is not None for given in (offset, time, tail, group)) > 1:
        raise WrongUsage("give one of --offset, --time, --tail and --group")
    if as_json and values:
        raise WrongUsage("--values and --json: give one of them")
    if group is not None and (partition is not None or not is_broker(place)):
        raise WrongUsage("--group: a broker gives the group its partitions: give HOST:PORT and no --partition")
    timestamp_ms = parsed_time("--time", time)
    with errors_shown(), names_checked(place, topic, partition):
        from duralog.cli.records.shown_records import ShownRecords, Style
        from duralog.cli.voice.failures import say
        from duralog.cli.voice.progress import CountingBar
        from duralog.cli.voice.tables import plural
        from duralog.client.consuming import ConsumeRequest

        request = ConsumeRequest(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            tail=tail,
            group=group,
            committed=committed,
            follow=follow,
        )
        output = standard_output(as_json=as_json, quiet=quiet)
        shown = ShownRecords(output, Style.JSON if as_json else Style.VALUES if values else Style.LINES)
        if limit != 0:
            if is_broker(place):
                from duralog.client.consuming import from_broker as records
            else:
                from duralog.cli.records.consumed_store import from_store as records
            # Records on the terminal are progress enough, and --follow has no end.
            is_shown = not (no_progress or quiet or follow or sys.stdout.isatty())
            with (
                CountingBar(limit, unit="record", wanted=is_shown) as progress,
                closing(
                    records(
                        place,
                        request,
                        before_waiting=output.flush,
                        on_total=progress.expect,
                        say_note=(lambda _: None) if quiet else say,
                    )
                ) as found,
            ):
                output.before_writing = progress.hide
                for topic_name, number, record in found:
                    shown.show(topic_name, number, record)
                    progress.begin(f"{topic_name}-{number}")
                    progress.advance(1)
                    if shown.count == limit:
                        break
        output.flush()
        if not quiet and not as_json and not values:
            say(plural(shown.count, "record"))
