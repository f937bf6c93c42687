"""`duralog consume`: the records of a topic, from a directory or through a broker.

This module is the command line; `consumed_store` and `client.consuming` read, `shown_records` shows.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from duralog.cli.voice.completions import topic_names
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.option_values import parse_start
from duralog.cli.voice.options import (
    HOW,
    WHICH,
    AsJson,
    NoProgress,
    PartitionChoice,
    Quiet,
    as_text,
    check_text,
    parsed,
    parsed_time,
    standard_output,
)
from duralog.cli.voice.payload_options import (
    KeyFormat,
    KeySchema,
    SchemaRegistry,
    SchemaRegistryConfig,
    ValueFormat,
    ValueSchema,
    decode_given,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.cli.voice.unknown_names import names_checked
from duralog.client.consuming import PATTERN
from duralog.errors import arrow_needed
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from duralog.cli.records.record_format import RecordFormat
    from duralog.cli.records.shown_records import Style
    from duralog.filters.conditions import Condition
    from duralog.format.record import Record
    from duralog.operations.records.decoded import RecordDecoder
    from duralog.schemas.decode_options import Decode


class ConsumeCommand(TyperCommand):
    """`-f` is `--follow`, as in tail; before a word with a percent sign it is `--format`, as in kcat."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words: list[str] = []
        for place, word in enumerate(args):
            if word == "-f" and "%" in "".join(args[place + 1 : place + 2]):
                words.append("--format")
            elif word.startswith("-f") and "%" in word:
                words += ["--format", word[2:]]
            else:
                words.append(word)
        return super().parse_args(ctx, words)


def consume(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="The topic, or a pattern such as 'pay*'; may be given again.",
            rich_help_panel=WHICH,
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    partition: PartitionChoice = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N",
            help="From this offset on. -N is N before the end of each partition; also beginning and end.",
            rich_help_panel=WHICH,
        ),
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
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="TEXT",
            help="Only records that match: '$.customer.id = 7 and key = user-17'.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Skip aborted and open transactions.", rich_help_panel=WHICH)
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Wait for more records at the end, until Ctrl-C.", rich_help_panel=HOW),
    ] = False,
    record_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="Write each record as kcat -f does: '%t %p %o %k %s\\n'. -f TEXT is the same if there is a % in it.",
            rich_help_panel=HOW,
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Only the raw values, one per line.", rich_help_panel=HOW)
    ] = False,
    value_format: ValueFormat = None,
    key_format: KeyFormat = None,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_config: SchemaRegistryConfig = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Show the records of topics, up to their end or continuously.

    Starts at the beginning without --offset, --time, --tail or --group. A line has partition, offset, time, key, value
    and headers. In --format, %t is the topic, %p the partition, %o the offset, %k the key, %s the value, %T the
    timestamp, %h the headers, %K and %S the sizes of key and value, %R that of the value as four bytes.

    Decoded keys and values are shown as JSON; with --json, with the schema's name. Payloads that do not decode are
    shown as bytes, with the reason.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    if sum(given is not None for given in (offset, time, tail, group)) > 1:
        raise WrongUsage("give one of --offset, --time, --tail and --group")
    if sum((as_json, values, record_format is not None)) > 1:
        raise WrongUsage("give one of --values, --json and --format")
    if group is not None and (partition is not None or not is_broker(place)):
        raise WrongUsage(
            "--group: a broker assigns the partitions of a group: give HOST:PORT, and leave out --partition"
        )
    if group is not None and where is not None:
        raise WrongUsage("--where: a group would also commit records that do not match: leave out --group")
    timestamp_ms = parsed_time("--time", time)
    for name in topic:
        check_text("--topic", name)
    at, before_end = (None, tail) if offset is None else parsed("--offset", parse_start, offset)
    condition = None if where is None else _condition(where)
    style = _style(as_json=as_json, values=values, record_format=record_format)
    decode = decode_given(value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config)
    with errors_shown(), names_checked(place, [name for name in topic if not set(name) & PATTERN], partition):
        from duralog.cli.records.shown_records import ShownRecords
        from duralog.cli.voice.failures import say
        from duralog.cli.voice.progress import CountingBar
        from duralog.cli.voice.tables import plural
        from duralog.client.consuming import ConsumeRequest

        request = ConsumeRequest(
            topics=topic,
            partition=partition,
            offset=at,
            timestamp_ms=timestamp_ms,
            tail=before_end,
            group=group,
            committed=committed,
            follow=follow,
        )
        output = standard_output(as_json=as_json, quiet=quiet)
        shown = ShownRecords(output, style, None if decode is None else _decoder(place, decode, quiet=quiet))
        if limit != 0:
            if is_broker(place):
                from duralog.client.consuming import from_broker as records
            else:
                from duralog.cli.records.consumed_store import from_store as records
            # Records on the terminal are progress enough, and --follow has no end.
            is_shown = not (no_progress or quiet or follow or sys.stdout.isatty())
            with (
                CountingBar(limit if condition is None else None, unit="record", wanted=is_shown) as progress,
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

                def read(placed: tuple[str, int, Record]) -> None:
                    progress.begin(f"{placed[0]}-{placed[1]}")
                    progress.advance(1)

                for placed in _matching(found, condition, is_live=follow, on_read=read):
                    shown.show(*placed)
                    if shown.count == limit:
                        break
        output.flush()
        if not quiet and not (as_json or values or record_format):
            say(plural(shown.count, "record"))


def _decoder(place: str, decode: Decode, *, quiet: bool) -> RecordDecoder:
    from duralog.cli.records.decoded import decoder_for
    from duralog.cli.voice.failures import say

    return decoder_for(place, decode, (lambda _: None) if quiet else say)


def _condition(text: str) -> Condition:
    with arrow_needed():
        from duralog.filters.conditions import FilterError
        from duralog.filters.parsing import parse

        try:
            return parse(text)
        except FilterError as error:
            raise WrongUsage(f"--where: {error}\n{error.pointed()}") from None


def _matching(
    found: Iterable[tuple[str, int, Record]],
    condition: Condition | None,
    *,
    is_live: bool,
    on_read: Callable[[tuple[str, int, Record]], None],
) -> Iterator[tuple[str, int, Record]]:
    if condition is not None:
        with arrow_needed():
            from duralog.filters.record_stream import matching
        yield from matching(found, condition, is_live=is_live, on_read=on_read)
        return
    for placed in found:
        on_read(placed)
        yield placed


def _style(*, as_json: bool, values: bool, record_format: str | None) -> Style | RecordFormat:
    from duralog.cli.records.record_format import RecordFormat
    from duralog.cli.records.shown_records import Style

    if record_format is not None:
        return parsed("--format", RecordFormat, record_format)
    return Style.JSON if as_json else Style.VALUES if values else Style.LINES
