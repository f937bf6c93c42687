"""Where one batch or message ends and the next begins: the checks that come before anything else is read."""

from __future__ import annotations

from duralog.errors import CorruptRecord, Fault
from duralog.format.layout import ENTRY_PREFIX, MAGIC_POSITION, MIN_BATCH_BYTES

NEWEST_MAGIC = len(MIN_BATCH_BYTES) - 1
_MIN_LENGTH = min(MIN_BATCH_BYTES) - ENTRY_PREFIX.size
"""The smallest length that any format has, checked before the format is known."""


def whole_batch_bytes(view: memoryview, position: int, end: int) -> int | None:
    """The size of the batch at `position`, or None if it runs past `end`.

    Afterwards its magic is known to be 0, 1 or 2, and its size to hold the fixed fields of that format.
    """
    if end - position <= MAGIC_POSITION:
        return None
    _, length = ENTRY_PREFIX.unpack(view, position)
    if length < _MIN_LENGTH:
        raise _too_short(position, _MIN_LENGTH, length)
    size_bytes = ENTRY_PREFIX.size + length
    if size_bytes > end - position:
        return None
    magic = view[position + MAGIC_POSITION]
    if magic > NEWEST_MAGIC:
        raise CorruptRecord(
            "unknown format version",
            fault=Fault.UNKNOWN_MAGIC,
            position=position,
            expected="0, 1 or 2",
            found=magic,
        )
    if size_bytes < MIN_BATCH_BYTES[magic]:
        raise _too_short(position, MIN_BATCH_BYTES[magic] - ENTRY_PREFIX.size, length)
    return size_bytes


def _too_short(position: int, minimum: int, found: int) -> CorruptRecord:
    return CorruptRecord(
        "a batch's length is too small",
        fault=Fault.BATCH_LENGTH,
        position=position,
        expected=f"at least {minimum}",
        found=found,
    )
