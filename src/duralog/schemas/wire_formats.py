"""How a payload names its schema: prefixes and headers, split off whole columns at once.

| framing | bytes before the payload |
|---|---|
| `confluent` | 0, a four-byte id; or a header with 1 and a 16-byte GUID, or with 0 and an id |
| `apicurio` | 0, an eight-byte id: Apicurio 2 |
| `apicurio3` | 0, a four-byte id: Apicurio 3, which differs from `confluent` for Protobuf alone |
| `glue` | 3, a compression byte (0 none, 5 zlib), the 16-byte UUID of a schema version |
| `none` | none: all payloads have the schema that the reader names |

All numbers are big-endian. What a Protobuf payload has after the id is in `message_places`.

Everything here works on arrays. A row that is not what its framing demands gets a fault instead of an exception, and
its bytes are not read beyond its end.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from duralog.errors import SchemaError
from duralog.schemas.frames import Bools, FrameFault, Frames, Int64s, bytes_at, distinct
from duralog.schemas.message_places import split_indexes, split_numbers, split_refs

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
    APICURIO3 = "apicurio3"
    GLUE = "glue"
    NONE = "none"


def split_frames(
    payloads: pa.Array,
    framing: Framing,
    headers: pa.Array | None = None,
    *,
    header: str = VALUE_HEADER,
    messages: bool = False,
) -> Frames:
    """Splits the prefixes off a binary column.

    `header` is what Confluent's framing looks for in `headers` first. With `messages`, Protobuf's message type follows
    the id.
    """
    frames = _unsplit(payloads)
    if framing is Framing.NONE:
        return frames
    if framing in (Framing.APICURIO, Framing.APICURIO3):
        split = _split_ids(frames, 8 if framing is Framing.APICURIO else 4, frames.valid)
        return split_refs(split) if messages else split
    if framing is Framing.GLUE:
        split = _split_glue(frames)
        return split_numbers(split) if messages else split
    named = None if headers is None else _unsplit(headers_named(headers, header))
    if named is None or not named.valid.any():
        split = _split_ids(frames, 4, frames.valid)
        return split_indexes(split) if messages else split
    return _split_confluent(frames, named, messages)


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
    magic = bytes_at(frames.data, frames.starts, rows)
    faults[rows & (magic != 0)] = FrameFault.MAGIC
    rows = rows & (magic == 0)
    value = np.zeros(len(frames), np.int64)
    for place in range(1, width + 1):
        value = (value << 8) | bytes_at(frames.data, frames.starts + place, rows)
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
        examples, kinds = distinct(list(found.view(np.int64).T))
        numbers[rows] = kinds + len(ids)
        ids += [UUID(bytes=row.tobytes()) for row in found[examples]]
    starts = np.where(rows, frames.starts + skip + 16, frames.starts)
    return replace(frames, starts=starts, schemas=numbers, ids=tuple(ids))


def _split_confluent(frames: Frames, named: Frames, messages: bool) -> Frames:
    """By the header where a row has one, else by the prefix. A header holds what the prefix would, indexes too."""
    with_header = named.valid & frames.valid
    split = _split_ids(frames, 4, frames.valid & ~with_header)
    sizes = named.ends - named.starts
    magic = bytes_at(named.data, named.starts, with_header & (sizes > 0))
    is_guid = with_header & (magic == 1) & (sizes >= 17)
    is_id = with_header & (magic == 0) & (sizes >= 5)
    found = _split_ids(_split_uuids(named, 1, is_guid), 4, is_id)
    if messages:
        split, found = split_indexes(split), split_indexes(found)
    good = is_guid | is_id
    faults = split.faults.copy()
    faults[good] = found.faults[good]
    faults[with_header & ~good] = FrameFault.HEADER
    return replace(
        split,
        faults=faults,
        schemas=_joined(split.schemas, found.schemas, len(split.ids)),
        ids=(*split.ids, *found.ids),
        messages=_joined(split.messages, found.messages, len(split.places)),
        places=(*split.places, *found.places),
    )


def _joined(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int32]:
    return np.where(second >= 0, second + np.int32(count), first).astype(np.int32)


def _split_glue(frames: Frames) -> Frames:
    faults = frames.faults.copy()
    rows = frames.valid & (frames.ends - frames.starts >= 18)
    faults[frames.valid & ~rows] = FrameFault.SHORT
    version = bytes_at(frames.data, frames.starts, rows)
    compression = bytes_at(frames.data, frames.starts + 1, rows)
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
