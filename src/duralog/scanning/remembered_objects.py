"""A cache of bytes from an object store: unchanged objects are not fetched again.

Opening a log directory reads a few small files and the end of every log. A stream opens it again for each refresh, when
little has changed. An object cannot be changed, only replaced, so its name, size and time in a listing identify its
bytes. They are kept here, for all stores that the process opens through one connection.

What must always be true:
- Bytes are returned for the name, size and time that they were read with, and for no other.
- Times have a resolution of a second. Two objects of the same name and size, written within one second, look the same.
  So bytes are kept only if they were read `SETTLED_SECONDS` or more after the object was first seen, if another object
  of the store is that much newer, or if the object is older than any plausible clock difference. An object that
  replaces it later has another time.
- Memory is bounded: `MOST_BYTES` in all, and the least recently used bytes are evicted first.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from duralog.storage.disk.background import wall_clock_ms

MOST_BYTES = 64 << 20
MOST_EXPORTED_BYTES = 4 << 20
_MOST_OF_A_FILE_BYTES = 16 << 20
"""The index of an active segment has 10 MiB by default, nearly all of them zeros, and is read as a whole."""
_MOST_OF_A_PART_BYTES = 1 << 20
"""The end of a log. Larger parts are reads of records, and not kept."""
_MOST_RANGES = 64
"""Of one object."""
SETTLED_SECONDS = 3.0
_OLD_MS = 1_200_000
"""S3 refuses requests of clients whose clocks are 15 minutes off."""
_MOST_OBJECTS = 200_000
_OBJECT_COST_BYTES = 300


class ObjectIdentity(NamedTuple):
    """An object of a listing."""

    path: str
    size: int
    modified_ms: int


class Tree(NamedTuple):
    """Statistics of the last listings of a directory."""

    keys: int
    """Objects below it. An estimate until all of them were listed at once."""
    folders: int
    """How many of its folders were needed."""
    names: int = 0
    """The hash of all names when they were last listed at once."""


class _Range(NamedTuple):
    position: int
    end: int
    data: bytes
    """Without the zeros at its end."""

    @property
    def cost(self) -> int:
        return len(self.data) + _OBJECT_COST_BYTES

    def part(self, position: int, size: int) -> memoryview:
        start = position - self.position
        found = self.data[start : start + size]
        return memoryview(found if len(found) == size else found.ljust(size, b"\0"))


class ExportedObjects(NamedTuple):
    """Cached objects of a directory, for another process."""

    directory: str
    tree: Tree | None
    objects: list[tuple[ObjectIdentity, list[_Range]]]


class RememberedObjects:
    """Of one connection. Any thread may use it."""

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._first_seen: OrderedDict[str, tuple[ObjectIdentity, float]] = OrderedDict()
        """Of objects that were not settled when they were read."""
        self._newest_ms = 0
        """The latest time of an object that was listed: the object store's clock was there, at least."""
        self._ranges: OrderedDict[ObjectIdentity, list[_Range]] = OrderedDict()
        self._size_bytes = 0
        self.trees: dict[str, Tree] = {}
        """By directory."""

    def see(self, modified_ms: int) -> None:
        """A listing has an object of this time."""
        # One from the future says nothing about the clock of the object store.
        if self._newest_ms < modified_ms <= self._clock_ms() + _OLD_MS:
            self._newest_ms = modified_ms

    def find(self, identity: ObjectIdentity, position: int, size: int) -> memoryview | None:
        """The bytes, if they were kept."""
        with self._lock:
            ranges = self._ranges.get(identity)
            if ranges is None:
                return None
            self._ranges.move_to_end(identity)
            for kept in ranges:
                if kept.position <= position and position + size <= kept.end:
                    return kept.part(position, size)
        return None

    def keep(self, identity: ObjectIdentity, position: int, data: memoryview) -> None:
        """Keep bytes that were read just now, if that is safe."""
        if len(data) > (_MOST_OF_A_FILE_BYTES if len(data) == identity.size else _MOST_OF_A_PART_BYTES):
            return
        with self._lock:
            if not self._is_settled(identity):
                return
            # The index of an active segment is a few entries and megabytes of zeros.
            self._add(identity, _Range(position, position + len(data), bytes(data).rstrip(b"\0")))

    def export(self, directory: str, most_bytes: int = MOST_EXPORTED_BYTES) -> ExportedObjects:
        """The most recently used bytes, with which another process on this machine can open the directory."""
        with self._lock:
            found: list[tuple[ObjectIdentity, list[_Range]]] = []
            for identity, ranges in reversed(self._ranges.items()):
                if not identity.path.startswith(f"{directory}/"):
                    continue
                most_bytes -= sum(kept.cost for kept in ranges)
                if most_bytes < 0:
                    break
                found.append((identity, list(ranges)))
            return ExportedObjects(directory, self.trees.get(directory), found)

    def take(self, exported: ExportedObjects) -> None:
        """Keep what another process has exported."""
        with self._lock:
            if exported.tree is not None:
                # Its hash of names is that of another process, which hashes text otherwise.
                self.trees.setdefault(exported.directory, exported.tree._replace(names=0))
            for identity, ranges in exported.objects:
                if identity not in self._ranges:
                    for kept in ranges:
                        self._add(identity, kept)

    def _add(self, identity: ObjectIdentity, kept: _Range) -> None:
        """REQUIRES: the lock."""
        ranges = self._ranges.setdefault(identity, [])
        self._ranges.move_to_end(identity)
        ranges.append(kept)
        self._size_bytes += kept.cost
        if len(ranges) > _MOST_RANGES:
            self._size_bytes -= ranges.pop(0).cost
        while self._size_bytes > self._most_bytes:
            _, evicted = self._ranges.popitem(last=False)
            self._size_bytes -= sum(gone.cost for gone in evicted)

    def _is_settled(self, identity: ObjectIdentity) -> bool:
        if identity.modified_ms == 0:
            return False  # The object store gave no modification time, so an object of the same size may be a new one.
        if self._clock_ms() - identity.modified_ms > _OLD_MS:
            return True
        if self._newest_ms - identity.modified_ms >= SETTLED_SECONDS * 1000:
            return True
        now = self._clock()
        known = self._first_seen.get(identity.path)
        if known is not None and known[0] == identity:
            return now - known[1] >= SETTLED_SECONDS
        self._first_seen[identity.path] = identity, now
        if len(self._first_seen) > _MOST_OBJECTS:
            self._first_seen.popitem(last=False)
        return False
