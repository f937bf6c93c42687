"""Filters of a query that limit which partitions, offsets and times have to be read.

Spark passes them as a list; a row must satisfy all of them. They only let partitions, offsets, segments and byte ranges
be left out: Spark applies every filter to the rows as well.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.row_bounds import INT64_MAX, RowBounds
from duralog.spark.source.far_times import FarTime

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)

_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found > value,
    GreaterThanOrEqual: lambda found, value: found >= value,
    LessThan: lambda found, value: found < value,
    LessThanOrEqual: lambda found, value: found <= value,
    In: lambda found, values: found in values,
    StringStartsWith: lambda found, value: found.startswith(value),
    StringEndsWith: lambda found, value: found.endswith(value),
    StringContains: lambda found, value: value in found,
}


@dataclass(slots=True)
class PushedFilters:
    """What is known of the rows that a query wants. Only data, since it is pickled with the reader."""

    of_partitions: list[Filter] = field(default_factory=list)
    """On `topic` and `partition`: they hold for a partition as a whole, or not."""
    bounds: RowBounds = field(default_factory=RowBounds)

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        found = cls()
        for filter_ in filters:
            found._take(filter_)
        return found

    def wants(self, partition: TopicPartition) -> bool:
        return all(_holds(filter_, partition) for filter_ in self.of_partitions)

    def narrow(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """The part of the ranges that the filters let through."""
        return self.bounds.narrow(ranges, self.wants)

    def _take(self, filter_: Filter) -> None:
        column = _column(filter_)
        if column in ("topic", "partition") and _is_decidable(filter_):
            self.of_partitions.append(filter_)
        elif column == "offset":
            self._take_offset(filter_)
        elif column == "timestamp":
            self._take_time(filter_)

    def _take_offset(self, filter_: Filter) -> None:
        if isinstance(filter_, In):
            offsets = [value for value in filter_.value if value is not None]
            if offsets and all(map(_is_whole, offsets)):
                self.bounds.between(min(offsets), max(offsets))
            return
        value = getattr(filter_, "value", None)
        if not _is_whole(value):
            return
        if isinstance(filter_, EqualTo | EqualNullSafe):
            self.bounds.between(value, value)
        elif isinstance(filter_, GreaterThan | GreaterThanOrEqual):
            self.bounds.between(value + isinstance(filter_, GreaterThan), INT64_MAX - 1)
        elif isinstance(filter_, LessThan | LessThanOrEqual):
            self.bounds.between(0, value - isinstance(filter_, LessThan))

    def _take_time(self, filter_: Filter) -> None:
        if isinstance(filter_, In):
            times = [_whole_ms(value) for value in filter_.value if value is not None]
        else:
            times = [_whole_ms(getattr(filter_, "value", None))]
        known = [time_ms for time_ms in times if time_ms is not None]
        if not known or len(known) != len(times):
            return
        if isinstance(filter_, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | In):
            self.bounds.since(min(known))
        if isinstance(filter_, EqualTo | EqualNullSafe | LessThan | LessThanOrEqual | In):
            self.bounds.until(max(known) + 1)


def _column(filter_: Filter) -> str | None:
    path: Sequence[str] = getattr(filter_.child if isinstance(filter_, Not) else filter_, "attribute", ())
    return path[0].lower() if len(path) == 1 else None


def _is_decidable(filter_: Filter) -> bool:
    """Whether a partition's name or number decides it. With a null in it, SQL has special rules."""
    inner = filter_.child if isinstance(filter_, Not) else filter_
    values = inner.value if isinstance(inner, In) else [getattr(inner, "value", None)]
    expected = str if _column(filter_) == "topic" else int
    return type(inner) in _TESTS and all(type(value) is expected for value in values)


def _holds(filter_: Filter, partition: TopicPartition) -> bool:
    if isinstance(filter_, Not):
        return not _holds(filter_.child, partition)
    found = partition.topic if _column(filter_) == "topic" else partition.partition
    return _TESTS[type(filter_)](found, getattr(filter_, "value"))  # noqa: B009


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int


def _whole_ms(time: object) -> int | None:
    """A time of the query, in whole milliseconds, as records have them; the fraction is left away."""
    if isinstance(time, FarTime):
        return time // 1000
    if not isinstance(time, datetime.datetime) or time.tzinfo is None:
        return None
    return (time - _EPOCH) // _MILLISECOND
