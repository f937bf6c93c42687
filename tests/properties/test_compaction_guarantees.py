"""What compaction promises, over random lives of a partition against a dictionary.

`tests.support.compaction.compaction_life` does the steps and checks the promises after every compaction on the way.
Here the lives are drawn, and what they come to is looked at from one more side each time.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from duralog.format.filenames import FileKind, parse_segment_file
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.record import Record
from duralog.storage.checks.verification import Verification
from duralog.storage.log.partition_log import PartitionLog
from tests.support.compaction.compaction_life import RETENTION_MS, Life, compact_up_to, content, facts
from tests.support.compaction.compaction_steps import Compact, End, Restart, Roll, Step, Tick, Write, fewer, steps
from tests.support.compaction.plain_compaction import PlainSegment, segments_on_disk
from tests.support.faults.crashing_files import CrashingFiles
from tests.support.faults.partition import Partition

lags = st.sampled_from([0, 0, 400])
map_sizes = st.sampled_from([1, 2, 3, 7, 1000])
index_intervals = st.sampled_from([0, 200])


def opened(life: Life, files: CrashingFiles) -> PartitionLog:
    """The partition of a life on a copy of its disk."""
    return Partition(files, config=life.config, clock=life.clock).open()


def everything(log: PartitionLog) -> list[tuple[object, ...]]:
    return [(record.offset, *content(record)) for record in log.read(log.start_offset)]


def committed(log: PartitionLog) -> list[Record]:
    return list(log.read(log.start_offset, isolation="read_committed"))


@given(steps(), lags, index_intervals)
def test_every_compaction_keeps_what_was_promised(drawn: list[Step], min_lag_ms: int, interval_bytes: int) -> None:
    life = Life(min_lag_ms=min_lag_ms, settings={"index.interval.bytes": interval_bytes}).live(drawn)
    life.log.roll()
    life.compact()
    life.follow()
    life.check_repeated_batches()


def test_a_round_that_begins_midway_knows_where_aborted_transactions_end() -> None:
    """If it did not map what follows the abort, the deletion of key 5 would be undone when its marker goes."""
    life = Life(settings={"index.interval.bytes": 0})
    life.live([Write([(5, 1, 0)]), Write([(1, 1, 0)], producer_id=7), End(7, commit=False)])
    life.live([Write([(2, 1, 0)]), Write([(3, 1, 0)]), Write([(4, 1, 0)])])
    life.live([Write([(5, 0, 0)], producer_id=7), End(7, commit=True), Write([(6, 1, 0)]), Roll()])
    report = life.compact(keys=3)
    assert report is not None
    assert report.rounds == 2
    life.live([Tick(RETENTION_MS), Write([(7, 1, 0)]), Roll(), Compact(1000)])


def test_a_marker_that_is_gone_leaves_no_transaction_open() -> None:
    """A crash sends recovery back to a snapshot from the middle of the transaction."""
    life = Life()
    life.live([Write([(key, 40, 0) for key in range(2, 7)]), Write([(1, 1, 0)], producer_id=7)])
    life.live([Restart(is_kill=False), Roll(), End(7, commit=False, bumps_epoch=True)])
    life.live([Write([(key, 40, 0) for key in range(8, 13)]), Roll()])
    for _ in range(4):
        life.live([Write([(13, 1, 0)]), Roll(), Tick(RETENTION_MS), Compact(1000)])
    life.do(Restart(is_kill=True))
    assert life.log.last_stable_offset == life.log.end_offset
    assert [(entry.producer_id, entry.producer_epoch) for entry in life.log.producers()] == [(7, 1)]


@fewer(8)
@given(steps(keys=40))
def test_reads_from_every_offset_go_on_at_the_next_that_exists(drawn: list[Step]) -> None:
    life = Life().live(drawn)
    life.log.roll()
    life.compact()
    offsets = [record.offset for record in life.log.read(0)]
    for offset in range(life.log.end_offset + 1):
        life.check_read_from(offset, offsets)
    assert life.log.read_arrow().column("offset").to_pylist() == offsets


@fewer(8)
@given(steps(), st.booleans())
def test_delete_markers_and_ends_of_transactions_leave_in_the_end(drawn: list[Step], commit: bool) -> None:
    life = Life().live(drawn)
    life.end_all(commit=commit)
    life.compact()
    end = life.end
    # One pass finds the records of an aborted transaction and drops them, the next one finds a marker of nothing and
    # gives it a time to live, and the third one comes after that.
    for _ in range(3):
        life.now_ms += RETENTION_MS
        life.write(Write([(0, 1, 0)]))
        life.log.roll()
        life.compact()
    assert not [record for record in life.log.read(0) if record.value is None and record.offset < end]
    writing: set[int] = set()
    for segment in segments_on_disk(life.files, life.partition.folder):
        for batch in segment.batches:
            if batch.is_control and batch.record_count and batch.base_offset < end:
                assert batch.producer_id in writing, f"the marker at offset {batch.base_offset} ends nothing"
                writing.discard(batch.producer_id)
            elif batch.is_transactional:
                writing.add(batch.producer_id)


@fewer(8)
@given(steps())
def test_compacting_again_changes_nothing(drawn: list[Step]) -> None:
    life = Life().live(drawn)
    life.write(Write([(0, 1, 0)]))
    life.end_all()
    life.compact()
    before, told, found = life.files.contents(), facts(life.log), everything(life.log)
    compact_up_to(life.log, life.end, life.end, now_ms=life.now_ms)
    assert life.files.contents() == before
    # As after a crash that has lost the checkpoint.
    compact_up_to(life.log, 0, life.end, now_ms=life.now_ms)
    assert everything(life.log) == found
    assert facts(life.log) == told


@fewer(8)
@given(steps(), map_sizes, st.booleans())
def test_a_log_that_was_opened_again_is_compacted_alike(drawn: list[Step], keys: int, is_kill: bool) -> None:
    # Room in the indexes for all: one that was built anew may be larger than one that grew over restarts.
    life = Life(settings={"segment.index.bytes": 12_000}).live(drawn)
    life.log.roll()
    again = Life(settings={"segment.index.bytes": 12_000}).live(drawn)
    again.log.roll()
    again.restart(is_kill=is_kill)
    life.compact(keys)
    has_compacted = again.compact(keys) is not None
    found, expected = (segments_on_disk(one.files, one.partition.folder) for one in (again, life))
    assert [segment.log for segment in found] == [segment.log for segment in expected]
    if has_compacted:
        assert summary(found, life.end) == summary(expected, life.end)


def summary(segments: list[PlainSegment], end: int) -> list[tuple[object, ...]]:
    """Of what was compacted. An aborted transaction begins where recovery found the first that is left of it."""
    return [
        (
            segment.base_offset,
            segment.offset_index,
            segment.time_index,
            segment.modified_ms,
            [(transaction.producer_id, transaction.last_offset) for transaction in segment.aborted],
        )
        for segment in segments
        if segment.base_offset < end
    ]


@fewer(8)
@given(steps(keys=30), map_sizes, st.sampled_from([1, 2, 3]))
def test_rounds_and_workers_make_no_difference_to_the_records(drawn: list[Step], keys: int, workers: int) -> None:
    life = Life().live(drawn)
    life.log.roll()
    other = opened(life, life.files.after_kill())
    report = life.compact()
    if report is not None:
        compact_up_to(other, report.first_dirty_offset, life.end, now_ms=life.now_ms, keys=keys, workers=workers)
    assert everything(other) == everything(life.log)
    assert committed(other) == committed(life.log)


@fewer(8)
@given(steps())
def test_producers_are_known_from_what_is_left_of_their_batches(drawn: list[Step]) -> None:
    life = Life().live(drawn)
    life.log.roll()
    life.compact()
    files = life.files.after_kill()
    for path in files.contents(life.partition.folder):
        file = parse_segment_file(os.path.basename(path))
        if file is not None and file.kind is FileKind.PRODUCER_SNAPSHOT:
            files.remove(path)

    def known(entry: ProducerEntry) -> tuple[int, ...]:
        return entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.last_offset

    expected = sorted(map(known, life.log.producers()))
    told, found = facts(life.log), everything(life.log)
    life.log = opened(life, files)
    assert sorted(map(known, life.log.producers())) == expected
    assert {**facts(life.log), "producers": None} == {**told, "producers": None}
    assert everything(life.log) == found
    life.check_repeated_batches()


@fewer(8)
@given(steps())
def test_nothing_is_wrong_with_the_files(drawn: list[Step]) -> None:
    life = Life().live(drawn)
    life.log.roll()
    life.compact(keys=5)
    life.partition.close(life.log)
    contents = life.files.contents(life.partition.folder)
    assert not [path for path in contents if path.endswith((".cleaned", ".swap", ".deleted"))]
    with TemporaryDirectory() as directory:
        folder = Path(directory, "t-0")
        folder.mkdir()
        for path, data in contents.items():
            Path(folder, os.path.basename(path)).write_bytes(data)
        (report,) = Verification(str(folder), decode=True).run()
    assert [str(error) for error in report.errors] == []
