"""Splits tombstones for an internal topic into batches. A batch above the topic's `max.message.bytes` is refused as a
whole, and its keys would never be deleted. So each batch is kept below that, for names of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_BATCH_BYTES: Final = 256 << 10
"""Larger ones save nothing."""
_RECORD_BYTES: Final = 64
"""Of a tombstone without the names in its key, and of the head of a batch, more than there are."""
_BYTES_PER_CHARACTER: Final = 4
"""In UTF-8, at most."""


def tombstone_batches(
    keys: Iterable[T], characters_of: Callable[[T], int], max_message_bytes: int
) -> Iterator[list[T]]:
    """The keys in their order, as many at a time as fit a batch. `characters_of` is the length of a key's names."""
    most = min(_BATCH_BYTES, max_message_bytes)
    some: list[T] = []
    size = _RECORD_BYTES
    for key in keys:
        more = _RECORD_BYTES + _BYTES_PER_CHARACTER * characters_of(key)
        if some and size + more > most:
            yield some
            some, size = [], _RECORD_BYTES
        some.append(key)
        size += more
    if some:
        yield some
