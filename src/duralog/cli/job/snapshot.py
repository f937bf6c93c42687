"""`duralog job snapshot`: the latest state of every key, as a table. `spark.jobs.snapshot` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.cluster.cluster_command import MoreData
from duralog.cli.job.lake_options import (
    ChosenColumns,
    IsolationChoice,
    LogDirectories,
    SliceBytes,
    TableFormatChoice,
    TableTarget,
    TargetOptions,
    WithHeaders,
    chosen_columns,
    names_checked_in,
    note_columns,
    note_copies,
    source_and_target,
)
from duralog.cli.job.spark_job import job_app
from duralog.cli.voice.engine import DEFAULT_MASTER, Conf, Master, StorageOptions, on_spark
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    MAP_BYTES,
    WHICH,
    AsJson,
    NoProgress,
    Quiet,
    ServerProperties,
    TopicChoices,
    map_size,
    named_values,
    parsed,
    parsed_time,
)
from duralog.cli.voice.payload_options import (
    BadPayloads,
    KeyFormat,
    KeySchema,
    SchemaRegistry,
    SchemaRegistryConfig,
    Unwrap,
    ValueFormat,
    ValueSchema,
    decode_given,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.config.byte_sizes import parse_bytes
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.spark.jobs.snapshot import SnapshotReport

_LEAST = ("no key", "files", "records read", "deleted", "kind", "read")


@job_app.command()
def snapshot(
    directories: LogDirectories = None,
    target: TableTarget = None,
    data: MoreData = None,
    topic: TopicChoices = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Only records before the first one with this timestamp or a later one.",
            show_default=False,
            rich_help_panel=WHICH,
        ),
    ] = None,
    as_of_offset: Annotated[
        list[str] | None,
        typer.Option(
            "--as-of-offset",
            metavar="PARTITION=OFFSET",
            help="Only records before this offset of the one --topic; may be given again.",
            show_default=False,
            rich_help_panel=WHICH,
        ),
    ] = None,
    isolation: IsolationChoice = "read_committed",
    storage_option: StorageOptions = None,
    table_format: TableFormatChoice = "parquet",
    headers: WithHeaders = False,
    target_option: TargetOptions = None,
    full: Annotated[
        bool, typer.Option("--full", help="Start from the beginning, not from the last snapshot.", rich_help_panel=HOW)
    ] = False,
    map_bytes: Annotated[str, MAP_BYTES] = "256MiB",
    max_split: SliceBytes = "128MiB",
    server_properties: ServerProperties = None,
    value_format: ValueFormat = None,
    key_format: KeyFormat = None,
    value_schema: ValueSchema = None,
    key_schema: KeySchema = None,
    schema_registry: SchemaRegistry = None,
    schema_registry_config: SchemaRegistryConfig = None,
    mode: BadPayloads = None,
    unwrap: Unwrap = None,
    columns: ChosenColumns = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Update tables to the latest state of every key.

    Deleted keys are left out. A table is TARGET/TOPIC, for Parquet TARGET/TOPIC/snapshot-N. A run reads the records
    since the last one and merges them; the result equals that of a full one.

    Of several directories, each partition is read from the copy that consumers were served, up to the high watermark,
    and damage in it from other copies.

    With --value-format, values are columns by their schemas. With --unwrap debezium, the table is that of the database
    whose changes the topic has, now or --as-of a time.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    path, target = source_and_target(directories, target, data)
    as_of_ms = parsed_time("--as-of", as_of)
    offsets = _offsets(topic, as_of_offset)
    if as_of_ms is not None and offsets:
        raise WrongUsage("--as-of and --as-of-offset: give one of them")
    key_bytes, slice_bytes = map_size(map_bytes), parsed("--max-split", parse_bytes, max_split)
    if unwrap is not None and value_format is None:
        value_format = unwrap
    decode = decode_given(
        value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config, mode
    )
    storage_options = named_values("--storage-option", storage_option)
    target_options = named_values("--target-option", target_option)
    with errors_shown(), names_checked_in(path, topic):
        from duralog.cli.voice.opened_store import broker_config

        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("snapshot", master=master, conf=conf or ()) as spark,
        ):
            from duralog.spark.jobs.snapshot import snapshot as run

            report = run(
                spark.session,
                path,
                target,
                topics=topic or None,
                format=table_format,
                as_of_ms=as_of_ms,
                as_of_offsets=offsets,
                isolation=isolation,
                full=full,
                headers=headers,
                map_bytes=key_bytes,
                max_slice_bytes=slice_bytes,
                storage_options=storage_options,
                target_options=target_options,
                config=broker_config(server_properties),
                decode=decode,
                unwrap=unwrap,
                columns=chosen_columns(columns),
                on_progress=shown.bar.show,
            )
            _write(shown.output, report)


def _offsets(topics: list[str] | None, given: list[str] | None) -> dict[str, dict[int, int]]:
    if not given:
        return {}
    if not topics or len(topics) != 1:
        raise WrongUsage("--as-of-offset is of one topic: give one --topic")
    offsets = {}
    for number, offset in named_values("--as-of-offset", given).items():
        if not (number.isdecimal() and offset.isdecimal()):
            raise WrongUsage(f"--as-of-offset: {number}={offset} is not PARTITION=OFFSET: both must be numbers")
        offsets[int(number)] = int(offset)
    return {topics[0]: offsets}


def _write(output: Output, report: SnapshotReport) -> None:
    if output.as_json:
        output.object(report.to_dict())
        return
    names = ("topic", "keys", "deleted", "no key", "records read", "read", "files", "written", "kind", "table")
    rows = [
        (
            printable(table.topic),
            f"{table.live_keys:,}",
            f"{table.deleted_keys:,}",
            f"{table.keyless_records:,}",
            f"{table.records_read:,}",
            size_text(table.read_bytes),
            f"{table.files:,}",
            size_text(table.written_bytes),
            "incremental" if table.is_incremental else "full",
            printable(table.path),
        )
        for table in report.tables
    ]
    write_table(output, names, rows, right=names[1:8], cut=("topic", "table"), least=_LEAST)
    for table in report.tables:
        if table.why_full is not None:
            output.note(table.topic, f"a full snapshot: {table.why_full}")
        note_columns(output, table)
        if table.expired_rows:
            output.note(
                table.topic,
                f"{plural(table.expired_rows, 'row')} of the last snapshot dropped: the records are gone from the log",
            )
        if table.corrupt_rows > table.bad_records:
            output.note(
                table.topic,
                f"{plural(table.corrupt_rows - table.bad_records, 'row')} in _corrupt from earlier runs: --full decodes"
                " them again",
            )
        if table.unavailable_rows:
            output.note(
                table.topic,
                f"{plural(table.unavailable_rows, 'row')} with a value that neither the database logged nor an earlier"
                " event has: __debezium_unavailable_value",
            )
    note_copies(output, report)
    output.note(
        report.tables[0].format,
        f"{plural(report.live_keys, 'key')} of {plural(len(rows), 'topic')} in {report.seconds:.1f} s",
    )
