"""Typed columns as Python values.

Unlike with `to_pylist`, a map is a dict, also without entries, and the last value of a duplicate key wins. A time
outside of Python's calendar is the number of the column, in units of its type.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa


def python_values(column: pa.Array) -> list[Any]:
    """Dicts, lists, numbers, text, bytes, times; None for null."""
    type_ = column.type
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        children = [python_values(child) for child in column.flatten()]
        rows = zip(*children, strict=True) if children else (() for _ in range(len(column)))
        found: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    elif pa.types.is_map(type_):
        keys, items = python_values(column.keys), python_values(column.items)
        found = [dict(zip(keys[begin:end], items[begin:end], strict=True)) for begin, end in _ranges(column)]
    elif pa.types.is_list(type_):
        items = python_values(column.values)
        found = [items[begin:end] for begin, end in _ranges(column)]
    elif pa.types.is_temporal(type_):
        return [_moment(each) for each in column]
    else:
        return list(column.to_pylist())
    if column.null_count:
        found = [
            each if is_there else None for each, is_there in zip(found, column.is_valid().to_pylist(), strict=True)
        ]
    return found


def _ranges(column: pa.Array) -> list[tuple[int, int]]:
    """Where the items of each row are."""
    offsets = np.asarray(column.offsets).tolist()
    return list(pairwise(offsets))


def _moment(one: pa.Scalar) -> Any:
    if not one.is_valid:
        return None
    try:
        found = one.as_py()
    except (ValueError, OverflowError):
        return one.value
    # The first nanosecond that pandas does not have.
    return one.value if str(found) == "NaT" else found
