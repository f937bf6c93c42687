"""How many tombstones go into one batch of an internal topic.

A batch that is larger than the topic's `max.message.bytes` is refused as a whole, and what it was to delete would stay
for ever: however long the names in the keys are, a batch is kept well below what any topic takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_BATCH_BYTES: Final = 256 << 10
_RECORD_BYTES: Final = 64
"""Of a tombstone without the names in its key, at most."""
_BYTES_PER_CHARACTER: Final = 4
"""In UTF-8, at most."""


def tombstone_batches(keys: Iterable[T], characters_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The keys in their order, as many at a time as fit a batch. `characters_of` tells how long a key's names are."""
    some: list[T] = []
    size = 0
    for key in keys:
        more = _RECORD_BYTES + _BYTES_PER_CHARACTER * characters_of(key)
        if some and size + more > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(key)
        size += more
    if some:
        yield some
