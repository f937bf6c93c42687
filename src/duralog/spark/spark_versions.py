"""The versions of Spark that duralog runs on, and the names of PySpark that some of them lack.

Features are looked for, not version numbers: a vendor's Spark 4.0 may have what Apache's got in 4.1. What a version
lacks is refused in a sentence that names the version (`needs`), or done in another way:

| since | what | before |
|---|---|---|
| 4.1 | Spark gives a source the filters of a query | `pruneByFilters` is refused |
| 4.1 | `DataSourceStreamArrowWriter` | every `DataSourceArrowWriter` gets Arrow batches, in streams as well |
| 4.2 | `to_arrow_schema` takes a time zone | it takes UTC |
| 4.2 | Spark says where a stream stands, and limits a trigger | limits are refused; `unlimited_stream` reads |

A version that is newer than the newest tested one is used, with a warning: a cluster has the Spark that it has. pip
installs tested ones only.
"""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.pandas.types import to_arrow_schema

from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NEWEST_TESTED = (4, 3)

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


def needs(since: str, what: str, why: str) -> str:
    """An error message: `what` is refused because this version of Spark does, or does not do, something."""
    return f"{what} needs Spark {since} or newer: Spark {pyspark.__version__} {why}"


def warn_if_untested(version: str = pyspark.__version__) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) > NEWEST_TESTED:
        newest = ".".join(map(str, NEWEST_TESTED))
        _logger.warning("Spark %s is newer than %s, the newest that duralog is tested with", version, newest)
