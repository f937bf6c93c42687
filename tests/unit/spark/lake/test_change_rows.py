"""Which records are taken for Debezium's change events, by the type of their column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from duralog.errors import SchemaError
from duralog.spark.lake.change_rows import check_events

ROW = pa.struct([pa.field("id", pa.int64()), pa.field("price", pa.decimal128(10, 2))])


def event(before: pa.DataType, after: pa.DataType, op: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field("before", before), pa.field("after", after), pa.field("op", op)])


@pytest.mark.parametrize("before", [ROW, pa.string(), pa.struct([pa.field("id", pa.int32())])])
def test_events(before: pa.DataType) -> None:
    check_events(event(before, ROW, pa.string()), "orders")


@pytest.mark.parametrize(
    ("type_", "problem"),
    [
        (pa.string(), "are not Debezium's change events: they have no after"),
        (event(ROW, ROW, pa.int64()), "are not Debezium's change events: `op` is of type int64, not text"),
        (event(ROW, pa.string(), pa.string()), "no event of the sample has a row in `after`"),
        (
            event(ROW, pa.struct([pa.field("price", pa.binary())]), pa.string()),
            "topic orders: rows before a change are not like those after it: .*decimal128",
        ),
    ],
)
def test_others(type_: pa.DataType, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        check_events(type_, "orders")
