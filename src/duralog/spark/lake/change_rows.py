"""Debezium's change events as rows of the table that they are of.

An event has `op` (create, read of a snapshot, update, delete, truncate), the row `before` and the row `after`. The
latest event of a key is the row as the database has it, or says that it is gone. As a history, every event is a row:
that after it or, of a delete, what is known of the row before it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.errors import SchemaError
from duralog.spark.lake.evolution import conformed

OP = "__op"
SOURCE_TIME = "__source_ts_ms"
"""When the database made the change."""

_DELETE, _TRUNCATE = "d", "t"
_WITH_ROW = pa.array(["c", "r", "u"])


class Unwrap(StrEnum):
    """What is made of change events."""

    STATE = "state"
    HISTORY = "history"


class Changes(NamedTuple):
    rows: pa.StructArray
    """Null where there is no row, or it is not known."""
    is_gone: NDArray[np.bool_]
    """Deleted, or nothing at all."""
    reasons: pa.Array
    """Why an event is bad; null for good ones."""


def check_events(type_: pa.DataType, topic: str) -> None:
    """Refuse records that are not change events, and events without columns."""
    names = {field.name: field.type for field in type_} if pa.types.is_struct(type_) else {}
    missing = sorted({"op", "before", "after"} - set(names))
    if missing:
        raise SchemaError(f"topic {topic}: the values are not Debezium's change events: they have no {missing[0]}")
    if not (pa.types.is_string(names["op"]) or pa.types.is_large_string(names["op"])):
        raise SchemaError(
            f"topic {topic}: the values are not Debezium's change events: `op` is of type {names['op']}, not text"
        )
    if not pa.types.is_struct(names["after"]):
        raise SchemaError(
            f"topic {topic}: no event of the sample has a row in `after`, so the table's columns are not known: give"
            " value.schema, or wait for the first change"
        )
    if pa.types.is_struct(names["before"]):
        try:
            conformed(pa.nulls(1, names["before"]), names["after"])
        except pa.ArrowNotImplementedError as error:
            raise SchemaError(f"topic {topic}: rows before a change are not like those after it: {error}") from None


def row_type(events: pa.DataType) -> pa.StructType:
    return events.field("after").type


def latest_rows(events: pa.StructArray, reasons: pa.Array) -> Changes:
    """What the last event of each key leaves of its row. `reasons` are those of the decoder."""
    is_event = np.asarray(events.is_valid())
    ops, after = events.field("op"), events.field("after")
    has_row = is_event & _is_in(ops, _WITH_ROW) & np.asarray(after.is_valid())
    is_good = np.asarray(reasons.is_null())
    is_gone = is_good & (~is_event | _is_in(ops, pa.array([_DELETE])))
    wrong = np.flatnonzero(is_good & ~is_gone & ~has_row)
    if len(wrong):
        texts = reasons.to_pylist()
        for row in wrong.tolist():
            texts[row] = f"not a change of a row: op is {ops[row].as_py()!r} and there is no `after`"
            if np.asarray(after.is_valid())[row]:
                texts[row] = f"not a change of a row: op is {ops[row].as_py()!r}"
        reasons = pa.array(texts, pa.string())
    return Changes(_masked(after, has_row), is_gone, reasons)


def all_rows(events: pa.StructArray) -> pa.StructArray:
    """Of every event the row after it, or else the one before."""
    after, before = events.field("after"), events.field("before")
    found = after
    if pa.types.is_struct(before.type):
        found = pc.if_else(after.is_valid(), after, conformed(before, after.type))
    return _masked(found, np.asarray(events.is_valid()))


def source_times(events: pa.StructArray) -> pa.Array:
    """When the database made each change, null where the event does not say it."""
    return _of_source(events).get("ts_ms", pa.nulls(len(events), pa.int64()))


def has_several_tables(events: pa.StructArray) -> bool:
    """Whether these are changes of more than one table."""
    source = _of_source(events)
    names = [source[name].to_pylist() for name in ("db", "schema", "table") if name in source]
    return len({table for table in zip(*names, strict=True) if table[-1] is not None}) > 1


def _of_source(events: pa.StructArray) -> dict[str, pa.Array]:
    """Where each change comes from, by the names of Debezium. Empty if the events do not say it."""
    source = events.field("source") if "source" in {each.name for each in events.type} else None
    if source is None or not pa.types.is_struct(source.type):
        return {}
    return dict(zip([each.name for each in source.type], source.flatten(), strict=True))


def truncated_places(events: pa.StructArray) -> NDArray[np.intp]:
    """Which events empty the table."""
    return np.flatnonzero(np.asarray(events.is_valid()) & _is_in(events.field("op"), pa.array([_TRUNCATE])))


def row_places(events: pa.StructArray) -> NDArray[np.intp]:
    """Which events are changes of rows."""
    ops = _is_in(events.field("op"), pa.concat_arrays([_WITH_ROW, pa.array([_DELETE])]))
    return np.flatnonzero(np.asarray(events.is_valid()) & ops)


def _is_in(ops: pa.Array, wanted: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.asarray(pc.is_in(ops, value_set=wanted.cast(ops.type)))
    return found


def _masked(rows: pa.StructArray, is_valid: NDArray[np.bool_]) -> pa.StructArray:
    """Null where it is not valid; fields included, since they become columns."""
    if is_valid.all() and not rows.null_count:
        return rows
    valid = is_valid & np.asarray(rows.is_valid())
    return rows.take(pa.array(np.arange(len(rows)), mask=~valid))
