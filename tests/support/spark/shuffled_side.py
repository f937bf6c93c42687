"""A partition on a real disk that is compacted twice: as a store does it, and in the shuffled form, without Spark.

The crew does what Spark's tasks do, in this process, and is as unkind as Spark may be: what is sent comes in any order,
everything is pickled on its way, and any task may run twice.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from duralog.config import BrokerConfig, TopicConfig
from duralog.format.filenames import LOCK, FileKind, SegmentFile
from duralog.format.topic_partition import TopicPartition
from duralog.spark.jobs.compaction.frames import KeyTasks
from duralog.spark.jobs.compaction.groups import GroupToRewrite, RewrittenGroup, rewrite_group
from duralog.spark.jobs.compaction.keys import segment_keys
from duralog.spark.jobs.compaction.marks import segment_marks, superseded_offsets
from duralog.spark.jobs.compaction.rows import KeyRow, SegmentMarks
from duralog.spark.jobs.compaction.shuffled import ShuffledCompaction
from duralog.storage.borrowed_partition import Loan
from duralog.storage.compaction import settings as compaction_settings
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.lent_lock import LentLock
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.log.partition_log import PartitionLog
from tests.support.faults.partition import Partition

JOB = "c" * 32
LARGE_MAP_BYTES = 24 * 40_000
FORM_DEPENDENT = {"seconds", "map_seconds", "rewrite_seconds", "map_fill", "map_bytes", "read_bytes", "notes"}
"""What a report tells of the way, and not of the result."""


class LocalCrew:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.groups_at_once = rng.choice((1, 2, 100))
        self.sent_rows = 0

    def shuffle_keys(self, tasks: KeyTasks) -> list[SegmentMarks]:
        tasks = pickle.loads(pickle.dumps(tasks))
        files = LocalFileSystem()
        keys = self._each(tasks.segments, lambda segment: list(segment_keys(files, tasks.shuffle, segment)))
        superseded = self._each(self._by_target(keys), lambda rows: list(superseded_offsets(tasks.shuffle, rows)))
        by_task = self._by_target(superseded)
        marks = self._each(by_task, lambda rows: segment_marks(files, tasks.shuffle, tasks.segments, rows))
        found = {one.segment: one for one in pickle.loads(pickle.dumps(marks))}
        for one in found.values():
            if one.findings.error is not None:
                raise one.findings.error
        return [found[segment.number] for segment in tasks.segments]

    def rewrite(self, groups: Sequence[GroupToRewrite]) -> list[RewrittenGroup]:
        return [
            self._twice_perhaps(partial(lambda group: rewrite_group(pickle.loads(pickle.dumps(group))), group))
            for group in groups
        ]

    def _each(self, things: Iterable[Any], work: Callable[[Any], list[Any]]) -> list[Any]:
        return [result for thing in things for result in self._twice_perhaps(partial(work, thing))]

    def _twice_perhaps(self, work: Callable[[], Any]) -> Any:
        first = work()
        return work() if self._rng.random() < 0.3 else first

    def _by_target(self, rows: list[KeyRow]) -> list[list[KeyRow]]:
        self.sent_rows += len(rows)
        self._rng.shuffle(rows)
        by_target: dict[int, list[KeyRow]] = {}
        for row in rows:
            by_target.setdefault(row.target, []).append(row)
        return list(by_target.values())


class Side:
    """One of two partitions that are to stay alike."""

    def __init__(self, path: Path, config: TopicConfig) -> None:
        self.path = path
        self.now_ms = 0
        self.files = LocalFileSystem()
        path.mkdir()
        self.partition = Partition(self.files, directory=str(path), config=config, clock=lambda: self.now_ms)
        self.log: PartitionLog = self.partition.open()
        self.config = config

    def restart(self) -> None:
        self.partition.close(self.log)
        self.log = self.partition.open()

    def set_modified_ms(self, base_offset: int, modified_ms: int) -> None:
        path = f"{self.partition.folder}/{SegmentFile(base_offset, FileKind.LOG).name}"
        self.files.set_modified_ms(path, modified_ms)

    def flip(self, base_offset: int, position: int, bits: int) -> None:
        path = Path(self.partition.folder) / SegmentFile(base_offset, FileKind.LOG).name
        modified_ns = path.stat().st_mtime_ns
        with path.open("r+b") as file:
            file.seek(position)
            found = file.read(1)[0]
            file.seek(position)
            file.write(bytes([found ^ bits]))
        os.utime(path, ns=(modified_ns, modified_ns))

    def compact(self, first_dirty_offset: int, end: int) -> CompactionReport:
        report = compact_log(
            self.log,
            first_dirty_offset=first_dirty_offset,
            end=end,
            now_ms=self.now_ms,
            settings=CompactionSettings(memory_bytes=LARGE_MAP_BYTES),
        )
        self.partition.catch_up()
        return report

    def compact_shuffled(
        self, first_dirty_offset: int, end: int, *, memory_bytes: int, piece_bytes: int, rng: random.Random
    ) -> CompactionReport:
        lent = LentLock(LocalLock(str(self.path / LOCK)), JOB, 1)
        rounds: list[int] = []
        crew = LocalCrew(rng)
        try:
            with mock.patch.object(compaction_settings, "PIECE_BYTES", piece_bytes):
                report = ShuffledCompaction(self.loan(), crew).compact_log(
                    self.log,
                    first_dirty_offset=first_dirty_offset,
                    end=end,
                    now_ms=self.now_ms,
                    settings=CompactionSettings(
                        memory_bytes=memory_bytes, load_factor=rng.choice((0.5, 0.9)), on_round=rounds.append
                    ),
                )
        finally:
            lent.release()
        self.partition.catch_up()
        assert rounds == [report.end_offset]
        return report

    def loan(self) -> Loan:
        return Loan(
            path=str(self.path),
            job=JOB,
            slot=0,
            partition=TopicPartition("t", 0),
            topic_id=None,
            leader_epoch=0,
            topic_config=self.config,
            broker_config=BrokerConfig(),
            was_clean=True,
        )

    def contents(self) -> dict[str, tuple[bytes, int]]:
        """All files of the partition's folder, and the times of the logs, which decide about old tombstones."""
        folder = Path(self.partition.folder)
        return {
            str(file.relative_to(folder)): (
                _without_room(file),
                file.stat().st_mtime_ns if file.suffix == ".log" else 0,
            )
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }


def _without_room(file: Path) -> bytes:
    """The active segment's indexes have room behind their contents."""
    data = file.read_bytes()
    return data.rstrip(b"\0") if file.suffix in (".index", ".timeindex") else data


def comparable(report: CompactionReport, side: Side) -> dict[str, object]:
    """What both forms have to report alike."""
    told = dataclasses.asdict(report)
    for name in ("corrupt_batches", "left_segments"):
        # A store has the file of an earlier compaction open by the name that it had then.
        texts = (text.replace(str(side.path), "").replace(".log.cleaned", ".log") for text in told[name])
        told[name] = sorted(texts)
    if report.left_segments:
        # A store finds out while it writes, and begins the group again: some of it is written, and told, in vain.
        del told["written_bytes"]
        left = tuple(text.partition(" ")[0] for text in told["left_segments"])
        told["corrupt_batches"] = [text for text in told["corrupt_batches"] if not text.startswith(left)]
    return {name: told[name] for name in told.keys() - FORM_DEPENDENT}


def disk_without_waiting() -> AbstractContextManager[object]:
    """What is compared is what files hold, and not what of it would survive a loss of power."""
    return mock.patch("os.fsync")
