"""What happens to damage with `mode=PERMISSIVE`: damaged batches are left out, payloads that do not decode are null.

All of it is reported. Without a `mode`, that is so for payloads, and damaged batches are errors.

A damaged batch has no rows that could be trusted, not even a number of them; what is known is the file, the bytes, the
offsets that may be missing, and why. There are two places for that, as users of Spark know them from its own sources:

- The column `_corrupt`, which a read has by default: each damaged batch is one row, with its topic,
  its partition and its first offset, and nulls in the other columns. `where("_corrupt is null")` are the records.
- The option `badRecordsPath`, a folder: the rows are the records alone, and each task that found damage leaves a file
  of JSON lines there, so that `spark.read.json(folder)` is the report. A file has its name from what the task read: a
  task that is repeated writes it again, and nothing is counted twice. It is complete before it has its name.

One of the two must be there: a read that would leave batches out silently is refused. Of payloads that are null and
in neither, the task logs how many there are.

A payload that does not decode is reported with its bytes: in the column `_corrupt` of its own row, or as a line. Lines
are kept until the task ends. After `_MOST_BYTES` of them, what follows is counted, and is the last line.

Fields of JSON that the sampled records do not have are in no column. They are no damage, so any mode reads on: a task
names them in a line, and logs them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from duralog.columnar import schema as record_schema
from duralog.scanning.locations import Location
from duralog.scanning.slices import CorruptBytes, Slice
from duralog.schemas.typed_columns import DecodedRecords
from duralog.spark.source.spark_schema import CORRUPT, Columns

_MOST_BYTES = 16 << 20
_PLACE = (record_schema.TOPIC, record_schema.PARTITION, record_schema.OFFSET)
_PAYLOADS = (record_schema.KEY, record_schema.VALUE)


class CorruptReport:
    """Of one task. `add` is what the reader of slices calls at damage."""

    def __init__(self, folder: Location | None, decoded_types: str, slices: Sequence[Slice]) -> None:
        self._folder = folder
        self._decoded_types = decoded_types
        self._slices = slices
        self._pending: list[CorruptBytes] = []
        self._lines: list[str] = []
        self._left_bytes = _MOST_BYTES
        self._more: dict[tuple[str, int], _More] = {}
        """Payloads that have no line of their own, by partition."""

    def add(self, damage: CorruptBytes) -> None:
        if self._folder is None:
            self._pending.append(damage)
        else:
            where = {"topic": damage.topic, "partition": damage.partition}
            self._lines.append(json.dumps({**where, **_fields(damage)}))

    def add_payloads(self, decoded: DecodedRecords) -> None:
        """Payloads that do not decode. With the column, their rows have them already."""
        if self._folder is None or not decoded.bad:
            return
        rows = decoded.corrupt().to_pylist()
        for number, row in enumerate(rows):
            if row is not None:
                topic, partition, offset = (decoded.columns[name][number].as_py() for name in _PLACE)
                self._add_payload(topic, partition, offset, row)

    def _add_payload(self, topic: str, partition: int, offset: int, row: dict[str, Any]) -> None:
        if self._left_bytes <= 0:
            more = self._more.setdefault((topic, partition), _More(offset, row["reason"]))
            more.last_offset, more.count = offset, more.count + 1
            return
        payloads = {name: base64.b64encode(row[name]).decode() for name in _PAYLOADS if row[name] is not None}
        line = {"topic": topic, "partition": partition, "firstOffset": offset, "lastOffset": offset}
        self._lines.append(json.dumps({**line, "reason": row["reason"], **payloads}))
        self._left_bytes -= len(self._lines[-1])

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

    def add_left_out(self, sentence: str) -> None:
        """Fields that no column has. With the column, nothing is wrong with their rows: the log has them."""
        first, last = self._slices[0], self._slices[-1]
        # Of several partitions, the line is not of one.
        is_one = (first.topic, first.partition) == (last.topic, last.partition)
        place = {"partition": first.partition, "firstOffset": first.start_offset, "lastOffset": last.end_offset - 1}
        self._lines.append(json.dumps({"topic": first.topic, **(place if is_one else {}), "reason": sentence}))

    def write(self, *, is_complete: bool) -> None:
        """The file of the task, if it has something to report.

        A task that was stopped before its end, as by a limit, leaves the report of one that was not.
        """
        if self._folder is None or not self._lines:
            return
        # Not at the top: hardly any task needs it.
        from duralog.spark.lake.targets import LakeTarget

        target = LakeTarget(self._folder.url, dict(self._folder.options))
        name = _file_name(self._slices, self._decoded_types)
        if is_complete or not target.exists(name):
            lines = [*self._lines, *(json.dumps(more.line(*place)) for place, more in self._more.items())]
            target.replace(name, "".join(f"{line}\n" for line in lines).encode())


@dataclass(slots=True)
class _More:
    first_offset: int
    reason: str
    last_offset: int = 0
    count: int = 0

    def line(self, topic: str, partition: int) -> dict[str, object]:
        return {
            "topic": topic,
            "partition": partition,
            "firstOffset": self.first_offset,
            "lastOffset": self.last_offset,
            "reason": f"{self.count} more payloads between these offsets do not decode; the first one: {self.reason}",
        }


def _file_name(slices: Sequence[Slice], decoded_types: str) -> str:
    """The same for the same offsets of the same directory, decoded alike, and for no others.

    Reads may share a folder.
    """
    first = slices[0]
    read = [(part.location.url, part.topic, part.partition, part.start_offset, part.end_offset) for part in slices]
    digest = sha256(json.dumps([read, decoded_types]).encode()).hexdigest()[:16]
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
