"""`duralog job export`: the history of topics as Parquet, Delta or Iceberg. `spark.jobs.export` does the work."""

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
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    NoProgress,
    Quiet,
    TopicChoices,
    named_values,
    parsed,
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
    from duralog.spark.jobs.export import ExportReport


@job_app.command()
def export(
    directories: LogDirectories = None,
    target: TableTarget = None,
    data: MoreData = None,
    topic: TopicChoices = None,
    isolation: IsolationChoice = "read_committed",
    storage_option: StorageOptions = None,
    table_format: TableFormatChoice = "parquet",
    headers: WithHeaders = False,
    target_option: TargetOptions = None,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", help="Continue if records were deleted before they were exported.", rich_help_panel=HOW
        ),
    ] = False,
    max_split: SliceBytes = "128MiB",
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
    """Append new records to tables, every record once.

    A table is TARGET/TOPIC, partitioned by date, the UTC day of the record's timestamp. A run continues where the
    last one ended; a run that failed adds nothing to the tables.

    Of several directories, each partition is read from the copy that consumers were served, up to the high watermark,
    and damage in it from other copies.

    With --value-format, values are columns by their schemas; new columns of the topic are added to the table. With
    --unwrap debezium, each change event is a row of the database's columns, with the operation in __op.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    path, target = source_and_target(directories, target, data)
    slice_bytes = parsed("--max-split", parse_bytes, max_split)
    if unwrap is not None and value_format is None:
        value_format = unwrap
    decode = decode_given(
        value_format, key_format, value_schema, key_schema, schema_registry, schema_registry_config, mode
    )
    storage_options = named_values("--storage-option", storage_option)
    target_options = named_values("--target-option", target_option)
    with (
        errors_shown(),
        names_checked_in(path, topic),
        screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
        on_spark("export", master=master, conf=conf or ()) as spark,
    ):
        from duralog.spark.jobs.export import export as run

        report = run(
            spark.session,
            path,
            target,
            topics=topic or None,
            format=table_format,
            headers=headers,
            isolation=isolation,
            fail_on_data_loss=not allow_data_loss,
            max_slice_bytes=slice_bytes,
            storage_options=storage_options,
            target_options=target_options,
            decode=decode,
            unwrap=unwrap,
            columns=chosen_columns(columns),
            on_progress=shown.bar.show,
        )
        _write(shown.output, report)


def _write(output: Output, report: ExportReport) -> None:
    if output.as_json:
        output.object(report.to_dict())
        return
    for table in report.tables:
        for loss in table.lost:
            output.damage(f"{loss}: deleted before it was exported")
    names = ("topic", "records", "without date", "files", "read", "written", "table")
    rows = [
        (
            printable(table.topic),
            f"{table.records:,}",
            f"{table.undated_records:,}",
            f"{table.files:,}",
            size_text(table.read_bytes),
            size_text(table.written_bytes),
            printable(table.path),
        )
        for table in report.tables
    ]
    write_table(output, names, rows, right=names[1:-1], least=("without date", "files", "read"))
    for table in report.tables:
        note_columns(output, table)
    note_copies(output, report)
    output.note(
        report.tables[0].format,
        f"{plural(report.records, 'record')} of {plural(len(rows), 'topic')} in {report.seconds:.1f} s",
    )
