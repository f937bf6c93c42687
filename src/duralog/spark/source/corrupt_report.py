"""What happens to damaged batches with `mode=PERMISSIVE`: they are left out, and each of them is reported.

A damaged batch has no rows that could be trusted, not even a number of them; what is known is the file, the bytes, the
offsets that may be missing, and why. There are two places for that, as users of Spark know them from its own sources:

- The column `_corrupt`, which a read has by default: each damaged batch is one row, with its topic,
  its partition and its first offset, and nulls in the other columns. `where("_corrupt is null")` are the records.
- The option `badRecordsPath`, a folder: the rows are the records alone, and each task that found damage leaves a file
  of JSON lines there, so that `spark.read.json(folder)` is the report. A file has its name from what the task read: a
  task that is repeated writes it again, and nothing is counted twice. It is complete before it has its name.

One of the two must be there: a read that would leave something out silently is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256

import pyarrow as pa

from duralog.columnar import schema as record_schema
from duralog.scanning.locations import Location
from duralog.scanning.slices import CorruptBytes, Slice
from duralog.spark.source.spark_schema import CORRUPT, Columns


class CorruptReport:
    """Of one task. `add` is what the reader of slices calls at damage."""

    def __init__(self, folder: Location | None) -> None:
        self._folder = folder
        self._pending: list[CorruptBytes] = []
        self._lines: list[str] = []

    def add(self, damage: CorruptBytes) -> None:
        if self._folder is None:
            self._pending.append(damage)
        else:
            where = {"topic": damage.topic, "partition": damage.partition}
            self._lines.append(json.dumps({**where, **_fields(damage)}))

    def take_rows(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        """The damage since the last call, for the column."""
        if self._pending:
            yield columns.rows(
                {
                    record_schema.TOPIC: damage.topic,
                    record_schema.PARTITION: damage.partition,
                    record_schema.OFFSET: damage.first_offset,
                    CORRUPT: _fields(damage),
                }
                for damage in self._pending
            )
            self._pending.clear()

    def write(self, slices: Sequence[Slice], *, is_complete: bool) -> None:
        """The file of a task that read these slices, if it found damage.

        A task that was stopped before its end, as by a limit, leaves the report of one that was not.
        """
        if self._folder is None or not self._lines:
            return
        # Not at the top: hardly any task needs it.
        from duralog.spark.lake.targets import LakeTarget

        target = LakeTarget(self._folder.url, dict(self._folder.options))
        name = _file_name(slices)
        if is_complete or not target.exists(name):
            target.replace(name, "".join(f"{line}\n" for line in self._lines).encode())


def _file_name(slices: Sequence[Slice]) -> str:
    """The same for the same offsets of the same directory, and for no others: reads may share a folder."""
    first = slices[0]
    read = [(part.location.url, part.topic, part.partition, part.start_offset, part.end_offset) for part in slices]
    digest = sha256(json.dumps(read).encode()).hexdigest()[:16]
    # A topic's name may be nearly as long as that of a file.
    return f"{first.topic[:100]}-{first.partition}-{first.start_offset}-{digest}.json"


def _fields(damage: CorruptBytes) -> dict[str, object]:
    return {
        "file": damage.path,
        "position": damage.position,
        "endPosition": damage.end_position,
        "firstOffset": damage.first_offset,
        "lastOffset": damage.last_offset,
        "reason": damage.reason,
    }
