"""Compaction twice: by duralog, and by the plain model of `plain_compaction`. The same files must come out.

Lives of a partition are hypothesis' to draw, and to make smaller when something differs. Histories are made of a seed;
they have what no client can append any more: the old formats, records without a key, offsets that are missing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from duralog.config import TopicConfig
from duralog.format.filenames import FileKind, SegmentFile
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.compaction import settings as compaction_settings
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.partition_log import PartitionLog
from oracle.random_histories import Stage, random_history
from tests.support.compaction.compaction_life import ENTRY_BYTES, Life
from tests.support.compaction.compaction_steps import Compact, Step, fewer, steps
from tests.support.compaction.plain_compaction import (
    CleaningRules,
    PlainSegment,
    compact,
    first_uncleanable_offset,
    segments_on_disk,
)
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.partition import Partition


def rules_of(config: TopicConfig, *, capacity: int, now_ms: int) -> CleaningRules:
    return CleaningRules(
        capacity=capacity,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )


def compare(found: list[PlainSegment], expected: list[PlainSegment], *, index_bytes: int) -> None:
    assert [segment.base_offset for segment in found] == [segment.base_offset for segment in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.batches == other.batches, f"segment {one.base_offset}"
        if len(other.offset_index) > index_bytes or len(other.time_index) > index_bytes:
            # Kafka's cleaner dies of an index that is full. There is no telling which entries to leave out.
            assert max(len(one.offset_index), len(one.time_index)) <= index_bytes
            one, other = (replace(each, offset_index=b"", time_index=b"") for each in (one, other))
        assert one == other


class ComparedLife(Life):
    def compact(self, keys: int = 1000) -> CompactionReport | None:
        before = segments_on_disk(self.files, self.partition.folder)
        producers = self.log.producers()
        report = super().compact(keys)
        if report is not None:
            expected, rounds = compact(
                before,
                first_dirty_offset=report.first_dirty_offset,
                end=self.end,
                rules=rules_of(self.config, capacity=keys, now_ms=self.now_ms),
                producers=producers,
            )
            found = segments_on_disk(self.files, self.partition.folder)
            compare(found, expected, index_bytes=self.config.segment_index_bytes)
            assert report.rounds == rounds
        return report


@fewer(2)
@given(steps(), st.sampled_from([1, 3, 1000]))
def test_lives_come_to_the_same(drawn: list[Step], keys: int) -> None:
    life = ComparedLife().live(drawn)
    life.log.roll()
    life.do(Compact(keys))


class History:
    """Batches as they are in a log, stage after stage, each of which ends with a compaction."""

    def __init__(self, configs: dict[str, int | str]) -> None:
        self.now_ms = START_MS
        self.config = TopicConfig().with_overrides(configs)
        self.files = CrashingFiles(clock=lambda: self.now_ms)
        self.partition = Partition(self.files, config=self.config, clock=lambda: self.now_ms)
        self.log: PartitionLog = self.partition.open()
        self.first_dirty_offset = 0

    def segments(self) -> list[PlainSegment]:
        return segments_on_disk(self.files, self.partition.folder)

    def append(self, stage: Stage) -> None:
        self.now_ms = stage.written_ms
        first = self.log.segments[-1].base_offset
        for batch in stage.batches:
            if batch is None:
                self.log.roll()
            else:
                self.log.append_batches(batch, origin=AppendOrigin.AS_IS)
        self.log.flush()
        # File times decide about the delete markers of the old formats. They rise from segment to segment.
        written = [segment.base_offset for segment in self.segments() if segment.base_offset >= first]
        for number, base_offset in enumerate(written):
            path = f"{self.partition.folder}/{SegmentFile(base_offset, FileKind.LOG).name}"
            self.files.set_modified_ms(path, stage.written_ms - 700 * (len(written) - 1 - number))

    def compact(self, stage: Stage) -> None:
        """By both. The model's map has room for as many keys."""
        self.now_ms = stage.now_ms
        before = self.segments()
        end = first_uncleanable_offset(
            before,
            first_dirty_offset=self.first_dirty_offset,
            last_stable_offset=self.log.last_stable_offset,
            min_lag_ms=self.config.min_compaction_lag_ms,
            now_ms=stage.now_ms,
        )
        expected, rounds = compact(
            before,
            first_dirty_offset=self.first_dirty_offset,
            end=end,
            rules=rules_of(
                self.config,
                capacity=int(stage.map_bytes // ENTRY_BYTES * stage.load_factor),
                now_ms=stage.now_ms,
            ),
            producers=self.log.producers(),
        )
        with mock.patch.object(compaction_settings, "PIECE_BYTES", 300):
            report = compact_log(
                self.log,
                first_dirty_offset=self.first_dirty_offset,
                end=end,
                now_ms=stage.now_ms,
                settings=CompactionSettings(
                    memory_bytes=stage.map_bytes, load_factor=stage.load_factor, buffer_bytes=stage.buffer_bytes
                ),
            )
        compare(self.segments(), expected, index_bytes=self.config.segment_index_bytes)
        assert report.rounds == rounds
        assert (report.corrupt_batches, report.left_segments) == ([], [])
        self.first_dirty_offset = max(end, self.first_dirty_offset)


@fewer(5)
@given(st.integers(0, 2**32 - 1))
def test_histories_come_to_the_same(seed: int) -> None:
    drawn = random_history(seed)
    history = History(drawn.configs)
    for stage in drawn.stages:
        history.append(stage)
        history.compact(stage)
    assert all(one.base_offset < other.base_offset for one, other in pairwise(history.segments()))
