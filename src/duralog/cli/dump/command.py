"""`duralog dump`: shows the contents of log files. This module is the command line; `run` does the work."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from duralog.cli.dump.request import DumpRequest, Mode, Quota
from duralog.cli.voice.failures import FAILURE, WrongUsage, errors_shown
from duralog.cli.voice.option_values import ALL_OFFSETS, parse_offsets
from duralog.cli.voice.options import (
    HOW,
    WHAT,
    WHICH,
    AsJson,
    Data,
    IndexInterval,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoice,
    index_interval_bytes,
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
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.byte_sizes import parse_bytes
from duralog.config.key_text import parse_hex, parse_key
from duralog.operations.addresses import is_broker

EXPORT_EXTENSIONS = (".parquet", ".arrow", ".feather", ".csv")
"""Those of `columnar.export`, which takes too long to import for a check of the command line."""


def dump(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Log directories, partition folders such as orders-0, or files.", show_default=False
        ),
    ] = None,
    data: Data = None,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show each record with its key and value.", rich_help_panel=WHAT)
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", "-s", help="Only count and check.", rich_help_panel=WHAT)
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check indexes against their log, and all checksums.", rich_help_panel=WHAT),
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FILE", help="Write records to a .parquet, .arrow or .csv file.", rich_help_panel=WHAT
        ),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets",
            metavar="A:B",
            help="Offsets from A up to, not including, B. Both are optional.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="From this time on: ISO 8601 (UTC), epoch ms, or an age like 2h.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Before this time.", rich_help_panel=WHICH)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            metavar="TEXT",
            help="Records with exactly this key; 0x... gives its bytes.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    key_hex: Annotated[
        str | None, typer.Option("--key-hex", metavar="HEX", help="The same, in hexadecimal.", rich_help_panel=WHICH)
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="Stop after N batches, records or entries.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Do not decode the records of Kafka's internal topics.", rich_help_panel=HOW)
    ] = False,
    max_decompressed_bytes: Annotated[
        str,
        typer.Option(
            "--max-decompressed-bytes",
            metavar="SIZE",
            help="Refuse batches that unpack to more.",
            rich_help_panel=HOW,
        ),
    ] = "1g",
    max_field_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-field-bytes",
            metavar="SIZE",
            help="Cut keys and values in lines of text to this size.",
            rich_help_panel=HOW,
        ),
    ] = None,
    index_interval: IndexInterval = None,
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
    """Show the contents of logs, indexes, snapshots, checkpoints.

    Without options: a line for each batch, and every entry of the other files. Nothing is changed.

    With --value-format, records are shown decoded, with the name of the schema; what does not decode is shown in hex,
    with the reason. Schemas come from the topic _schemas of the directory around the files.

    Exit code: 0 all is well, 1 something is corrupt or cannot be read, 2 wrong usage, 130 interrupted.
    """
    places = _places(paths, data)
    decode = decode_given(value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config)
    are_records = records or key is not None or key_hex is not None or decode is not None
    request = DumpRequest(
        mode=_mode(records=are_records, summary=summary, verify=verify, to=to),
        quota=Quota(limit),
        offsets=ALL_OFFSETS if offsets is None else parsed("--offsets", parse_offsets, offsets),
        since_ms=parsed_time("--since", since),
        until_ms=parsed_time("--until", until),
        key=_key(key, key_hex),
        raw=raw,
        max_decompressed_bytes=parsed("--max-decompressed-bytes", parse_bytes, max_decompressed_bytes),
        max_field_bytes=None if max_field_bytes is None else parsed("--max-field-bytes", parse_bytes, max_field_bytes),
        index_interval_bytes=index_interval_bytes(index_interval),
        to=to,
        topic=topic,
        partition=partition,
        decode=decode,
    )
    _refuse_contradictions(request)
    with errors_shown(), names_checked(places[0], topic, partition, may_be_a_file=True):
        from duralog.cli.dump.run import DumpRun

        output = standard_output(as_json=as_json, quiet=quiet)
        # Lines on the terminal are progress enough.
        is_flood = sys.stdout.isatty() and request.mode in (Mode.BATCHES, Mode.RECORDS) and request.key is None
        run = DumpRun(request, output, progress_wanted=not (no_progress or quiet or is_flood))
        run.dump(places)
        if run.has_failed:
            raise typer.Exit(FAILURE)


def _places(paths: list[str] | None, data: str | None) -> list[str]:
    if paths and data is not None:
        raise WrongUsage(f"{paths[0]!r} and --data {data!r} are two places: give one of them")
    if not paths and data is None:
        raise WrongUsage("where? Give PATH as the argument, or --data DIR")
    places = paths or [data or ""]
    for place in places:
        if is_broker(place) and not os.path.exists(place):
            raise WrongUsage(
                f"{place!r} is the address of a broker, and dump reads files: give the broker's directory, which may be"
                f" in use; or duralog consume {place} --topic NAME shows records, duralog topic list {place} topics"
            )
    return places


def _mode(*, records: bool, summary: bool, verify: bool, to: str | None) -> Mode:
    if to is not None:
        records = True
    if records + summary + verify > 1:
        raise WrongUsage("give only one of --records (with --key, --value-format and --to), --summary and --verify")
    if to is not None:
        return Mode.EXPORT
    if records:
        return Mode.RECORDS
    if summary:
        return Mode.SUMMARY
    return Mode.VERIFY if verify else Mode.BATCHES


def _key(text: str | None, digits: str | None) -> bytes | None:
    if text is not None and digits is not None:
        raise WrongUsage("give --key or --key-hex, not both")
    if digits is not None:
        return parsed("--key-hex", parse_hex, digits)
    return None if text is None else parsed("--key", parse_key, text)


def _refuse_contradictions(request: DumpRequest) -> None:
    if request.mode in (Mode.SUMMARY, Mode.VERIFY) and request.is_limited:
        raise WrongUsage("--limit does not go with --summary or --verify, which read everything")
    if request.raw and request.decode is not None:
        raise WrongUsage("--raw shows bytes: leave out --value-format and --key-format, or --raw")
    if request.mode is Mode.VERIFY and request.is_narrowed:
        raise WrongUsage("--verify checks whole files: leave out --offsets, --since and --until")
    if request.since_ms is not None and request.until_ms is not None and request.until_ms <= request.since_ms:
        raise WrongUsage("--until must be after --since")
    if request.to is not None:
        extension = "." + request.to.rpartition(".")[2].lower()
        if extension not in EXPORT_EXTENSIONS:
            raise WrongUsage(f"--to: {request.to!r} must end in {', '.join(EXPORT_EXTENSIONS)}")
