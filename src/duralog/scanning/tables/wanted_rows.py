"""Selects the records of a batch for a scan, by time and by condition.

With typed payloads, a condition applies to the decoded keys and values, as in the console's search: to all of their
fields, not only those that the scan returns. For JSON these are all written fields, since a type that was inferred from
a sample may lack some. Payloads that do not decode are compared as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from duralog.columnar.plain_json import searched_json
from duralog.columnar.python_values import python_values
from duralog.columnar.schema import HEADERS, KEY, RECORD_SCHEMA, TIMESTAMP, VALUE
from duralog.filters.conditions import Condition
from duralog.filters.matching import Matcher
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.schemas.payload_decoder import JSON_FORMATS
from duralog.schemas.typed_columns import Mode, TypedColumns


@dataclass(frozen=True)
class WantedRows:
    """The selection of a scan. Any thread may use it."""

    times: TimeRange
    condition: Condition | None
    whole: TypedColumns | None
    """How keys and values are decoded for the condition."""

    @classmethod
    def of(cls, times: TimeRange, condition: Condition | None, typed: TypedColumns | None) -> WantedRows:
        if condition is None or typed is None:
            return cls(times, condition, None)
        decoders = tuple((name, each.with_all_columns()) for name, each in typed.decoders)
        return cls(times, condition, replace(typed, decoders=decoders, mode=Mode.PERMISSIVE))

    @property
    def needed(self) -> list[str]:
        """The columns that the selection needs."""
        times = [] if self.times == ANY_TIME else [TIMESTAMP]
        return times if self.condition is None else [*times, KEY, VALUE, HEADERS]

    def matcher(self) -> Matcher | None:
        """One for each thread."""
        return None if self.condition is None else Matcher(self.condition)

    def select(self, records: pa.RecordBatch, matcher: Matcher | None) -> pa.RecordBatch:
        """The records that are wanted, in their order."""
        found = records if self.times == ANY_TIME else _between(records, self.times)
        if matcher is None or not found.num_rows:
            return found
        return found.take(pa.array(matcher.rows(found, self._decoded(found))))

    def _decoded(self, records: pa.RecordBatch) -> pa.RecordBatch | None:
        """The records with decoded keys and values as plain text or JSON."""
        if self.whole is None:
            return None
        decoded = self.whole.decode(records)
        columns = {name: records.column(name) for name in records.schema.names}
        for name, decoder in self.whole.decoders:
            given = columns[name]
            values = python_values(decoded.columns[name])
            if decoder.plan.format in JSON_FORMATS:
                written = decoder.written_json(given, records.column(HEADERS))
                values = [_completed(each, was) for each, was in zip(values, written, strict=True)]
            texts = [None if value is None else _text(value) for value in values]
            # A null here that is not null in the log did not decode.
            columns[name] = pc.coalesce(pa.array(texts, given.type), given)
        return pa.RecordBatch.from_pydict(columns, schema=records.schema)


def _text(value: object) -> bytes:
    return (value if isinstance(value, str) else searched_json(value)).encode("utf-8", "replace")


def _completed(value: Any, written: Any) -> Any:
    """A decoded value, with the fields that its type does not have, as they were written."""
    if isinstance(written, dict) and isinstance(value, dict):
        return {**written, **{name: _completed(each, written.get(name)) for name, each in value.items()}}
    if isinstance(written, list) and isinstance(value, list) and len(written) == len(value):
        return [_completed(each, was) for each, was in zip(value, written, strict=True)]
    # JSON of several types is text in its column.
    return written if isinstance(value, str) and isinstance(written, dict | list) else value


def _between(records: pa.RecordBatch, times: TimeRange) -> pa.RecordBatch:
    """Those with a timestamp in the range. Planning leaves out whole slices only."""
    timestamps = records.column(TIMESTAMP)
    if times.not_before_ms is not None:
        records = records.filter(pc.greater_equal(timestamps, _timestamp(times.not_before_ms)))
    if times.before_ms is not None:
        records = records.filter(pc.less(records.column(TIMESTAMP), _timestamp(times.before_ms)))
    return records


def _timestamp(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds, RECORD_SCHEMA.field(TIMESTAMP).type)
