"""The records that `duralog bench` writes: a few megabytes, repeated.

A key is 16 digits; a value is half repetitive text and half random digits, so that it compresses about as well as JSON
events. Memory does not grow with the size of the measurement.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from duralog.columnar.encode_columns import BatchSettings, encode_columns
from duralog.columnar.writable import writable_columns
from duralog.format.compression import Codec
from duralog.format.record import Record

KEY_BYTES = 16
_TEMPLATE_BYTES = 8 << 20
_BATCH_BYTES = 64 << 10
_TEXT = b'{"customer":"4711","country":"DE","status":"paid","currency":"EUR","source":"web","note":"'
_TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Workload:
    size_bytes: int
    """Of keys and values, for each measurement; the slower ones use a fraction of it."""
    record_bytes: int
    codec: Codec

    @cached_property
    def records(self) -> list[Record]:
        """The template. Its keys are all different."""
        count = max(1, min(_TEMPLATE_BYTES, self.size_bytes) // self.record_bytes)
        dice = random.Random(count)
        length = self.record_bytes - KEY_BYTES
        text = (_TEXT * (length // len(_TEXT) + 1))[: length - length // 2]
        return [
            Record(
                key=b"%016d" % number,
                value=text + dice.randbytes(length // 4 + 1).hex().encode()[: length // 2],
                timestamp_ms=_TIME_MS + number,
            )
            for number in range(count)
        ]

    @cached_property
    def table(self) -> pa.Table:
        records = self.records
        return pa.table(
            {
                "key": pa.array([record.key for record in records], pa.binary()),
                "value": pa.array([record.value for record in records], pa.binary()),
                "timestamp": pa.array([record.timestamp_ms for record in records], pa.int64()),
            }
        )

    @cached_property
    def batches(self) -> list[tuple[bytearray, int]]:
        """The template as a producer sends it: batches and their numbers of records. Offsets start at 0 in each."""
        settings = BatchSettings(codec=self.codec, batch_bytes=_BATCH_BYTES)
        encoded = encode_columns(writable_columns(self.table, base_offset=0), settings)
        found: list[tuple[bytearray, int]] = []
        for row in encoded.batches:
            position, size = int(row["position"]), int(row["size"])
            found.append((bytearray(encoded.data[position : position + size]), int(row["record_count"])))
        return found

    def prepare(self) -> None:
        """Build everything before the clock starts."""
        _ = self.batches

    @property
    def template_bytes(self) -> int:
        return len(self.records) * self.record_bytes

    def times(self, part: int = 1) -> int:
        """How often to write the template, for a measurement with 1/`part` of the data."""
        return max(1, round(self.size_bytes / part / self.template_bytes))
