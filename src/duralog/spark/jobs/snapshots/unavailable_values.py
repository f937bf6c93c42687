"""Values that an update did not change, and that the database therefore did not log: PostgreSQL's large ones.

Debezium writes `__debezium_unavailable_value` in their place, or its bytes in base64 or hex. The value is that of the
last event of the same key that has it: an earlier one of the log, or the row of the previous snapshot. Rows with such
values wait until there are enough of them; then one pass over the keys of the log finds the events of these keys, and
only those are decoded.

No value is better than an old one. After an event that does not decode, the value is not known. A row of the previous
snapshot counts only if the log has all offsets from there to the event: compaction may have removed an update in
between, which had another value.

Memory: the rows that wait, and their values, for as many of them at a time as fit into a bound.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.schema import KEY, OFFSET, VALUE
from duralog.kernels.key_digests import Digests
from duralog.scanning.keyed_offsets import records_of_keys
from duralog.schemas.typed_columns import CORRUPT
from duralog.spark.jobs.snapshots.gaps import first_gap
from duralog.spark.jobs.snapshots.partition_task import PartitionTask
from duralog.spark.lake.columns import PREFIX
from duralog.spark.lake.keyed_files import columns_of_file, digests_of_keys

_TEXT = "__debezium_unavailable_value"
_BYTES = _TEXT.encode()
_TEXTS = pa.array([_TEXT, base64.b64encode(_BYTES).decode(), _BYTES.hex()])
"""The latter are binary columns in JSON without a schema, or by `binary.handling.mode`."""
_AS_LISTS = ([_TEXT], list(_BYTES))
"""In place of an array of text, and of one of numbers."""
_END = 2**63 - 1
_MOST_WAITING = 32_768
_MOST_BYTES = 128 << 20
"""Of rows that wait, and of values that were found for them."""
_KEY, _OFFSET = f"{PREFIX}{KEY}", f"{PREFIX}{OFFSET}"


class UnavailableValues:
    def __init__(self, task: PartitionTask) -> None:
        self._task = task
        self._columns = [each.name for each in task.rows.row if _may_lack(each.type)]
        self._known_until: int | None = None
        self.missing_rows = 0
        """Rows with a value that was found nowhere: it stays as Debezium wrote it."""

    def filled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows, with the values that are known; those that had to wait are last."""
        waiting: list[pa.RecordBatch] = []
        for rows in batches:
            lacks = self._lacking(rows)
            if not lacks.any():
                yield rows
                continue
            if not lacks.all():
                yield rows.filter(pa.array(~lacks))
            waiting.append(rows.filter(pa.array(lacks)))
            is_full = sum(each.nbytes for each in waiting) >= _MOST_BYTES
            if is_full or sum(each.num_rows for each in waiting) >= _MOST_WAITING:
                yield from self._completed(_joined(waiting))
                waiting = []
        if waiting:
            yield from self._completed(_joined(waiting))

    def _lacking(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        found = np.zeros(rows.num_rows, bool)
        for name in self._columns:
            found |= _is_unavailable(rows.column(name))
        return found

    def _completed(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found = self._values_for(rows)
        if found is None:
            middle = rows.num_rows // 2
            yield from self._completed(rows.slice(0, middle))
            yield from self._completed(rows.slice(middle))
            return
        unknown = {place for values in found.values() for place, each in values.items() if each is _MISSING}
        self.missing_rows += len(unknown)
        for name, values in found.items():
            column = rows.column(name)
            known = {place: each for place, each in values.items() if each is not _MISSING}
            merged = pa.array([known.get(place, each) for place, each in enumerate(column.to_pylist())], column.type)
            number = rows.schema.get_field_index(name)
            rows = rows.set_column(number, rows.schema.field(number), merged)
        yield rows

    def _values_for(self, rows: pa.RecordBatch) -> dict[str, dict[int, object]] | None:
        """By column and place, `_MISSING` where there is none. None if they are too many bytes for several rows."""
        lacking = {name: np.flatnonzero(_is_unavailable(rows.column(name))).tolist() for name in self._columns}
        found: dict[str, dict[int, object]] = {
            name: dict.fromkeys(places, _MISSING) for name, places in lacking.items() if places
        }
        size_bytes = 0
        for place, earlier, row in self._earlier(rows, list(found)):
            for name, values in found.items():
                if earlier is None:
                    if place in values:
                        size_bytes -= _size(values[place])
                        values[place] = _MISSING
                elif place in values and not _is_unavailable(earlier.column(name).slice(row, 1))[0]:
                    value = earlier.column(name)[row].as_py()
                    size_bytes += _size(value) - _size(values[place])
                    values[place] = value
            if size_bytes > _MOST_BYTES and rows.num_rows > 1:
                return None
        return found

    def _earlier(self, rows: pa.RecordBatch, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch | None, int]]:
        """Earlier rows of the same keys, in order: the place of the one that waits, a batch, and the row in it.

        Instead of the batch None for an event that does not decode.
        """
        task = self._task
        digests = digests_of_keys(rows.column(_KEY), task.rows.identity)
        places = {each.tobytes(): place for place, each in enumerate(digests)}
        beginnings = np.sort(digests[:, 0])
        offsets = rows.column(_OFFSET).to_numpy()

        def is_wanted(found: Digests) -> NDArray[np.bool_]:
            at = np.minimum(np.searchsorted(beginnings, found[:, 0]), len(beginnings) - 1)
            same: NDArray[np.bool_] = beginnings[at] == found[:, 0]
            return same

        def matches(batch: pa.RecordBatch, until: int) -> Iterator[tuple[int, pa.RecordBatch | None, int]]:
            is_bad = np.zeros(batch.num_rows, bool)
            if task.rows.has_corrupt:
                is_bad = np.asarray(batch.column(CORRUPT).is_valid())
            found = digests_of_keys(batch.column(_KEY), task.rows.identity)
            at = batch.column(_OFFSET).to_numpy()
            for row in np.flatnonzero(is_wanted(found)).tolist():
                place = places.get(found[row].tobytes())
                if place is not None and task.first_offset <= at[row] < offsets[place] < until:
                    yield place, None if is_bad[row] else batch, row

        needed = [_KEY, _OFFSET, *([CORRUPT] if task.rows.has_corrupt else []), *names]
        for path in task.files:
            for batch in columns_of_file(task.target, path, needed):
                yield from matches(batch, self._until())
        for records in records_of_keys(task.slices, is_wanted, task.rows.columns, task.rows.identity):
            yield from matches(task.rows.of(records.filter(records.column(VALUE).is_valid())).batch, _END)

    def _until(self) -> int:
        """Up to where the log has all events that came after the previous snapshot."""
        if self._known_until is None:
            self._known_until = first_gap(self._task.slices, self._task.previous_end)
        return self._known_until


class _Missing:
    pass


_MISSING = _Missing()


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    [rows] = pa.Table.from_batches(waiting).combine_chunks().to_batches()
    return rows


def _size(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 0


def _may_lack(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_list(type_))


def _is_unavailable(column: pa.Array) -> NDArray[np.bool_]:
    if not pa.types.is_list(column.type):
        values = pa.array([_BYTES]) if pa.types.is_binary(column.type) else _TEXTS
        return np.asarray(pc.is_in(column, value_set=values))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    found = np.zeros(len(column), bool)
    for row in np.flatnonzero((lengths == 1) | (lengths == len(_BYTES))).tolist():
        found[row] = column[row].as_py() in _AS_LISTS
    return found
