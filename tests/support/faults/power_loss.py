"""What a loss of power leaves of a file and of a folder: anything that a disk may do with what was not synced.

A file may come back as it was synced, as it was last written, torn at any byte, or as a patchwork of sectors: old ones,
new ones, and, where the file grew and its length was written before its data, zeros or garbage. Bytes that were synced
and not changed since are never touched. A sector is written whole or not at all.

A folder's changes (names that appear, disappear, move) happen or do not happen one by one, except that a change waits
for the earlier ones of the same name and of the same file, as in every journal: a file that was moved away and replaced
is not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512

_UNWRITTEN = (("zeros",), ("garbage",), ("new", "zeros"), ("new", "garbage"), ("new", "zeros", "garbage"))
"""What may be found in the sectors by which a file grew."""


def file_after_power_loss(synced: bytes, written: bytes, random: Random) -> bytes:
    """One of the contents that a file may have, of which `synced` is safe and `written` the latest."""
    if synced == written:
        return synced
    match random.randrange(5):
        case 0:
            return synced
        case 1:
            return written
        case 2:
            return _torn(synced, written, random)
        case _:
            return _patchwork(synced, written, random)


def file_after_write_back(synced: bytes, written: bytes, random: Random) -> bytes:
    """What is on the disk after the system wrote some of the changed sectors by itself, at no one's request."""
    size = max(len(synced), len(written)) if random.random() < 0.5 else len(written)
    return _sectors(synced, written, size, random, unwritten=("new",))


def _torn(synced: bytes, written: bytes, random: Random) -> bytes:
    at = random.randint(_common_prefix(synced, written), len(written))
    return written[:at] + synced[at:]


def _patchwork(synced: bytes, written: bytes, random: Random) -> bytes:
    sizes = [len(synced), len(written)]
    if len(written) > len(synced):
        sizes.append(random.randint(len(synced), len(written)))
    # Mostly one kind of damage in a file, so that a run of sectors is missing or garbage as a whole, too.
    unwritten = random.choice(
        [("zeros",), ("garbage",), ("new", "zeros"), ("new", "garbage"), ("new", "zeros", "garbage")]
    )
    return _sectors(synced, written, random.choice(sizes), random, unwritten=unwritten)


def _sectors(synced: bytes, written: bytes, size: int, random: Random, *, unwritten: Sequence[str]) -> bytes:
    """`size` bytes, sector by sector. A sector behind the end of what was synced becomes one of `unwritten`."""
    parts: list[bytes] = []
    for start in range(0, size, SECTOR_BYTES):
        length = min(SECTOR_BYTES, size - start)
        old = synced[start : start + length].ljust(length, b"\0")
        new = written[start : start + length].ljust(length, b"\0")
        if start >= len(synced):
            kind = random.choice(unwritten)
        elif start >= len(written):
            kind = "old"
        else:
            kind = random.choice(("old", "new"))
        match kind:
            case "old":
                parts.append(old)
            case "new":
                parts.append(new)
            case "zeros":
                parts.append(bytes(length))
            case _:
                parts.append(random.randbytes(length))
    return b"".join(parts)


def _common_prefix(first: bytes, second: bytes) -> int:
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(eq=False)
class File:
    """A file as the system holds it: `content` may be mapped, so it is never resized while it is."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    allocated: int = 0
    """Up to where the disk has blocks for it; behind that the file is a hole."""
    modified_ms: int = 0
    unsyncable: tuple[int, int] | None = None
    """Bytes whose sync failed. The system took them for written and will not write them again."""

    def resize(self, size: int) -> None:
        if size == len(self.content):
            return
        content = self.content[:size]
        self.content = content.ljust(size, b"\0")
        self.allocated = min(self.allocated, size)
        if self.unsyncable is not None:
            start, end = self.unsyncable
            self.unsyncable = (start, min(end, size)) if start < size else None

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if position == len(self.content):
            self._extend(data)
        else:
            if end > len(self.content):
                self.resize(end)
            self.content[position:end] = data
        self.allocated = max(self.allocated, end)

    def _extend(self, data: bytes) -> None:
        try:
            self.content += data
        except BufferError:  # It is mapped: the mapping keeps the old bytes.
            self.content = self.content + data

    def writable_content(self) -> bytes:
        """What a sync that succeeds makes safe."""
        content = bytes(self.content)
        if self.unsyncable is None:
            return content
        start, end = self.unsyncable
        return content[:start] + self.synced[start:end].ljust(end - start, b"\0") + content[end:]

    def sync(self) -> None:
        self.synced = self.writable_content()

    def fail_to_sync(self) -> None:
        written = bytes(self.content)
        if written != self.synced:
            start = _common_prefix(self.synced, written)
            self.unsyncable = (start, max(start, len(written)))


@dataclass(eq=False)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)


Tables = Callable[[Folder], dict[str, File | Folder]]
"""Which names of a folder to work on: the synced ones themselves, or a copy."""


@dataclass(frozen=True, eq=False)
class NameChange:
    """A name that a file or folder lost, or got, or both in one step."""

    item: File | Folder
    source: tuple[Folder, str] | None = None
    target: tuple[Folder, str] | None = None

    def apply(self, tables: Tables) -> None:
        if self.source is not None:
            folder, name = self.source
            if tables(folder).get(name) is self.item:
                del tables(folder)[name]
        if self.target is not None:
            folder, name = self.target
            tables(folder)[name] = self.item

    def touches(self, folder: Folder) -> bool:
        return any(place is not None and place[0] is folder for place in (self.source, self.target))

    def things(self) -> set[object]:
        """What two changes may have in common, so that they keep their order."""
        places = [place for place in (self.source, self.target) if place is not None]
        return {id(self.item), *((id(folder), name) for folder, name in places)}


def sync_names(changes: list[NameChange], folder: Folder) -> list[NameChange]:
    """Make the folder's changes safe, and the earlier ones that they rest on. Returns those that are left."""
    synced: set[int] = set()
    wanted: set[object] = set()
    for change in reversed(changes):
        if change.touches(folder) or wanted & change.things():
            wanted |= change.things()
            synced.add(id(change))
    for change in changes:
        if id(change) in synced:
            change.apply(lambda folder: folder.synced)
    return [change for change in changes if id(change) not in synced]


def names_after_power_loss(changes: Sequence[NameChange], random: Random) -> Tables:
    """Let some of the changes reach the disk and forget the others. The folders themselves are left alone."""
    copies: dict[Folder, dict[str, File | Folder]] = {}

    def tables(folder: Folder) -> dict[str, File | Folder]:
        if folder not in copies:
            copies[folder] = dict(folder.synced)
        return copies[folder]

    one_by_one = random.random() < 0.5
    in_order = random.choice((0, len(changes), random.randint(0, len(changes))))
    lost: set[object] = set()
    for number, change in enumerate(changes):
        is_lost = random.random() < 0.5 if one_by_one else number >= in_order
        if is_lost or lost & change.things():
            lost |= change.things()
        else:
            change.apply(tables)
    return tables
