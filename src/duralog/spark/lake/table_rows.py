"""How records become rows of a table, decided once by the driver and done by tasks.

Three kinds of tables: records as they are; records whose keys and values are decoded; and the rows of a database, from
its change events. What does not decode is null, with its bytes and the reason in `_corrupt`, unless it ends the run.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.schema import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from duralog.scanning.key_identity import KeyIdentity
from duralog.schemas.payloads import Decoded
from duralog.schemas.typed_columns import CORRUPT, CORRUPT_TYPE, DecodedRecords, TypedColumns
from duralog.spark.connector_columns import connector_column, record_columns
from duralog.spark.fitting_types import fitted
from duralog.spark.lake.change_rows import OP, SOURCE_TIME, Unwrap, all_rows, latest_rows, source_times
from duralog.spark.lake.columns import DATE, PREFIX, table_schema, to_table_columns
from duralog.spark.lake.evolution import conformed

EVENT_COLUMNS = (KEY, PARTITION, OFFSET, TIMESTAMP)
"""What the rows of change events have of their records, besides headers and the day."""


class Rows(NamedTuple):
    batch: pa.RecordBatch
    bad: int = 0
    """How many of them have a key or value that does not decode."""
    left_out: Mapping[str, int] = MappingProxyType({})
    """Fields of JSON for which the table has no column, and how often they were there."""


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """Made by `row_planning`; it can be pickled."""

    schema: pa.Schema
    """Of the files."""
    typed: TypedColumns | None = None
    unwrap: Unwrap | None = None
    identity: KeyIdentity = field(default=KeyIdentity.BYTES)
    """Of keys whose latest record is wanted."""
    has_several_tables: bool = False
    """Whether the change events are known to be of more than one table of the database."""

    @cached_property
    def columns(self) -> list[str]:
        """Which columns of records are needed."""
        plain = self._plain.values()
        if self.typed is None:
            return record_columns(plain)
        decoded = self.typed.needed({CORRUPT, *(name for name, _ in self.typed.decoders)})
        return record_columns({*plain, *decoded, TOPIC, PARTITION, OFFSET})

    @cached_property
    def _plain(self) -> dict[str, str]:
        """The table's columns that are those of records, by their names here."""
        of_records = table_schema(headers=True, date=True)
        if self.unwrap is None:
            found = {name: name for name in self.schema.names} | {f"{PREFIX}{KEY}": KEY}
            return {name: found[name] for name in self.schema.names if found[name] in of_records.names}
        kept = [*EVENT_COLUMNS, *([DATE] if self.unwrap is Unwrap.HISTORY else [])]
        # The database may have a column of this name, too, but hardly one of this type.
        headers = f"{PREFIX}{HEADERS}"
        if headers in self.schema.names and self.schema.field(headers).type == of_records.field(HEADERS).type:
            kept.append(HEADERS)
        return {f"{PREFIX}{column}": column for column in kept if f"{PREFIX}{column}" in self.schema.names}

    @cached_property
    def has_corrupt(self) -> bool:
        """Whether the table has `_corrupt`, and not the database one of that name."""
        return CORRUPT in self.schema.names and self.schema.field(CORRUPT).type == CORRUPT_TYPE

    @cached_property
    def row(self) -> pa.StructType:
        """The database's columns."""
        ours = set(self._plain)
        if self.unwrap is Unwrap.HISTORY:
            ours |= {OP, SOURCE_TIME}
        if self.has_corrupt:
            ours.add(CORRUPT)
        return pa.struct([each for each in self.schema if each.name not in ours])

    def of(self, records: pa.RecordBatch, day: datetime.date | None = None) -> Rows:
        """Records, with the columns that are needed, as rows; `day` is for the column `date`."""
        if self.typed is None:
            return Rows(to_table_columns(records, self.schema, day))
        events = _Events(self)
        decoded = self.typed.decode(records, events.fit)
        if events.is_gone is not None and events.is_gone.any():
            kept = pa.array(~events.is_gone)
            records, decoded = records.filter(kept), _filtered(decoded, kept)
        found: dict[str, pa.Array] = {name: decoded.columns[name] for name, _ in self.typed.decoders}
        if self.unwrap is not None:
            found = _by_name(found[VALUE]) | events.facts
        if self.has_corrupt:
            found[CORRUPT] = decoded.corrupt()
        arrays = []
        for each in self.schema:
            column = self._plain.get(each.name)
            if each.name in found:
                arrays.append(found[each.name])
            elif column == DATE:
                arrays.append(pa.repeat(pa.scalar(day, each.type), records.num_rows))
            elif column is not None:
                arrays.append(connector_column(records, column))
            else:
                # The topic has this column no more.
                arrays.append(pa.nulls(records.num_rows, each.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return Rows(batch, _count_bad(decoded), self._left_out(decoded))

    def _left_out(self, decoded: DecodedRecords) -> Mapping[str, int]:
        if self.unwrap is None:
            return decoded.left_out
        # A row before is another view of the same row.
        before, after = (_below(f"{VALUE}.{part}.", decoded.left_out) for part in ("before", "after"))
        return Counter(before) | Counter(after)

    def events(self, records: pa.RecordBatch) -> Decoded:
        """The change events of records."""
        assert self.typed is not None
        headers = records.column(HEADERS) if HEADERS in records.schema.names else None
        return dict(self.typed.decoders)[VALUE].decode(records.column(VALUE), headers)


class _Events:
    """Makes decoded columns those of the table, and keeps what is in change events besides rows."""

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows
        self.is_gone: NDArray[np.bool_] | None = None
        self.facts: dict[str, pa.Array] = {}

    def fit(self, name: str, decoded: Decoded) -> Decoded:
        rows = self._rows
        if rows.unwrap is None:
            return fitted(decoded, rows.schema.field(name).type, conformed, holder=_HOLDER)
        events, reasons = decoded.values, decoded.reasons
        if rows.unwrap is Unwrap.STATE:
            changes = latest_rows(events, reasons)
            self.is_gone = changes.is_gone
            found, reasons = changes.rows, changes.reasons
        else:
            self.facts = {OP: events.field("op"), SOURCE_TIME: source_times(events)}
            found = all_rows(events)
        return fitted(replace(decoded, values=found, reasons=reasons), rows.row, conformed, holder=_HOLDER)


_HOLDER = "the table"


def _filtered(decoded: DecodedRecords, kept: pa.Array) -> DecodedRecords:
    columns = {name: column.filter(kept) for name, column in decoded.columns.items()}
    bad = {name: (payloads.filter(kept), why.filter(kept)) for name, (payloads, why) in decoded.bad.items()}
    return decoded._replace(columns=columns, bad=bad, row_count=pc.sum(kept).as_py() or 0)


def _by_name(rows: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of a row, null where the row is."""
    return dict(zip([each.name for each in rows.type], rows.flatten(), strict=True))


def _below(part: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix(part): count for name, count in counts.items() if name.startswith(part)}


def _count_bad(decoded: DecodedRecords) -> int:
    if not decoded.bad:
        return 0
    is_bad = np.zeros(decoded.row_count, bool)
    for _, reasons in decoded.bad.values():
        is_bad |= np.asarray(reasons.is_valid())
    return int(np.count_nonzero(is_bad))
