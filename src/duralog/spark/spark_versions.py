"""The versions of Spark that duralog runs on, and the names of PySpark that some of them lack.

Features are looked for, not version numbers: a vendor's Spark 4.0 may have what Apache's got in 4.1. What a version
lacks is refused in a sentence that names the version (`needs`), or done in another way:

| since | what | before |
|---|---|---|
| 4.1 | Spark gives a source the filters of a query | `pruneByFilters` is refused |
| 4.1 | `DataFrame.repartitionById` | the id is exchanged for a number whose hash leads there |
| 4.1 | `DataSourceStreamArrowWriter` | every `DataSourceArrowWriter` gets Arrow batches, in streams as well |
| 4.2 | `to_arrow_schema` takes a time zone | it takes UTC |
| 4.2 | Spark says where a stream stands, and limits a trigger | limits are refused; `unlimited_stream` reads |

A version that is newer than the newest tested one is used, with a warning: a cluster has the Spark that it has. pip
installs tested ones only.
"""

from __future__ import annotations

import json
import logging
import re
from functools import cache
from importlib.util import find_spec
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.pandas.types import to_arrow_schema

from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NEWEST_TESTED = (4, 3)

_INT32 = 0xFFFFFFFF
_TAKES_A_ZONE = "timezone" in signature(to_arrow_schema).parameters
_logger = logging.getLogger(__name__)


class UnsupportedSpark(DuralogError, ImportError):
    """This version of PySpark is too old."""


try:
    from pyspark.sql import datasource as datasource
except ImportError:
    raise UnsupportedSpark(
        f"duralog needs PySpark 4.0 or newer, this is {pyspark.__version__}: it has no Data Source API for Python"
    ) from None

HAS_FILTERS = hasattr(datasource, "Filter")
HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        pass


if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxBytes as ReadMaxBytes
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import ReadMinRows as ReadMinRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:

    class SupportsTriggerAvailableNow:
        pass

    class ReadLimit:
        pass

    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of batches, and gives in batches: times are in UTC."""
    zone: dict[str, Any] = {"timezone": "UTC"} if _TAKES_A_ZONE else {}
    return to_arrow_schema(schema, **zone)


def repartition_by_id(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Each row in the partition whose number is in the column, modulo the number of partitions."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, column)
    return repartition_by_hash_of_id(frame, partitions, column)


def repartition_by_hash_of_id(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """The same with `repartition`, which hashes: a row is sent by a number whose hash is that of its partition."""
    from pyspark.sql import functions

    # As JSON, it is one constant to Spark, however many there are.
    numbers = json.dumps(_numbers_by_hash(partitions))
    chosen = f"from_json('{numbers}', 'array<int>')[cast(pmod({column}, {partitions}) as int)]"
    return frame.repartition(partitions, functions.expr(chosen))


@cache
def _numbers_by_hash(partitions: int) -> list[int]:
    """For each partition a number that Spark's hash partitioning sends there."""
    found: dict[int, int] = {}
    for number in count():
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
        found.setdefault(_spark_hash(number) % partitions, number)
    raise AssertionError


def _spark_hash(number: int) -> int:
    """Spark's `hash` of an `int`: 32-bit Murmur3 with the seed 42."""
    mixed = _rotated(number * 0xCC9E2D51 & _INT32, 15) * 0x1B873593 & _INT32
    mixed = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _INT32) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _INT32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _INT32
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _INT32


def needs(since: str, what: str, why: str) -> str:
    """An error message: `what` is refused because this version of Spark does, or does not do, something."""
    return f"{what} needs Spark {since} or newer: Spark {pyspark.__version__} {why}"


def warn_if_untested(version: str = pyspark.__version__) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) > NEWEST_TESTED:
        newest = ".".join(map(str, NEWEST_TESTED))
        _logger.warning("Spark %s is newer than %s, the newest that duralog is tested with", version, newest)
