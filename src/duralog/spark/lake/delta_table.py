"""A Delta table over the Parquet files that tasks wrote, committed by `deltalake`.

Besides the files, a commit holds one application transaction (`txn`) for each partition of the topic: its version is
the next offset. This is what counts, so what was committed is known even if the state file was not written after it.
The state itself is in the commit, too, under the name of the state file.

Another commit in between that claims the same transactions makes this one fail, and nothing of it counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from duralog.columnar.schema import OFFSET, TIMESTAMP
from duralog.spark.lake.columns import name_of
from duralog.spark.lake.parquet_files import DataFile
from duralog.spark.lake.table_state import TableState
from duralog.spark.lake.tables import LakeTable, TableRefused, TableSpec, first_line
from duralog.spark.lake.targets import LakeTarget
from duralog.storage.disk.background import wall_clock_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK_BACK = 20
"""How many commits are searched for the state. Other programs may have optimised the table since."""


class DeltaLakeTable(LakeTable):
    _why_not_wider = "a Delta table cannot have files of a narrower type"

    def __init__(self, spec: TableSpec) -> None:
        self._storage_options = delta_storage_options(spec.target)
        self._table: DeltaTable | None = None
        super().__init__(spec)

    def _load(self) -> TableState | None:
        spec = self.spec
        try:
            table = DeltaTable(spec.target.uri, storage_options=self._storage_options)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise TableRefused(f"{spec.where}: it cannot be opened as a Delta table: {first_line(error)}") from error
        self._table = table
        if table.metadata().partition_columns != [spec.partition_column]:
            raise TableRefused(
                f"{spec.where}: expected a table partitioned by {spec.partition_column}, found one by"
                f" {', '.join(table.metadata().partition_columns) or 'nothing'}"
            )
        state = self._committed_state(table)
        self._check_columns(state, [field.name for field in table.schema().fields])
        return state

    def _committed_state(self, table: DeltaTable) -> TableState:
        """The state that the table's own transactions agree with."""
        known = [self._state_of(commit) for commit in table.history(_LOOK_BACK)]
        candidates = [state for state in [*known, self._state_file()] if state is not None]
        for state in candidates:
            committed = {number: table.transaction_version(self._app_id(number)) for number in state.next_offsets}
            if committed == dict(state.next_offsets):
                return state
        raise TableRefused(
            f"{self.spec.where}: the Delta table was not written by job {self.spec.job}, or its state is lost: neither"
            f" its last {_LOOK_BACK} commits nor {self.spec.state_name} have the offsets that are in it"
        )

    def _state_of(self, commit: Mapping[str, Any]) -> TableState | None:
        text = commit.get(self.spec.state_name)
        if not isinstance(text, str):
            return None
        return TableState.from_json(text, f"{self.spec.where}: commit {commit.get('version')}")

    def _app_id(self, partition: int) -> str:
        return f"duralog/{self.spec.job}/{self.spec.topic}-{partition}"

    def files(self) -> list[str]:
        if self._table is None:
            return []
        # Paths in the log are URLs: a folder named after a date has nothing to be unquoted, one by another writer may.
        return sorted(unquote(path) for path in _facts(self._table, self.spec.partition_column))

    def _commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        spec = self.spec
        properties = CommitProperties(
            custom_metadata={spec.state_name: state.to_json()},
            # A commit that lost against another one must be decided again: its offsets may be in the table by now.
            max_commit_retries=0,
            app_transactions=[
                Transaction(self._app_id(number), offset, wall_clock_ms())
                for number, offset in sorted(state.next_offsets.items())
            ],
        )
        adding = [self._add_action(file) for file in added]
        schema = Schema.from_arrow(self.schema)
        try:
            if self._table is None:
                create_table_with_add_actions(
                    spec.target.uri,
                    schema,
                    adding,
                    mode="error",
                    partition_by=[spec.partition_column],
                    name=spec.topic,
                    storage_options=self._storage_options,
                    commit_properties=properties,
                )
            elif self._evolution.widened:
                self._replace(self._table, adding, schema, properties)
            else:
                if self._evolution.added:
                    # Before the files, in a commit of its own: until then, the new columns are null.
                    self._table.alter.add_columns(
                        schema.fields, commit_properties=CommitProperties(max_commit_retries=0)
                    )
                self._table.create_write_transaction(
                    [*adding, *self._remove_actions(removed)],
                    "append",
                    schema,
                    partition_by=[spec.partition_column],
                    commit_properties=properties,
                )
        except (DeltaError, OSError) as error:
            raise TableRefused(f"{spec.where}: the commit was refused, run it again: {first_line(error)}") from error
        self._table = DeltaTable(spec.target.uri, storage_options=self._storage_options)

    def _replace(
        self, table: DeltaTable, adding: Sequence[AddAction], schema: Schema, properties: CommitProperties
    ) -> None:
        """All files and all columns, in one commit. REQUIRES: no file of before stays."""
        settings = dict(table.metadata().configuration)
        column = [self.spec.partition_column]
        table.create_write_transaction(
            list(adding), "overwrite", schema, partition_by=column, commit_properties=properties
        )
        # deltalake replaces the table's metadata, without its name and settings.
        changed = DeltaTable(self.spec.target.uri, storage_options=self._storage_options)
        changed.alter.set_table_name(self.spec.topic)
        if settings:
            changed.alter.set_table_properties(settings)

    def _add_action(self, file: DataFile) -> AddAction:
        return AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values={self.spec.partition_column: file.value},
            modification_time=wall_clock_ms(),
            data_change=True,
            stats=json.dumps(_statistics(file, self.schema)),
        )

    def _remove_actions(self, removed: Sequence[str]) -> list[RemoveAction]:
        if not removed or self._table is None:
            return []
        wanted = set(removed)
        return [
            RemoveAction(path, True, wall_clock_ms(), size, {self.spec.partition_column: value})
            for path, (size, value) in _facts(self._table, self.spec.partition_column).items()
            if unquote(path) in wanted
        ]


def delta_storage_options(target: LakeTarget) -> dict[str, str] | None:
    """The options of pyarrow's file systems by the names that `deltalake` has for them."""
    if target.is_local:
        return None
    names = {
        "access_key": "AWS_ACCESS_KEY_ID",
        "secret_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
        "region": "AWS_REGION",
        "endpoint_override": "AWS_ENDPOINT_URL",
    }
    options = {names[name]: value for name, value in target.options.items() if name in names}
    endpoint = options.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        scheme = target.options.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        options["AWS_ALLOW_HTTP"] = str(options["AWS_ENDPOINT_URL"].startswith("http://")).lower()
    return options


def _facts(table: DeltaTable, column: str) -> dict[str, tuple[int, str | None]]:
    """Of each file, by its path in the log: its size, and its value of the partition column."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return {}
    paths, sizes, values = (actions.column(name).to_pylist() for name in ("path", "size_bytes", f"partition.{column}"))
    return {
        path: (size, None if value is None else str(value))
        for path, size, value in zip(paths, sizes, values, strict=True)
    }


def _statistics(file: DataFile, schema: pa.Schema) -> dict[str, Any]:
    offset, timestamp = name_of(schema, OFFSET), name_of(schema, TIMESTAMP)
    smallest: dict[str, Any] = {offset: file.first_offset}
    largest: dict[str, Any] = {offset: file.last_offset}
    if file.first_time_us is not None and file.last_time_us is not None:
        first, last = _time_text(file.first_time_us), _time_text(file.last_time_us)
        if first is not None and last is not None:
            smallest[timestamp], largest[timestamp] = first, last
    return {
        "numRecords": file.records,
        "minValues": smallest,
        "maxValues": largest,
        "nullCount": {name: count for name, count in file.null_counts.items() if _is_counted(schema.field(name).type)},
    }


def _is_counted(type_: pa.DataType) -> bool:
    """Of a struct, Delta has the counts of its fields."""
    return not (pa.types.is_struct(type_) or pa.types.is_map(type_))


def _time_text(time_us: int) -> str | None:
    """As Delta writes times, in milliseconds; None outside of the calendar. Ours are whole milliseconds."""
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
