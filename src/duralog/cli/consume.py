"""`duralog consume`: the records of a topic, from a directory or through a broker.

This module is the command line; `consumed_store` and `consumed_broker` read, `shown_records` shows.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from duralog.cli.failures import told_plainly
from duralog.cli.options import HOW, WHICH, AsJson, PartitionChoice, Quiet, parsed_time, standard_output
from duralog.cli.target import Target, is_broker

TopicName = Annotated[
    str, typer.Option("--topic", "-t", metavar="NAME", help="The topic.", rich_help_panel=WHICH, show_default=False)
]


def consume(
    target: Target,
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
            min=0, metavar="N", help="From N offsets before the end of each partition.", rich_help_panel=WHICH
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, metavar="N", help="Stop after N records.", rich_help_panel=WHICH),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="As a member of this consumer group, from where it stopped, committing as it goes (broker only).",
            rich_help_panel=WHICH,
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Without what was aborted or is undecided.", rich_help_panel=WHICH)
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.", rich_help_panel=HOW)
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", help="Only the values, as they are, one a line.", rich_help_panel=HOW)
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the records of a topic: to its end, or on and on with --follow.

    Without --offset, --time, --tail or --group from the beginning. A line has partition, offset, time, key, value and
    headers.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    if sum(given is not None for given in (offset, time, tail, group)) > 1:
        raise typer.BadParameter("give one of --offset, --time, --tail and --group")
    if as_json and values:
        raise typer.BadParameter("--values and --json: give one of them")
    if group is not None and (partition is not None or not is_broker(target)):
        raise typer.BadParameter("--group: a broker gives the group its partitions: give HOST:PORT and no --partition")
    timestamp_ms = parsed_time("--time", time)
    with told_plainly():
        from duralog.cli.consume_request import ConsumeRequest
        from duralog.cli.failures import say
        from duralog.cli.shown_records import ShownRecords, Style
        from duralog.cli.tables import plural

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
            if is_broker(target):
                from duralog.cli.consumed_broker import from_broker as records
            else:
                from duralog.cli.consumed_store import from_store as records
            with closing(records(target, request, before_waiting=output.flush)) as found:
                for item in found:
                    shown.show(*item)
                    if shown.count == limit:
                        break
        output.flush()
        if not quiet and not as_json and not values:
            say(plural(shown.count, "record"))
