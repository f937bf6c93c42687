"""`duralog produce`: records from the command line, a file or a pipe, to a directory or through a broker.

This module is the command line; `record_input` reads records, `operations.records.produced`
and `client.producing` write them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.completions import partition_numbers
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    WHAT,
    WHICH,
    AsJson,
    CodecChoice,
    NoProgress,
    Quiet,
    TopicName,
    named_values,
    parsed,
    parsed_time,
    standard_output,
)
from duralog.cli.voice.payload_options import (
    FramingName,
    NoRegister,
    SchemaRegistryConfig,
    WrittenKeyFormat,
    WrittenKeySchema,
    WrittenRegistry,
    WrittenValueFormat,
    WrittenValueSchema,
    decode_given,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.key_text import parse_key
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duralog.cli.voice.output import Output
    from duralog.client.producing import Placed, Written
    from duralog.operations.records.encoded import Encoders
    from duralog.schemas.decode_options import Decode
    from duralog.schemas.encoding.payload_encoder import PayloadEncoder


def produce(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: TopicName,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Write all records to this partition; otherwise by key, as Kafka does.",
            rich_help_panel=WHICH,
            autocompletion=partition_numbers,
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", "-v", metavar="TEXT", help="One record with this value; 0x... gives bytes.", rich_help_panel=WHAT
        ),
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", help="One record without a value: deletes --key.", rich_help_panel=WHAT)
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", metavar="TEXT", help="The key of every record; 0x... gives bytes.", rich_help_panel=WHAT
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help="Every line is a key, this separator, and a value.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header of every record; may be given again.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help="The time of every record; now if not given.", rich_help_panel=WHAT
        ),
    ] = None,
    from_json: Annotated[
        bool,
        typer.Option("--from-json", help="Every line is a record as consume --json writes it.", rich_help_panel=WHAT),
    ] = False,
    file: Annotated[
        str,
        typer.Option(
            "--file", metavar="FILE", help="The file with the lines; - is standard input.", rich_help_panel=WHAT
        ),
    ] = "-",
    codec: CodecChoice = None,
    value_format: WrittenValueFormat = None,
    key_format: WrittenKeyFormat = None,
    value_schema: WrittenValueSchema = None,
    key_schema: WrittenKeySchema = None,
    framing: FramingName = None,
    schema_registry: WrittenRegistry = None,
    schema_registry_config: SchemaRegistryConfig = None,
    no_register: NoRegister = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Write records, one or one for each line of a file or pipe.

    One record with --value or --tombstone, otherwise one for each line. A directory is written to directly, so no
    broker may have it open; the topic must exist. A broker may create it.

    With --value-schema, each value is JSON and is encoded as Avro, Protobuf or JSON by the schema. A schema file is
    registered under the subject <topic>-value, as serializers do; without a registry, its id is looked up in the topic
    _schemas.

    Exit code: 0 all records are written, 1 some are not, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    is_one = value is not None or tombstone
    if value is not None and tombstone:
        raise WrongUsage("--value and --tombstone: give one of them")
    if tombstone and key is None:
        raise WrongUsage("--tombstone: give the --key that it deletes")
    if is_one and (key_separator is not None or from_json or file != "-"):
        raise WrongUsage("--value and --tombstone are one record: no --key-separator, --from-json or --file")
    if sum((key is not None, key_separator is not None, from_json)) > 1:
        raise WrongUsage("give one of --key, --key-separator and --from-json")
    if key_separator == "":
        raise WrongUsage("--key-separator: it must have at least one character")
    headers = [(name, parsed("--header", parse_key, text)) for name, text in named_values("--header", header).items()]
    timestamp_ms = parsed_time("--time", time)
    if timestamp_ms is not None and timestamp_ms < 0:
        raise WrongUsage(f"--time: {time} is before 1970, and records cannot be older")
    asked = decode_given(value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config)
    if asked is None and (framing is not None or no_register):
        raise WrongUsage("--framing and --no-register are about schemas: give --value-schema or --key-schema")
    if no_register and schema_registry is None:
        raise WrongUsage("--no-register needs --schema-registry URL: without one, nothing is registered")
    with errors_shown(), names_checked(place, topic, partition):
        from duralog.cli.records.record_input import LineFormat, RecordLines, one_record
        from duralog.cli.voice.progress import CountingBar
        from duralog.format.compression import Codec

        if codec is not None:
            parsed("--codec", Codec.named, codec)
        encoders = None if asked is None else _encoders(place, topic, asked, framing, no_register, quiet=quiet)
        key_bytes = _field("--key", key, None if encoders is None else encoders.key)
        value_bytes = _field("--value", value, None if encoders is None else encoders.value)
        progress = CountingBar(None, wanted=not (no_progress or quiet))
        if is_one:
            records: Iterable[list[Placed]] = one_record(key_bytes, value_bytes, headers, timestamp_ms)
        else:
            line_format = LineFormat(
                key=key_bytes,
                key_separator=key_separator,
                headers=headers,
                timestamp_ms=timestamp_ms,
                from_json=from_json,
                encoders=encoders,
            )
            records = RecordLines(file, sys.stdin.buffer, line_format, progress=progress)
        output = standard_output(as_json=as_json, quiet=quiet)
        written: dict[int, Written] = {}
        try:
            with progress:
                progress.begin(topic)
                if is_broker(place):
                    from duralog.client.producing import to_broker

                    to_broker(place, topic, records, partition=partition, codec=codec, written=written)
                else:
                    from duralog.cli.voice.opened_store import opened_store
                    from duralog.operations.records.produced import to_store

                    with opened_store(
                        place, read_only=False, server_properties=None, quiet=quiet, load_on_use=True
                    ) as store:
                        to_store(store, topic, records, partition=partition, codec=codec, written=written)
        finally:
            # Also after an error: the lines before it are written.
            _report(topic, written, output)


def _encoders(
    place: str, topic: str, asked: Decode, framing: str | None, no_register: bool, *, quiet: bool
) -> Encoders:
    from duralog.cli.records.decoded import records_of
    from duralog.cli.voice.failures import say
    from duralog.operations.records.encoded import plan_encoders, with_framing

    return plan_encoders(
        with_framing(asked, framing),
        topic,
        records_of(place, asked),
        may_register=not no_register,
        on_finding=(lambda _: None) if quiet else say,
    )


def _field(option: str, text: str | None, encoder: PayloadEncoder | None) -> bytes | None:
    """The key or value of an option."""
    if text is None:
        return None
    return parsed(option, parse_key, text) if encoder is None else encoder.encode_text(text.encode())


def _report(topic: str, written: dict[int, Written], output: Output) -> None:
    from duralog.cli.voice.tables import plural

    for number, each in sorted(written.items()):
        if output.as_json:
            output.object(
                {
                    "kind": "written",
                    "topic": topic,
                    "partition": number,
                    "records": each.records,
                    "first_offset": each.first_offset,
                    "last_offset": each.last_offset,
                }
            )
        elif not output.quiet:
            output.line(
                f"{topic}-{number}: {plural(each.records, 'record')}, offsets {each.first_offset} to {each.last_offset}"
            )
    output.flush()
