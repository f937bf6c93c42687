"""The changes of the files of a partition's folder: two surveys, and their difference in words."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from duralog.config.plurals import plural
from duralog.errors import CorruptRecord
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.index_entries import used_bytes
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TRANSACTION_INDEX_ENTRY
from duralog.storage.disk.file_system import FileSystem

_LAYOUTS = {
    FileKind.OFFSET_INDEX: OFFSET_INDEX_ENTRY,
    FileKind.TIME_INDEX: TIME_INDEX_ENTRY,
    FileKind.TRANSACTION_INDEX: TRANSACTION_INDEX_ENTRY,
}


class Action(NamedTuple):
    """A change of a file, done or planned."""

    verb: str
    """`rebuilt`, `removed`, `cut`, `quarantined`, `restored` and so on."""
    file: str
    """Its path."""
    detail: str
    bytes: int = 0
    """Of those that were moved."""

    def to_dict(self) -> dict[str, object]:
        return {"kind": "action", "action": self.verb, "file": self.file, "detail": self.detail}


class _File(NamedTuple):
    size: int
    """Without preallocated space after the entries of an index."""
    checksum: int
    """0 for a log: its size is enough, because nothing in the middle of a log ever changes."""


Survey = Mapping[str, _File]
"""By name."""


def survey(fs: FileSystem, folder: str) -> Survey:
    """The files that loading a log may change. Other files are ignored."""
    files: dict[str, _File] = {}
    for entry in fs.list(folder):
        segment_file = parse_segment_file(entry.name)
        if entry.is_folder or (segment_file is None and entry.name != LEADER_EPOCH_CHECKPOINT):
            continue
        if segment_file is not None and segment_file.kind is FileKind.LOG:
            files[entry.name] = _File(entry.size, 0)
            continue
        try:
            data = fs.read_all(os.path.join(folder, entry.name))
        except CorruptRecord:
            # Far too large to be read: its size is enough.
            files[entry.name] = _File(entry.size, 0)
            continue
        if segment_file is not None and segment_file.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            data = data[: used_bytes(data, _LAYOUTS[segment_file.kind])]
        files[entry.name] = _File(len(data), zlib.crc32(data))
    return files


def changes(folder: str, before: Survey, after: Survey) -> Iterator[Action]:
    """The changes between two surveys, file by file."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        verb, detail = _difference(parse_segment_file(name), old, new)
        yield Action(verb, os.path.join(folder, name), detail)


def _difference(file: SegmentFile | None, old: _File | None, new: _File | None) -> tuple[str, str]:
    if new is None:
        is_left_over = file is not None and file.state is not FileState.LIVE
        return "removed", "left over from a deletion or a compaction" if is_left_over else "obsolete"
    if file is None:
        return ("written", "was missing") if old is None else ("rewritten", "")
    if file.kind is FileKind.LOG:
        if old is None:
            return "put in place", plural(new.size, "byte")
        return ("cut" if new.size < old.size else "extended"), f"from {old.size:,} to {plural(new.size, 'byte')}"
    verb = "built" if old is None else "rebuilt"
    layout = _LAYOUTS.get(file.kind)
    if layout is None:
        return verb, "the state of the producers"
    was = "" if old is None else f", {old.size // layout.size:,} before"
    count = new.size // layout.size
    return verb, f"{plural(count, 'entry')}{was}"
