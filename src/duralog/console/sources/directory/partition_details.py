"""The segments of a partition with their files, indexes and times, for its picture.

Facts of a closed segment are cached as long as its file does not change.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from duralog.config.error_text import printable
from duralog.console.facts.partitions import SegmentFacts
from duralog.console.sources.directory.segment_times import TimedSegment, timed_segments
from duralog.errors import CorruptRecord
from duralog.format.filenames import FileState, parse_segment_file, segment_stem
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from duralog.storage.log.read_only_tail import entries_in, tail_by_indexes, walk_tail
from duralog.storage.read_only_partitions import PartitionView, SegmentView

_ORDER = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_MOST_KEPT = 16_384


class _Contents(NamedTuple):
    next_offset: int
    index_entries: int | None
    time_index_entries: int | None
    trouble: str | None


def segment_facts(view: PartitionView, first_dirty_offset: int | None) -> tuple[SegmentFacts, ...]:
    """All segments, oldest first. One whose files vanish meanwhile is left out until the next refresh."""
    if not view.segments:
        return ()
    files = _files_by_offset(view.folder)
    found = []
    timed = timed_segments(view)
    bases = [segment.base_offset for segment in view.segments[1:]]
    for segment, times, following in zip(view.segments, timed, [*bases, None], strict=True):
        try:
            contents = _contents(view.folder, segment)
            if following is None:
                # The view has the end, and an index entry of a log that is written to may be newer than the view.
                contents = contents._replace(next_offset=view.end_offset)
            is_clean = first_dirty_offset is not None and following is not None and following <= first_dirty_offset
            of_segment = tuple(files.get(segment.base_offset, ()))
            found.append(_facts(segment, times, contents, of_segment, is_active=following is None, is_clean=is_clean))
        except FileNotFoundError:
            continue
    return tuple(found)


def _facts(
    segment: SegmentView,
    times: TimedSegment,
    contents: _Contents,
    files: tuple[tuple[str, int], ...],
    *,
    is_active: bool,
    is_clean: bool,
) -> SegmentFacts:
    trouble = contents.trouble
    try:
        first_timestamp_ms = times.first_timestamp_ms
    except CorruptRecord as error:
        first_timestamp_ms, trouble = None, trouble or printable(str(error))
    return SegmentFacts(
        base_offset=segment.base_offset,
        next_offset=contents.next_offset,
        size_bytes=segment.size_bytes,
        is_active=is_active,
        is_clean=is_clean,
        first_timestamp_ms=first_timestamp_ms,
        largest_timestamp_ms=times.largest_timestamp_ms if segment.size_bytes else None,
        files=files,
        index_entries=contents.index_entries,
        time_index_entries=contents.time_index_entries,
        index_density_bytes=segment.size_bytes / contents.index_entries if contents.index_entries else None,
        trouble=trouble,
    )


@lru_cache(maxsize=_MOST_KEPT)
def _contents(folder: str, segment: SegmentView) -> _Contents:
    stem = f"{folder}/{segment_stem(segment.base_offset)}"
    begin = tail_by_indexes(stem, segment.base_offset)
    tail = walk_tail(f"{stem}.log", begin)
    return _Contents(
        next_offset=tail.next_offset,
        index_entries=entries_in(f"{stem}.index", OFFSET_INDEX_ENTRY),
        time_index_entries=entries_in(f"{stem}.timeindex", TIME_INDEX_ENTRY),
        trouble=None if tail.fault is None else printable(str(tail.fault)),
    )


def _files_by_offset(folder: str) -> dict[int, list[tuple[str, int]]]:
    """Name and size of the files of each segment, the log first."""
    found: dict[int, list[tuple[str, int]]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            file = parse_segment_file(entry.name)
            if file is not None and file.state is FileState.LIVE:
                try:
                    found.setdefault(file.offset, []).append((entry.name, entry.stat().st_size))
                except FileNotFoundError:
                    continue
    for files in found.values():
        files.sort(key=lambda file: _ORDER.index(os.path.splitext(file[0])[1]))
    return found
