"""Staged batches into a log: all of them, or those that an interrupted commit has not appended.

The batches of a partition go into its log in one order, which does not change. So a commit that was interrupted has
left the first few of them there, from the offset on at which it began. They are found by walking the log from that
offset and comparing size, number of records, first time, producer and the checksum of the records. What the log adds to
a batch (offset, leader epoch, append time) is not compared. Others may have appended since; then the rest goes after
that.

If the log was compacted or truncated since, its former content is unknown: that is an error, not a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.format.checksum import crc32c
from duralog.format.layout import BATCH_V2
from duralog.spark.sink.staging import CannotComplete, Run, StagedFile, read_run
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.partition_log import AppendOrigin, PartitionLog
from duralog.storage.log.retention import COMPACT

Runs = Sequence[tuple[StagedFile, Run]]
"""Of one partition, in the order in which they are appended."""

_INT32_MAX = 2**31 - 1


def append_rest(log: PartitionLog, files: FileSystem, runs: Runs, present: int, *, preserve_offsets: bool) -> None:
    """Append all batches but the first `present` ones."""
    origin = AppendOrigin.RESTORED if preserve_offsets else AppendOrigin.CHECKED
    if preserve_offsets and log.size_bytes == 0 and present == 0:
        log.start_at(runs[0][1].first_offset)
    for file, run in runs:
        if present >= run.batches:
            present -= run.batches
            continue
        for piece in read_run(files, file.path, run):
            rows = piece.batches[present:]
            present = max(0, present - len(piece.batches))
            for near in _of_one_segment(rows):
                begin = int(near["position"][0]) - piece.position
                end = int(near["position"][-1] + near["size"][-1]) - piece.position
                log.append_batches(piece.data[begin:end].data, origin=origin)


def _of_one_segment(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Batches whose offsets are near enough to each other for one segment."""
    while len(rows):
        near = int(np.searchsorted(rows["last_offset"] - rows["base_offset"][0], _INT32_MAX, side="right"))
        yield rows[: max(near, 1)]
        rows = rows[max(near, 1) :]


class _Batch(NamedTuple):
    """A batch, and what identifies it at any position."""

    content: tuple[int, int, int, int, int]
    """Its size, its number of records, its producer, its base timestamp, the checksum of the records.

    The records alone are not enough: they have times relative to the base, so two of the same value look alike."""
    base_offset: int
    last_offset: int


def count_present(log: PartitionLog, files: FileSystem, runs: Runs, start_offset: int) -> int:
    """How many of the batches, from the first on, the log holds from this offset on."""
    present, expected = 0, start_offset
    in_log = _batches_in(log, start_offset)
    following = next(in_log, None)
    for batch in _batches_of(files, runs):
        if following is None or following.content != batch.content:
            break
        present, expected = present + 1, following.last_offset + 1
        following = next(in_log, None)
    else:
        return present
    if following is None:
        # An empty log begins where the first record that comes back to it is.
        is_as_left = log.end_offset in (expected, runs[0][1].first_offset if present == 0 else expected)
    else:
        was_closed = following.base_offset < log.view.segments.active.base_offset
        is_as_left = following.base_offset == expected and not (was_closed and COMPACT in log.config.cleanup_policy)
    if not is_as_left:
        raise CannotComplete(f"{log.folder}: the log was compacted or truncated since, from offset {expected} on")
    return present


def _batches_of(files: FileSystem, runs: Runs) -> Iterator[_Batch]:
    for file, run in runs:
        for piece in read_run(files, file.path, run):
            yield from _each_batch(piece)


def _batches_in(log: PartitionLog, start_offset: int) -> Iterator[_Batch]:
    for segment, end in log.view.segments_from(start_offset):
        first = segment.find_batch(start_offset, end)
        if first is not None:
            for piece in segment.batches_from(first.position, end=end):
                yield from _each_batch(piece)


def _each_batch(piece: Piece) -> Iterator[_Batch]:
    for row in piece.batches:
        begin, size = int(row["position"]) - piece.position, int(row["size"])
        records = piece.data[begin + BATCH_V2.size : begin + size]
        fields = int(row["record_count"]), int(row["producer_id"]), int(row["base_timestamp"])
        content = size, *fields, crc32c(records.data)
        yield _Batch(content, int(row["base_offset"]), int(row["last_offset"]))
