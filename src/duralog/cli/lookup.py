"""`duralog lookup`: where a record is, and how a read finds it. `duralog.operations.lookup` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import FAILURE, WrongUsage, errors_shown
from duralog.cli.voice.options import (
    WHICH,
    AsJson,
    Data,
    Directory,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoice,
    local_directory_given,
    parsed,
    parsed_time,
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
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.key_text import parse_key

if TYPE_CHECKING:
    from duralog.cli.dump.decoded_lines import DecodedLines
    from duralog.cli.voice.output import Output
    from duralog.schemas.decode_options import Decode
    from duralog.storage.log.partition_log import PartitionLog


def lookup(
    directory: Directory = None,
    data: Data = None,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", min=0, metavar="N", help="The record at N.", rich_help_panel=WHICH)
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="The first record of this time or later: ISO 8601 (UTC), epoch ms, or an age like 2h.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            metavar="TEXT",
            help="The newest record with this key; 0x... gives its bytes.",
            rich_help_panel=WHICH,
        ),
    ] = None,
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
    """Find one record by offset, time or key; show the steps.

    The steps are those of every read: the segment, the index entries, the batches. DIR may also be the partition's
    folder; then --topic and --partition are not needed. Nothing is changed. With --value-format, the record is shown
    decoded, with the name of the schema; what does not decode is shown in hex, with the reason.

    Exit code: 0 found, 1 there is none or something cannot be read, 2 wrong usage, 130 interrupted.
    """
    path = local_directory_given(directory, data)
    if sum(wanted is not None for wanted in (offset, time, key)) != 1:
        raise WrongUsage("give one of --offset, --time and --key")
    timestamp_ms = parsed_time("--time", time)
    key_bytes = None if key is None else parsed("--key", parse_key, key)
    decode = decode_given(value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config)
    with errors_shown(), names_checked(path, topic, partition):
        from duralog.cli.voice.compilation import announce_compilation
        from duralog.cli.voice.logs import say_warnings

        announce_compilation(quiet=quiet)
        say_warnings(wanted=not quiet)
        from duralog.cli.lookup_steps import LookupSteps
        from duralog.operations import lookup as use_case
        from duralog.operations.chosen_partition import opened_partition

        target: use_case.Target
        if offset is not None:
            target = use_case.AtOffset(offset)
        elif timestamp_ms is not None:
            target = use_case.SinceTime(timestamp_ms)
        else:
            assert key_bytes is not None
            target = use_case.WithKey(key_bytes)
        with (
            opened_partition(path, topic, partition) as log,
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
        ):
            decoded = None if decode is None else _decoded_lines(path, decode, log, shown.output)
            steps = LookupSteps(log, shown.output, decoded)
            is_found = use_case.lookup(log, target, steps.show, on_progress=shown.bar.show)
        if not is_found or shown.output.findings:
            raise typer.Exit(FAILURE)


def _decoded_lines(path: str, decode: Decode, log: PartitionLog, output: Output) -> DecodedLines:
    from duralog.cli.dump.decoded_lines import DecodedLines
    from duralog.cli.records.decoded import decoder_for
    from duralog.cli.voice.failures import say
    from duralog.storage.disk.found_files import directory_of

    directory, _ = directory_of(path)
    decoder = decoder_for(directory, decode, (lambda _: None) if output.quiet else say)
    return DecodedLines(decoder, log.topic, log.partition, output)
