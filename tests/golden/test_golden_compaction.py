"""A partition compacted once is what Kafka's cleaner made of it, file by file and byte by byte.

Recompressed batches may have other bytes, if the codec's library is another one: then batches and records
are compared. The data in this repository holds one of the four partitions; the others are taken from the folder that
the data was copied from, where that is at hand.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from duralog.config import TopicConfig
from duralog.format import batches
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT, FileKind, parse_segment_file
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from tests.support.places import GOLDEN

SOURCE = Path(__file__).parents[3] / "shared" / "golden"
DAY_MS = 86_400_000
RETENTION_MS = {"c-none": DAY_MS, "c-zstd": DAY_MS, "c-txn": DAY_MS, "c-tomb": 0}
MODIFIED_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Case:
    """A partition before and after, and when Kafka compacted it up to where."""

    golden: Path
    topic: str

    @property
    def before(self) -> Path:
        return self.golden / "compaction" / "before" / f"{self.topic}-0"

    @property
    def after(self) -> Path:
        return self.golden / "compaction" / "after" / f"{self.topic}-0"

    @property
    def end_offset(self) -> int:
        entries = decode_offset_checkpoint((self.after.parent / CLEANER_OFFSET_CHECKPOINT).read_bytes())
        return next(entry.offset for entry in entries if entry.topic == self.topic)

    @property
    def round_ms(self) -> int:
        """By the delete horizons."""
        horizons = {
            batch.delete_horizon_ms
            for path in self.after.glob("*.log")
            for batch in batches.scan(path.read_bytes())
            if batch.delete_horizon_ms is not None
        }
        (horizon_ms,) = horizons
        return horizon_ms - RETENTION_MS[self.topic]


COPIED = Case(GOLDEN, "c-txn")
AT_HAND = [Case(SOURCE, topic) for topic in RETENTION_MS if (SOURCE / "compaction" / "before" / f"{topic}-0").is_dir()]


def copy_before(case: Case, parent: Path) -> Path:
    target = parent / case.before.name
    target.mkdir()
    for path in case.before.iterdir():
        file = parse_segment_file(path.name)
        if file is not None:
            (target / path.name).write_bytes(path.read_bytes())
            os.utime(target / path.name, ns=(0, (MODIFIED_MS + file.offset) * 1_000_000))
    return target


def compact(case: Case, folder: Path, now_ms: int, **options: Any) -> CompactionReport:
    config = TopicConfig().with_overrides(
        {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "delete.retention.ms": RETENTION_MS[case.topic]}
    )
    files = LocalFileSystem()
    environment = LogEnvironment(file_system=files, clock=lambda: now_ms)
    loaded = load_partition(files, str(folder), LoadOptions(config=config, clean=True, clock=environment.clock))
    log = PartitionLog(loaded, topic=case.topic, partition=0, config=config, environment=environment)
    assert log.view.segments.active.base_offset == case.end_offset
    settings = CompactionSettings(**options)
    report = compact_log(log, first_dirty_offset=0, end=case.end_offset, now_ms=now_ms, settings=settings)
    log.close()
    return report


def segment_files(folder: Path, end_offset: int) -> dict[str, bytes]:
    """What belongs to the segments below the offset, and the snapshots."""
    found: dict[str, bytes] = {}
    for path in folder.iterdir():
        file = parse_segment_file(path.name)
        if file is not None and (file.offset < end_offset or file.kind is FileKind.PRODUCER_SNAPSHOT):
            found[path.name] = path.read_bytes()
    return found


def told(log: bytes) -> list[Any]:
    """The batches of a log in all that does not depend on the bytes that a codec gives."""
    return [
        (
            *(batch.base_offset, batch.last_offset, batch.magic, batch.attributes, batch.leader_epoch),
            *(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count),
            *(batch.base_timestamp_ms, batch.max_timestamp_ms, batch.crc_ok),
            batches.decode_records(log, batch),
        )
        for batch in batches.scan(log)
    ]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", [COPIED, *AT_HAND], ids=lambda case: f"{case.topic}-of-{case.golden.name}")
def test_compacting_once_gives_what_kafka_made(case: Case, workers: int, tmp_path: Path) -> None:
    folder = copy_before(case, tmp_path)
    report = compact(case, folder, case.round_ms, workers=workers)

    assert report.end_offset == case.end_offset
    assert report.rounds == 1
    assert not report.corrupt_batches
    assert not report.left_segments
    expected, found = segment_files(case.after, case.end_offset), segment_files(folder, case.end_offset)
    assert set(found) == set(expected)
    for name, content in expected.items():
        if content != found[name]:
            # Only a codec may give other bytes for the same records, and with them other positions in the index.
            log = name.partition(".")[0] + ".log"
            assert any(batch.codec_id for batch in batches.scan(expected[log])), name
            assert told(found[log]) == told(expected[log])
    logs = [content for name, content in found.items() if name.endswith(".log")]
    assert (report.segments_after, report.bytes_after) == (len(logs), sum(map(len, logs)))


def test_new_files_have_the_time_of_the_last_that_they_were_made_from(tmp_path: Path) -> None:
    folder = copy_before(COPIED, tmp_path)
    compact(COPIED, folder, COPIED.round_ms)
    logs = [path for path in folder.glob("*.log") if int(path.stem) < COPIED.end_offset]
    assert len(logs) == 5
    for path in logs:
        for name in (path, path.with_suffix(".index"), path.with_suffix(".timeindex")):
            assert name.stat().st_mtime_ns == (MODIFIED_MS + int(path.stem)) * 1_000_000


def test_compacting_again_drops_nothing_before_the_horizon_and_the_markers_after_it(tmp_path: Path) -> None:
    folder = copy_before(COPIED, tmp_path)
    first = compact(COPIED, folder, COPIED.round_ms)
    again = compact(COPIED, folder, COPIED.round_ms + 1)
    assert again.records_before == again.records_after == first.records_after
    # All that is left fits into one segment now.
    assert again.segments_after == 1
    assert again.expired_tombstones == 0

    last = compact(COPIED, folder, COPIED.round_ms + 1 + DAY_MS)
    assert last.expired_tombstones == first.kept_tombstones > 0
    assert last.records_after < last.records_before - last.expired_tombstones
    assert not list(folder.glob(f"{0:020}.txnindex"))
