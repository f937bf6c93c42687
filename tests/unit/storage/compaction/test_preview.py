"""What is found out about a compaction beforehand, where the command line cannot show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from duralog.format.layout import DELETE_HORIZON_BIT
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.compaction.compact import compact_log, preview_compaction
from duralog.storage.compaction.delete_horizons import DeleteHorizons
from duralog.storage.compaction.report import CompactionStopped
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.log_retention import retain
from duralog.storage.log.retention import BUILT_IN_POLICIES
from tests.support.compaction.compacted_directory import CompactedDirectory, fill


def batches(*horizons_ms: int | None) -> np.ndarray:
    rows = np.zeros(len(horizons_ms), BATCH_DTYPE)
    rows["magic"] = 2
    for row, horizon_ms in zip(rows, horizons_ms, strict=True):
        row["attributes"] = 0 if horizon_ms is None else DELETE_HORIZON_BIT
        row["base_timestamp"] = 77 if horizon_ms is None else horizon_ms
    return rows


def test_horizons_are_counted() -> None:
    horizons = DeleteHorizons(now_ms=100)
    horizons.add(batches(None))
    assert (horizons.batches, horizons.earliest_ms, horizons.latest_ms) == (0, None, None)
    horizons.add(batches(150, None, 100))
    horizons.add(batches(90, 150))
    assert (horizons.batches, horizons.passed_batches) == (4, 2)
    assert (horizons.earliest_ms, horizons.latest_ms) == (90, 150)
    assert horizons.by_time == {90: 1, 100: 1, 150: 2}


def test_an_old_message_has_no_horizon() -> None:
    rows = batches(5)
    rows["magic"] = 1
    horizons = DeleteHorizons(now_ms=100)
    horizons.add(rows)
    assert horizons.batches == 0


def test_many_horizons_take_little_memory() -> None:
    horizons = DeleteHorizons(now_ms=100)
    horizons.add(batches(*range(3000)))
    horizons.add(batches(0, 5000))
    assert (horizons.batches, horizons.latest_ms, len(horizons.by_time)) == (3002, 5000, 1000)
    assert horizons.by_time[0] == 2


def test_retention_may_take_everything_meanwhile(tmp_path: Path) -> None:
    directory = CompactedDirectory(tmp_path / "data")
    with directory.open() as store:
        log = directory.log(store, "orders")
        fill(log, segments=4, keys=100, records=100)

        def take_all(_end_offset: int) -> None:
            log.delete_records(-1)
            assert retain(log, BUILT_IN_POLICIES, directory.made_ms, delete=True)

        with pytest.raises(CompactionStopped, match="no segment is left below offset 400"):
            compact_log(
                log,
                first_dirty_offset=0,
                end=400,
                now_ms=directory.made_ms,
                settings=CompactionSettings(memory_bytes=1024, on_round=take_all),
            )
        with pytest.raises(CompactionStopped):
            preview_compaction(log, first_dirty_offset=400, end=400, now_ms=directory.made_ms)
