"""Typed columns as Python values: `to_pylist`, but for maps and for times beyond the calendar."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from duralog.columnar.python_values import python_values

TYPE = pa.struct(
    [
        ("a", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("d", pa.date32())]))),
        ("t", pa.timestamp("us", "UTC")),
    ]
)
MOMENT = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
ROWS: list[Any] = [
    {"a": [1, 2], "m": {"k": {"x": 1, "d": datetime.date(2026, 1, 2)}, "j": None}, "t": MOMENT},
    None,
    {"a": None, "m": {}, "t": None},
    {"a": [], "m": None, "t": MOMENT},
]


def test_values_of_slices_too() -> None:
    column = pa.array(
        [None if row is None else {**row, "m": None if row["m"] is None else list(row["m"].items())} for row in ROWS],
        TYPE,
    )
    for begin in range(4):
        assert python_values(column[begin:]) == ROWS[begin:]
    assert python_values(column[:0]) == []
    assert python_values(pa.array([{}, None], pa.struct([]))) == [{}, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_beyond_the_calendar_are_numbers(unit: str, zone: str | None) -> None:
    limits = [-(2**63), 2**63 - 1]
    found = python_values(pa.array(limits, pa.int64()).cast(pa.timestamp(unit, zone)))
    assert found[0] == limits[0]
    assert unit == "ns" or found[1] == limits[1]
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32())
    assert python_values(days) == [-(2**31), 2**31 - 1]
