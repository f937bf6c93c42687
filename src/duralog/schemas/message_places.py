"""How a Protobuf payload names its message type, after the id of its schema.

| framing | the message type |
|---|---|
| `confluent` | its place: a count and that number of indexes as zigzag varints; a count of 0 means the first message |
| `apicurio`, `apicurio3` | its name: a varint with the size of a message `Ref`, and that message, whose field 1 it is |
| `glue` | its number among all types of the file, nested ones and entries of maps too, by their full names: a varint |

Each function splits this off the rows that have an id.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from duralog.schemas.frames import Bools, FrameFault, Frames, Int64s, MessagePlace, bytes_at, distinct

MAX_INDEXES = 16
"""Of one Protobuf payload: how deep the message type may be nested."""

MAX_REF_BYTES = 1 << 8
"""Of the name of one Protobuf payload's message type."""

_MAX_INT = 2**31 - 1


def split_indexes(frames: Frames) -> Frames:
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
    places: list[MessagePlace] = []
    if active.any():
        steps = [each[active] for each in path]
        examples, kinds = distinct(steps)
        numbers[active] = kinds
        places = [tuple(int(each[row]) for each in steps if each[row] >= 0) for row in examples]
    starts = np.where(active, position, frames.starts)
    return replace(frames, starts=starts, faults=faults, messages=numbers, places=tuple(places))


def split_numbers(frames: Frames) -> Frames:
    """Splits the number of the message type off the rows that have an id."""
    active = (frames.schemas >= 0) & (frames.faults == 0)
    value, position, good = _varints(frames, frames.starts, active)
    good &= value <= _MAX_INT
    faults = frames.faults.copy()
    faults[active & ~good] = FrameFault.INDEXES
    active &= good
    found, kinds = np.unique(value[active], return_inverse=True)
    numbers = np.full(len(frames), -1, np.int32)
    numbers[active] = kinds
    starts = np.where(active, position, frames.starts)
    return replace(frames, starts=starts, faults=faults, messages=numbers, places=tuple(found.tolist()))


def split_refs(frames: Frames) -> Frames:
    """Splits the message `Ref` with the name of the message type off the rows that have an id."""
    active = (frames.schemas >= 0) & (frames.faults == 0)
    size, position, good = _varints(frames, frames.starts, active)
    good &= (size > 0) & (size <= MAX_REF_BYTES) & (position + size <= frames.ends)
    faults = frames.faults.copy()
    faults[active & ~good] = FrameFault.REF
    active &= good
    numbers = np.full(len(frames), -1, np.int32)
    names: list[MessagePlace] = []
    for length in np.unique(size[active]).tolist():
        rows = np.flatnonzero(active & (size == length))
        refs = np.zeros((len(rows), -(-length // 8) * 8), np.uint8)
        refs[:, :length] = frames.data[position[rows][:, None] + np.arange(length)]
        examples, kinds = distinct(list(refs.view(np.int64).T))
        known = np.full(len(examples), -1, np.int32)
        for kind, row in enumerate(examples):
            name = _name_in(refs[row, :length].tobytes())
            if name is not None:
                known[kind] = len(names)
                names.append(name)
        numbers[rows] = known[kinds]
    faults[active & (numbers < 0)] = FrameFault.REF
    starts = np.where(numbers >= 0, position + size, frames.starts)
    return replace(frames, starts=starts, faults=faults, messages=numbers, places=tuple(names))


def _name_in(ref: bytes) -> str | None:
    """The text in field 1, if it is all that there is."""
    size = len(ref) - (2 if len(ref) < 130 else 3)
    if size < 1:
        return None
    # The field's tag, and the size of the text: a varint.
    head = bytes([10, size]) if size < 0x80 else bytes([10, size & 0x7F | 0x80, size >> 7])
    if ref[:-size] != head:
        return None
    try:
        return ref[-size:].decode()
    except UnicodeDecodeError:
        return None


def _zigzags(frames: Frames, positions: Int64s, rows: Bools) -> tuple[Int64s, Int64s, Bools]:
    """As `_varints`, of numbers with a sign."""
    value, positions, good = _varints(frames, positions, rows)
    return (value >> 1) ^ -(value & 1), positions, good


def _varints(frames: Frames, positions: Int64s, rows: Bools) -> tuple[Int64s, Int64s, Bools]:
    """A varint of up to five bytes in each of the given rows: values, positions after them, which are good."""
    value = np.zeros(len(frames), np.int64)
    positions = positions.copy()
    finished = np.zeros(len(frames), bool)
    for shift in range(0, 35, 7):
        rows = rows & (positions < frames.ends)
        byte = bytes_at(frames.data, positions, rows)
        value |= (byte & 0x7F) << shift
        positions[rows] += 1
        finished |= rows & (byte < 0x80)
        rows = rows & (byte >= 0x80)
        if not rows.any():
            break
    return value, positions, finished
