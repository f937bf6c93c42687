"""The fixed binary layouts of Kafka's files, each declared once.

A `Layout` is a table of fields. From the table come the `struct` that the plain code uses, the byte positions
that the kernels use, and the tables of `docs/formats.md`. All integers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

_STRUCT_CODES = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
}


@dataclass(frozen=True, slots=True)
class LayoutField:
    name: str
    type: str
    doc: str

    @property
    def size(self) -> int:
        return struct.calcsize(">" + _STRUCT_CODES[self.type])


class Layout:
    """A run of fixed-size fields. `at.<field>` is the field's byte position from the layout's start."""

    def __init__(self, title: str, *fields: tuple[str, str, str], size: int) -> None:
        self.title = title
        self.fields = tuple(LayoutField(*field) for field in fields)
        self.struct = struct.Struct(">" + "".join(_STRUCT_CODES[f.type] for f in self.fields))
        self.size = self.struct.size
        assert self.size == size, f"{title}: the table gives {self.size} bytes, not {size}"
        position = 0
        positions: dict[str, int] = {}
        for field in self.fields:
            positions[field.name] = position
            position += field.size
        self.at: Any = SimpleNamespace(**positions)

    def unpack(self, buffer: Any, position: int = 0) -> tuple[int, ...]:
        """The field values at `position`. REQUIRES: `size` bytes are there."""
        return self.struct.unpack_from(buffer, position)

    def pack(self, *values: int) -> bytes:
        return self.struct.pack(*values)


ENTRY_PREFIX = Layout(
    "What every batch and message starts with",
    ("offset", "int64", "v2: the first offset of the batch; v0 and v1: the offset of the last record inside"),
    ("length", "int32", "bytes that follow this field"),
    size=12,
)

MESSAGE_V0 = Layout(
    "Message, format v0 (to the key length)",
    ("offset", "int64", "the record's offset; of a compressed message, its last inner record's"),
    ("length", "int32", "bytes that follow this field, at least 14"),
    ("crc", "uint32", "CRC-32 of everything from magic to the end"),
    ("magic", "int8", "0"),
    ("attributes", "int8", "bits 0-2: codec (none, gzip, snappy, lz4)"),
    ("key_length", "int32", "-1 for no key; key, value length (int32) and value follow"),
    size=22,
)

MESSAGE_V1 = Layout(
    "Message, format v1 (to the key length)",
    ("offset", "int64", "as in v0; inside a compressed message: relative, 0, 1, 2 and so on"),
    ("length", "int32", "bytes that follow this field, at least 22"),
    ("crc", "uint32", "CRC-32 of everything from magic to the end"),
    ("magic", "int8", "1"),
    ("attributes", "int8", "bits 0-2: codec; bit 3: timestamp type, 1 for log append time"),
    ("timestamp", "int64", "milliseconds; of a compressed message, the largest inside or the append time"),
    ("key_length", "int32", "-1 for no key; key, value length (int32) and value follow"),
    size=30,
)

BATCH_V2 = Layout(
    "Record batch, format v2: the header",
    ("base_offset", "int64", "offset of the first record that the batch was written with; outside the CRC"),
    ("length", "int32", "bytes that follow this field, at least 49"),
    ("leader_epoch", "int32", "partition leader epoch, -1 from clients; outside the CRC"),
    ("magic", "int8", "2"),
    ("crc", "uint32", "CRC-32C of everything from attributes to the end"),
    (
        "attributes",
        "int16",
        "bits 0-2: codec; 3: log append time; 4: transactional; 5: control; 6: delete horizon set",
    ),
    ("last_offset_delta", "int32", "last offset minus base offset; survives compaction"),
    ("base_timestamp", "int64", "what the records' timestamp deltas count from; the delete horizon with bit 6"),
    ("max_timestamp", "int64", "largest timestamp inside, or the append time"),
    ("producer_id", "int64", "-1 for none"),
    ("producer_epoch", "int16", "-1 for none"),
    ("base_sequence", "int32", "-1 for none"),
    ("record_count", "int32", "records that follow, compressed as a whole when there is a codec"),
    size=61,
)

CONTROL_KEY = Layout(
    "Control record: the key",
    ("version", "int16", "0"),
    (
        "type",
        "int16",
        "0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer, 5 kraft version, 6 voters",
    ),
    size=4,
)

END_TRANSACTION_MARKER = Layout(
    "Control record: the value of a commit or an abort",
    ("version", "int16", "0"),
    ("coordinator_epoch", "int32", "epoch of the transaction coordinator that wrote the marker"),
    size=6,
)

OFFSET_INDEX_ENTRY = Layout(
    "`.index` entry",
    ("relative_offset", "int32", "last offset of a batch, minus the segment's base offset"),
    ("position", "int32", "where that batch starts in the `.log` file"),
    size=8,
)

TIME_INDEX_ENTRY = Layout(
    "`.timeindex` entry",
    ("timestamp", "int64", "largest timestamp in the segment so far"),
    ("relative_offset", "int32", "last offset of the first batch that reaches it, minus the segment's base offset"),
    size=12,
)

TRANSACTION_INDEX_ENTRY = Layout(
    "`.txnindex` entry: one aborted transaction",
    ("version", "int16", "0"),
    ("producer_id", "int64", "whose transaction"),
    ("first_offset", "int64", "its first record"),
    ("last_offset", "int64", "its abort marker"),
    ("last_stable_offset", "int64", "the last stable offset when the marker was written"),
    size=34,
)

PRODUCER_SNAPSHOT_HEADER = Layout(
    "`.snapshot` header",
    ("version", "int16", "1"),
    ("crc", "uint32", "CRC-32C of everything from the entry count to the end"),
    ("entry_count", "int32", "entries that follow"),
    size=10,
)

PRODUCER_SNAPSHOT_ENTRY = Layout(
    "`.snapshot` entry: one producer",
    ("producer_id", "int64", ""),
    ("producer_epoch", "int16", ""),
    ("last_sequence", "int32", "-1 for none"),
    ("last_offset", "int64", "last data offset, -1 for none"),
    ("offset_delta", "int32", "last minus first offset of the last batch, 0 for none"),
    ("timestamp", "int64", "largest timestamp of the last batch"),
    ("coordinator_epoch", "int32", "-1 for none"),
    ("transaction_first_offset", "int64", "where the open transaction starts, -1 for none"),
    size=46,
)

LAYOUTS = (
    ENTRY_PREFIX,
    MESSAGE_V0,
    MESSAGE_V1,
    BATCH_V2,
    CONTROL_KEY,
    END_TRANSACTION_MARKER,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    PRODUCER_SNAPSHOT_HEADER,
    PRODUCER_SNAPSHOT_ENTRY,
)

MAGIC_POSITION = BATCH_V2.at.magic
"""Where the format version stands, in every format."""
assert MAGIC_POSITION == MESSAGE_V0.at.magic == MESSAGE_V1.at.magic

MIN_BATCH_BYTES = (
    MESSAGE_V0.size + 4,
    MESSAGE_V1.size + 4,
    BATCH_V2.size,
)
"""The smallest whole batch or message of each format version, its prefix included."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
