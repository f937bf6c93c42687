"""How a payload names its schema: prefixes and headers, split off whole columns at once.

| framing | bytes before the payload |
|---|---|
| `confluent` | 0, a four-byte id; or a header with 1 and a 16-byte GUID, or with 0 and an id |
| `apicurio` | 0, an eight-byte id |
| `glue` | 3, a compression byte (0 none, 5 zlib), the 16-byte UUID of a schema version |
| `none` | none: all payloads have the schema that the reader names |

All numbers are big-endian. A Protobuf payload of Confluent's framing has message indexes after the id: a count and as
many indexes as zigzag varints, where a count of 0 means the first message.

Everything here works on arrays. A row that is not what its framing demands gets a fault instead of an exception, and
its bytes are not read beyond its end.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from duralog.errors import SchemaError

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAX_INDEXES = 16
"""Of one Protobuf payload: how deep the message type may be nested."""

MAX_COLUMN_BYTES = (2 << 30) - (64 << 20)
"""Of all payloads of a column: what columns of text and bytes can hold."""

MAX_INFLATED_BYTES = 64 << 20
"""Of one payload that Glue's serializer compressed."""

MAX_INFLATED_COLUMN_BYTES = 1 << 30
"""Of all compressed payloads of one column."""

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"
"""Headers in which Confluent's serializers put the GUID if they are set to leave the payload as it is."""


class Framing(StrEnum):
    """Where the schema's id is."""

    CONFLUENT = "confluent"
    APICURIO = "apicurio"
    GLUE = "glue"
    NONE = "none"


class FrameFault(IntEnum):
    """Why a row's schema could not be found out."""

    NONE = 0
    SHORT = 1
    MAGIC = 2
    COMPRESSION = 3
    INFLATE = 4
    INDEXES = 5
    HEADER = 6


FAULT_TEXTS = {
    FrameFault.SHORT: "the payload is shorter than the prefix with the schema id",
    FrameFault.MAGIC: "the payload does not start with the magic byte of its framing",
    FrameFault.COMPRESSION: "the compression byte is neither 0 nor 5",
    FrameFault.INFLATE: "the compressed payload is damaged or too large",
    FrameFault.INDEXES: "the Protobuf message indexes are damaged",
    FrameFault.HEADER: "the header with the schema id is damaged",
}


@dataclass(frozen=True, slots=True)
class Frames:
    """A column, split: where each payload is, and which schema wrote it."""

    data: npt.NDArray[np.uint8]
    starts: Int64s
    ends: Int64s
    valid: Bools
    """Not null."""
    faults: npt.NDArray[np.uint8]
    schemas: npt.NDArray[np.int32]
    """A number into `ids`; -1 where there is none: null rows, faults, payloads without an id."""
    ids: tuple[int | UUID, ...]
    messages: npt.NDArray[np.int32]
    """A number into `paths`; -1 for all but Protobuf's payloads."""
    paths: tuple[tuple[int, ...], ...] = ()
    """Where message types are in their file: the place of the outermost one, then of a nested one in it, ..."""

    def __len__(self) -> int:
        return len(self.starts)


def split_frames(
    payloads: pa.Array,
    framing: Framing,
    headers: pa.Array | None = None,
    *,
    header: str = VALUE_HEADER,
    indexes: bool = False,
) -> Frames:
    """Splits the prefixes off a binary column.

    `header` is what Confluent's framing looks for in `headers` first. With `indexes`, message indexes follow the id.
    """
    frames = _unsplit(payloads)
    if framing is Framing.NONE:
        return frames
    if framing is Framing.APICURIO:
        return _split_ids(frames, 8, frames.valid)
    if framing is Framing.GLUE:
        return _split_glue(frames)
    named = None if headers is None else _unsplit(headers_named(headers, header))
    if named is None or not named.valid.any():
        split = _split_ids(frames, 4, frames.valid)
        return _split_indexes(split) if indexes else split
    return _split_confluent(frames, named, indexes)


def headers_named(headers: pa.Array, name: str) -> pa.Array:
    """The value of each row's last header of a name, null where there is none."""
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    offsets = np.asarray(headers.offsets).astype(np.int64)
    items = headers.values
    same = pc.fill_null(pc.equal(items.field("key"), name), False)
    found = np.flatnonzero(np.asarray(same, dtype=bool))
    found = found[(found >= offsets[0]) & (found < offsets[-1])]
    # Which list an item is in: the last one that starts at or before it.
    rows = np.searchsorted(offsets, found, side="right") - 1
    places = np.full(len(headers), -1, np.int64)
    # In order: of several of one row, the last stays.
    places[rows] = found
    places[~np.asarray(pc.is_valid(headers), dtype=bool)] = -1
    return items.field("value").take(pa.array(places, mask=places < 0))


def _unsplit(payloads: pa.Array) -> Frames:
    if payloads.nbytes > MAX_COLUMN_BYTES:
        raise SchemaError(
            f"a column of {payloads.nbytes:,} bytes is too large to be decoded at once: decode it in batches of less "
            f"than {MAX_COLUMN_BYTES:,} bytes"
        )
    if isinstance(payloads, pa.ChunkedArray):
        payloads = payloads.combine_chunks()
    large = pa.types.is_large_binary(payloads.type) or pa.types.is_large_string(payloads.type)
    if not (large or pa.types.is_binary(payloads.type) or pa.types.is_string(payloads.type)):
        # Views, dictionaries and the like.
        payloads = payloads.cast(pa.binary())
    count = len(payloads)
    _, offset_buffer, data_buffer = payloads.buffers()
    width: type[np.generic] = np.int64 if large else np.int32
    if offset_buffer is None or count == 0:
        offsets = np.zeros(count + 1, np.int64)
    else:
        offsets = np.frombuffer(offset_buffer, width)[payloads.offset : payloads.offset + count + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    valid = np.ones(count, bool) if payloads.null_count == 0 else np.asarray(pc.is_valid(payloads), dtype=bool)
    none = np.full(count, -1, np.int32)
    return Frames(data, offsets[:-1], offsets[1:], valid, np.zeros(count, np.uint8), none, (), none)


def _split_ids(frames: Frames, width: int, rows: Bools) -> Frames:
    """The magic byte 0 and an id of some bytes, in the given rows."""
    faults = frames.faults.copy()
    long_enough = frames.ends - frames.starts >= width + 1
    faults[rows & ~long_enough] = FrameFault.SHORT
    rows = rows & long_enough
    magic = _bytes_at(frames.data, frames.starts, rows)
    faults[rows & (magic != 0)] = FrameFault.MAGIC
    rows = rows & (magic == 0)
    value = np.zeros(len(frames), np.int64)
    for place in range(1, width + 1):
        value = (value << 8) | _bytes_at(frames.data, frames.starts + place, rows)
    numbers = frames.schemas.copy()
    ids = list(frames.ids)
    if rows.any():
        found, kinds = np.unique(value[rows], return_inverse=True)
        numbers[rows] = kinds + len(ids)
        ids += found.tolist()
    starts = np.where(rows, frames.starts + width + 1, frames.starts)
    return replace(frames, starts=starts, faults=faults, schemas=numbers, ids=tuple(ids))


def _split_uuids(frames: Frames, skip: int, rows: Bools) -> Frames:
    """A UUID after some bytes, in rows that are long enough."""
    numbers = frames.schemas.copy()
    ids = list(frames.ids)
    if rows.any():
        places = frames.starts[rows][:, None] + np.arange(skip, skip + 16)
        found = np.ascontiguousarray(frames.data[places])
        examples, kinds = _distinct(list(found.view(np.int64).T))
        numbers[rows] = kinds + len(ids)
        ids += [UUID(bytes=row.tobytes()) for row in found[examples]]
    starts = np.where(rows, frames.starts + skip + 16, frames.starts)
    return replace(frames, starts=starts, schemas=numbers, ids=tuple(ids))


def _split_confluent(frames: Frames, named: Frames, indexes: bool) -> Frames:
    """By the header where a row has one, else by the prefix. A header holds what the prefix would, indexes too."""
    with_header = named.valid & frames.valid
    split = _split_ids(frames, 4, frames.valid & ~with_header)
    sizes = named.ends - named.starts
    magic = _bytes_at(named.data, named.starts, with_header & (sizes > 0))
    is_guid = with_header & (magic == 1) & (sizes >= 17)
    is_id = with_header & (magic == 0) & (sizes >= 5)
    found = _split_ids(_split_uuids(named, 1, is_guid), 4, is_id)
    if indexes:
        split, found = _split_indexes(split), _split_indexes(found)
    good = is_guid | is_id
    faults = split.faults.copy()
    faults[good] = found.faults[good]
    faults[with_header & ~good] = FrameFault.HEADER
    return replace(
        split,
        faults=faults,
        schemas=_joined(split.schemas, found.schemas, len(split.ids)),
        ids=(*split.ids, *found.ids),
        messages=_joined(split.messages, found.messages, len(split.paths)),
        paths=(*split.paths, *found.paths),
    )


def _joined(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int32]:
    return np.where(second >= 0, second + np.int32(count), first).astype(np.int32)


def _split_indexes(frames: Frames) -> Frames:
    """Splits the message indexes off the rows that have an id."""
    position, faults = frames.starts.copy(), frames.faults.copy()
    active = (frames.schemas >= 0) & (faults == 0)
    count, position, good = _zigzags(frames, position, active)
    good &= (count >= 0) & (count <= MAX_INDEXES)
    faults[active & ~good] = FrameFault.INDEXES
    active &= good
    # The steps of each row's path, -1 beyond its end.
    path = [np.where(count == 0, 0, -1)]
    for place in range(int(count[active].max(initial=0))):
        reading = active & (count > place)
        value, position, good = _zigzags(frames, position, reading)
        good &= value >= 0
        faults[reading & ~good] = FrameFault.INDEXES
        active &= ~reading | good
        if place:
            path.append(np.full(len(frames), -1, np.int64))
        path[place][reading & good] = value[reading & good]
    numbers = np.full(len(frames), -1, np.int32)
    paths: list[tuple[int, ...]] = []
    if active.any():
        steps = [each[active] for each in path]
        examples, kinds = _distinct(steps)
        numbers[active] = kinds
        paths = [tuple(int(each[row]) for each in steps if each[row] >= 0) for row in examples]
    starts = np.where(active, position, frames.starts)
    return replace(frames, starts=starts, faults=faults, messages=numbers, paths=tuple(paths))


def _split_glue(frames: Frames) -> Frames:
    faults = frames.faults.copy()
    rows = frames.valid & (frames.ends - frames.starts >= 18)
    faults[frames.valid & ~rows] = FrameFault.SHORT
    version = _bytes_at(frames.data, frames.starts, rows)
    compression = _bytes_at(frames.data, frames.starts + 1, rows)
    faults[rows & (version != 3)] = FrameFault.MAGIC
    rows &= version == 3
    faults[rows & (compression != 0) & (compression != 5)] = FrameFault.COMPRESSION
    rows &= (compression == 0) | (compression == 5)
    split = replace(_split_uuids(frames, 2, rows), faults=faults)
    return _inflated(split, np.flatnonzero(rows & (compression == 5)))


def _inflated(frames: Frames, rows: Int64s) -> Frames:
    """The frames with the payloads of some rows decompressed, after the others' bytes."""
    if not len(rows):
        return frames
    starts, ends, faults = frames.starts.copy(), frames.ends.copy(), frames.faults.copy()
    pieces: list[bytes] = []
    size = len(frames.data)
    limit = min(size + MAX_INFLATED_COLUMN_BYTES, MAX_COLUMN_BYTES)
    # Each payload is a stream of its own: only here a row costs a call.
    for row in rows:
        inflater = zlib.decompressobj()
        try:
            piece = inflater.decompress(frames.data[starts[row] : ends[row]].tobytes(), MAX_INFLATED_BYTES + 1)
        except zlib.error:
            piece = b""
        if not inflater.eof or inflater.unused_data or len(piece) > MAX_INFLATED_BYTES or size + len(piece) > limit:
            faults[row] = FrameFault.INFLATE
            continue
        starts[row], ends[row] = size, size + len(piece)
        size += len(piece)
        pieces.append(piece)
    data = np.concatenate([frames.data, np.frombuffer(b"".join(pieces), np.uint8)])
    return replace(frames, data=data, starts=starts, ends=ends, faults=faults)


def _distinct(columns: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """Rows of several columns that are the same: a row of each kind, and the kind of each row."""
    if all((column == column[0]).all() for column in columns):
        return np.zeros(1, np.int64), np.zeros(len(columns[0]), np.int64)
    kinds = np.zeros(len(columns[0]), np.int64)
    examples = kinds[:1]
    for column in columns:
        # One number for the kind so far and the value: `np.unique` of rows (`axis=0`) takes 5 to 50 times as long.
        _, values = np.unique(column, return_inverse=True)
        _, examples, kinds = np.unique(kinds * (values.max() + 1) + values, return_index=True, return_inverse=True)
    return examples, kinds


def _bytes_at(data: npt.NDArray[np.uint8], positions: Int64s, rows: Bools) -> Int64s:
    """The byte at a position in each of the given rows, 0 in the others."""
    found = np.zeros(len(positions), np.int64)
    found[rows] = data[positions[rows]]
    return found


def _zigzags(frames: Frames, positions: Int64s, rows: Bools) -> tuple[Int64s, Int64s, Bools]:
    """A zigzag varint of up to five bytes in each of the given rows: values, positions after them, which are good."""
    value = np.zeros(len(frames), np.int64)
    positions = positions.copy()
    finished = np.zeros(len(frames), bool)
    for shift in range(0, 35, 7):
        rows = rows & (positions < frames.ends)
        byte = _bytes_at(frames.data, positions, rows)
        value |= (byte & 0x7F) << shift
        positions[rows] += 1
        finished |= rows & (byte < 0x80)
        rows = rows & (byte >= 0x80)
        if not rows.any():
            break
    return (value >> 1) ^ -(value & 1), positions, finished
