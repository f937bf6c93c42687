"""The plain model of compaction makes of a partition what Kafka's cleaner made of it: others can be held against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.format.producer_snapshot import decode_producer_snapshot
from duralog.storage.disk.file_system import LocalFileSystem
from tests.golden.test_golden_compaction import AT_HAND, COPIED, RETENTION_MS, Case, copy_before, told
from tests.support.compaction.plain_compaction import CleaningRules, clean, segments_on_disk


@pytest.mark.parametrize("case", [COPIED, *AT_HAND], ids=lambda case: f"{case.topic}-of-{case.golden.name}")
def test_the_model_does_what_kafka_did(case: Case, tmp_path: Path) -> None:
    folder = copy_before(case, tmp_path)
    last_snapshot = max(folder.glob("*.snapshot"))
    rules = CleaningRules(
        capacity=1_000_000,
        now_ms=case.round_ms,
        delete_retention_ms=RETENTION_MS[case.topic],
        segment_bytes=1 << 20,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
    )
    cleaned, end_offset = clean(
        segments_on_disk(LocalFileSystem(), str(folder)),
        first_dirty_offset=0,
        end=case.end_offset,
        rules=rules,
        producers=list(decode_producer_snapshot(last_snapshot.read_bytes())),
    )
    assert end_offset == case.end_offset
    found = [segment for segment in cleaned if segment.base_offset < end_offset]
    expected = [
        segment for segment in segments_on_disk(LocalFileSystem(), str(case.after)) if segment.base_offset < end_offset
    ]
    assert [segment.base_offset for segment in found] == [segment.base_offset for segment in expected]
    for one, other in zip(found, expected, strict=True):
        assert told(one.log) == told(other.log)
        assert one.aborted == other.aborted
        if one.log == other.log:
            assert (one.offset_index, one.time_index) == (other.offset_index, other.time_index)
