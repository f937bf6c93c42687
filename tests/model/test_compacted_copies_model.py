"""Copies that were cleaned at different times and then damaged, against a model: what is read, and what a heal leaves.

- What was readable before a heal is readable afterwards, through all copies and in each of them, unless a cleaner would
  have removed it.
- A deleted key comes back neither in what is read nor in what was healed, unless the report says so.
- What is lost is reported, and a second heal changes nothing.
"""

from __future__ import annotations

from collections import Counter

import pytest

import duralog
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.heal import HealedPartition, HealRequest, heal_cluster
from duralog.scanning.cluster.cluster import Copies, open_cluster
from duralog.scanning.cluster.sources import plan_cluster
from tests.support.cluster.cleaned import Damaged, Rows, missing_without_reason, table
from tests.support.cluster.made import TOPIC
from tests.support.cluster.recorded import scanned

BLOCKS = 4
SEEDS = 40
ALL_COMPACTED = 2**63


def read(paths: list[str]) -> Rows | None:
    """None if a batch cannot be read from any copy."""
    try:
        return {offset: (key, value) for offset, key, value in scanned(paths, TOPIC)}
    except (CorruptRecord, OffsetOutOfRange):
        return None


def is_mixed(paths: list[str]) -> bool:
    with open_cluster(paths) as cluster:
        return bool(plan_cluster(cluster, [TopicPartition(TOPIC, 0)]).mixed)


def heal(paths: list[str], *, dry_run: bool = False) -> HealedPartition:
    (found,) = heal_cluster(HealRequest(paths=paths, dry_run=dry_run)).partitions
    return found


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
    assert counts["healed"] > 4


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
    healed = damaged.log_files()
    assert not heal(paths).copies, "a second heal"
    assert damaged.log_files() == healed, "a second heal"
