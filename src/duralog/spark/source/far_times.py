"""Times in the filters of a query that Python's `datetime` cannot hold.

Spark has times from before the year 1 and after 9999, also for dates that people take for "never": 9999-12-31 in New
York is in the year 10000 in UTC. PySpark 4.3 decodes every filter with `datetime` before it asks the source, so such a
query ends with an OverflowError before the source sees it. From the creation of a reader until it has its filters,
PySpark's decoder returns such a time as a `FarTime`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.variant_utils import VariantUtils


class FarTime(int):
    """Microseconds since 1970."""


_decode = VariantUtils._get_timestamp


def _decode_all(cls: type[VariantUtils], value: bytes, position: int, zone: str) -> Any:
    try:
        return _decode(value, position, zone)
    except OverflowError:
        return FarTime(cls._read_long(value, position + 1, 8, signed=True))


def accept_far_times() -> None:
    VariantUtils._get_timestamp = classmethod(_decode_all)  # type: ignore[assignment, method-assign]


def refuse_far_times() -> None:
    """As PySpark has it: the worker may then read another source, which does not expect them."""
    VariantUtils._get_timestamp = _decode  # type: ignore[method-assign]
