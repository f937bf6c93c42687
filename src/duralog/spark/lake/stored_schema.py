"""Column types in a table's state: what an earlier run has found out, to be added to by the next one."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from duralog.spark.lake.table_state import StateRefused, TableState

SCHEMA = "schema"
"""Of a table's state: all columns. Only tables with decoded keys or values have it."""
JSON_TYPES = "json_types"
"""What was inferred of JSON without a schema: a type for `key`, for `value`, or for both."""
UNWRAP = "unwrap"
"""Whether the table has the rows of change events."""
ROUTED = "routed"
"""Whether the change events are of several tables of the database."""
COLUMNS = "columns"
"""The fields of keys and values that are in the table, if not all are."""
IDENTITY = "identity"
"""What makes two keys the same."""


def stored(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def stored_schema(state: TableState | None, where: str) -> pa.Schema | None:
    """The columns that a table has according to its state; None for those of records as they are."""
    if state is None or SCHEMA not in state.details:
        return None
    return _read(state.details[SCHEMA], where)


def stored_json_types(state: TableState | None, where: str) -> dict[str, pa.Field]:
    types = {} if state is None else state.details.get(JSON_TYPES, {})
    if not isinstance(types, dict):
        raise StateRefused(f"{where}: the state is damaged: {JSON_TYPES} is {types!r}")
    return {part: _read(text, where).field(0) for part, text in types.items()}


def _read(text: Any, where: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (ValueError, TypeError, OSError, pa.ArrowException) as error:
        raise StateRefused(f"{where}: the state is damaged: its columns cannot be read: {error}") from error
