"""A column of payloads, split into what names their schemas and the rest, and what a row may have wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MessagePlace = tuple[int, ...] | str | int
"""How a Protobuf payload names its message type. In its file: the place of the outermost type, then of a nested one in
it, ...; the name of an outermost one; or the number by name among all types."""


class FrameFault(IntEnum):
    """Why a row's schema could not be found out."""

    NONE = 0
    SHORT = 1
    MAGIC = 2
    COMPRESSION = 3
    INFLATE = 4
    INDEXES = 5
    HEADER = 6
    REF = 7


FAULT_TEXTS = {
    FrameFault.SHORT: "the payload is shorter than the prefix with the schema id",
    FrameFault.MAGIC: "the payload does not start with the magic byte of its framing",
    FrameFault.COMPRESSION: "the compression byte is neither 0 nor 5",
    FrameFault.INFLATE: "the compressed payload is damaged or too large",
    FrameFault.INDEXES: "the Protobuf message indexes are damaged",
    FrameFault.HEADER: "the header with the schema id is damaged",
    FrameFault.REF: "the name of the Protobuf message type before the payload is damaged",
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
    """A number into `places`; -1 for all but Protobuf's payloads."""
    places: tuple[MessagePlace, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)


def distinct(columns: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
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


def bytes_at(data: npt.NDArray[np.uint8], positions: Int64s, rows: Bools) -> Int64s:
    """The byte at a position in each of the given rows, 0 in the others."""
    found = np.zeros(len(positions), np.int64)
    found[rows] = data[positions[rows]]
    return found
