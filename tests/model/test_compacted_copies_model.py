"""Copies that were cleaned at different times and then damaged, against a model: what is read, and what a heal leaves.

- What was readable before a heal is readable afterwards, through all copies and in each of them, unless a cleaner would
  have removed it.
- A deleted key comes back neither in what is read nor in what was healed, unless the report says so.
- What is lost is reported, and a second heal changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.heal import HealedPartition, HealRequest, heal_cluster
from duralog.scanning.cluster.cluster import Copies, open_cluster
from duralog.scanning.cluster.sources import plan_cluster
from tests.support.cluster.cleaned import (
    History,
    ModelCopy,
    Rows,
    damage_batch,
    missing_without_reason,
    random_copies,
    table,
)
from tests.support.cluster.made import TOPIC
from tests.support.cluster.recorded import scanned

BLOCKS = 4
SEEDS = 60
ALL_COMPACTED = 2**63


@dataclass
class Damaged:
    """A history, its copies, and the directories in which they were damaged."""

    history: History
    copies: list[ModelCopy]
    directories: list[Path]
    intact: list[Rows]
    """What is left in each directory."""
    has_lost_files: bool
    dense_from: int

    @classmethod
    def random(cls, seed: int, folder: Path) -> Damaged:
        rng = Random(seed)
        history = History.random(rng)
        copies = random_copies(rng, history)
        directories = [folder / f"{seed}" / f"broker-{number}" for number in range(1, len(copies) + 1)]
        cleaned_to = max(copy.cleaned_to or 0 for copy in copies)
        for number, (copy, directory) in enumerate(zip(copies, directories, strict=True)):
            copy.write(directory, number + 1, high_watermark=history.end)
        has_lost_files = rng.random() < 0.4
        for copy, directory in zip(copies, directories, strict=True):
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                _damage(rng, copy, directory / f"{TOPIC}-0", may_delete=has_lost_files)
        intact = [copy.intact(directory) for copy, directory in zip(copies, directories, strict=True)]
        return cls(history, copies, directories, intact, has_lost_files, cleaned_to)

    @property
    def paths(self) -> list[str]:
        return [str(directory) for directory in self.directories]

    def tables(self, *, with_late_ones: bool) -> dict[bytes | None, set[bytes | None]]:
        """By key, what a table of the topic may show: of each copy that reached the end and, as Kafka would leave it,
        of each that fetches its end from one of these."""
        whole = [copy.rows() for copy in self.copies if copy.end == self.history.end]
        late = [
            {**copy.rows(), **{offset: row for offset, row in rows.items() if offset >= copy.end}}
            for copy in self.copies
            for rows in whole
        ]
        tables = [table(rows) for rows in (*whole, *(late if with_late_ones else []))]
        return {key: {found.get(key) for found in tables} for key, _ in self.history.records.values()}


def _damage(rng: Random, copy: ModelCopy, folder: Path, *, may_delete: bool) -> None:
    paths = {base: folder / f"{base:020}.log" for base, batches in copy.files.items() if batches}
    there = {base: path for base, path in paths.items() if path.exists() and path.stat().st_size}
    if not there:
        return
    base = rng.choice(sorted(there))
    if may_delete and rng.random() < 0.5 and len(list(folder.glob("*.log"))) > 1:
        there[base].unlink()
        return
    size = there[base].stat().st_size
    left = [(position, data) for position, data in copy.files[base] if position + len(data) <= size]
    if left:
        damage_batch(rng, there[base], left)


def read(paths: list[str]) -> Rows | None:
    """None if a batch cannot be read from any copy."""
    try:
        return {offset: (key, value) for offset, key, value in scanned(paths, TOPIC)}
    except (CorruptRecord, OffsetOutOfRange):
        return None


def is_mixed(paths: list[str]) -> bool:
    with open_cluster(paths) as cluster:
        return bool(plan_cluster(cluster, [TopicPartition(TOPIC, 0)]).mixed)


def heal(paths: list[str], **options: bool) -> HealedPartition:
    (found,) = heal_cluster(HealRequest(paths=paths, **options)).partitions
    return found


def log_files(damaged: Damaged) -> dict[Path, bytes]:
    return {path: path.read_bytes() for each in damaged.directories for path in each.rglob(f"{TOPIC}-0/*.log")}


def wrong_keys(rows: Rows, right: dict[bytes | None, set[bytes | None]]) -> dict[bytes | None, bytes | None]:
    found = table(rows)
    return {key: found.get(key) for key, values in right.items() if found.get(key) not in values}


@pytest.mark.parametrize("knows_cleaners", [True, False])
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_record_is_lost_and_no_deleted_key_comes_back(tmp_path, monkeypatch, block, knows_cleaners, randomised):
    if not knows_cleaners:
        monkeypatch.setattr(Copies, "dense_from", property(lambda _: None))
    counts: Counter[str] = Counter()
    first = 10_000 * (not knows_cleaners)
    for seed in range(first + block, first + SEEDS * randomised, BLOCKS):
        try:
            _check(Damaged.random(seed, tmp_path), counts, knows_cleaners=knows_cleaners)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
    assert counts["healed"] > 8
    assert counts["read"]


def _check(damaged: Damaged, counts: Counter[str], *, knows_cleaners: bool) -> None:
    paths = damaged.paths
    dense_from = damaged.dense_from if knows_cleaners else ALL_COMPACTED
    before, mixed = read(paths), is_mixed(paths)
    planned = heal(paths, dry_run=True)
    if before is not None and not damaged.has_lost_files and not mixed and not planned.lost:
        assert not wrong_keys(before, damaged.tables(with_late_ones=False)), "read"
        counts["read"] += 1
    report = heal(paths)
    counts["healed"] += len(report.copies)
    assert [copy.plan for copy in report.copies] == [copy.plan for copy in planned.copies]
    refused = {copy.plan.location.url for copy in report.copies if copy.failure}
    after = read(paths)
    if before is not None:
        assert after is not None, "readable before"
        assert not missing_without_reason(before, after, damaged.history, dense_from), "readable before"
    for directory, intact in zip(damaged.directories, damaged.intact, strict=True):
        if str(directory) not in refused:
            with duralog.open(directory, read_only=True) as store:
                log = store.partition(TOPIC, 0)
                now = {record.offset: (record.key, record.value) for record in log.read(log.start_offset)}
            assert not missing_without_reason(intact, now, damaged.history, dense_from), f"{directory.name} had them"
    if refused:
        counts["refused"] += 1
        return
    if not damaged.has_lost_files and not report.lost:
        assert after is not None
        assert not wrong_keys(after, damaged.tables(with_late_ones=True)), "healed"
    healed = log_files(damaged)
    assert not heal(paths).copies, "a second heal"
    assert log_files(damaged) == healed, "a second heal"
