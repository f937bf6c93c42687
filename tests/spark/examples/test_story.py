"""The story as `make run` tells it, with fewer records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import duralog
from examples.story.__main__ import check, tell
from examples.story.change_stream import FIRST_MS, HOUR_MS, HOURS, ChangeStream
from examples.story.chapters import PARTITIONS, TOPIC, write_changes
from examples.story.telling import html, step_lines, table_lines


def test_the_stream_is_the_same_each_time_and_in_order() -> None:
    chunks = [*ChangeStream(250_000, 1_000).chunks()]
    assert [chunk.table for chunk in ChangeStream(250_000, 1_000).chunks()] == [chunk.table for chunk in chunks]
    times = np.concatenate([chunk.table["timestamp"].to_numpy() for chunk in chunks])
    assert len(times) == 250_000
    assert (np.diff(times) >= 0).all()
    assert times[0] >= FIRST_MS
    assert times[-1] < FIRST_MS + HOURS * HOUR_MS
    for chunk in chunks:
        assert chunk.table["value"].is_null().to_numpy().tolist() == chunk.is_deletion.tolist()
        assert chunk.table["key"][0].as_py() == f"product-{chunk.products[0]}".encode()


def test_reported_changes_are_in_the_log(tmp_path: Path) -> None:
    written = write_changes(str(tmp_path), 120_000, 500)
    latest: dict[bytes, bytes | None] = {}
    counts: dict[bytes, int] = {}
    raw_bytes = 0
    with duralog.open(tmp_path, read_only=True) as store:
        for number in range(PARTITIONS):
            for record in store.partition(TOPIC, number).read(0):
                assert record.key is not None
                latest[record.key] = record.value
                counts[record.key] = counts.get(record.key, 0) + 1
                raw_bytes += len(record.key) + len(record.value or b"")
    assert written.live_keys == sum(value is not None for value in latest.values())
    assert written.keys == len(counts)
    assert written.per_key == sorted(counts.values(), reverse=True)
    assert [count for _, count in written.hot_keys] == written.per_key[: len(written.hot_keys)]
    assert all(counts[key.encode()] == count for key, count in written.hot_keys)
    assert written.records == sum(counts.values()) == 120_000
    assert written.raw_bytes == raw_bytes


@pytest.mark.spark
@pytest.mark.since_spark("4.2")
def test_the_story(tmp_path: Path, spark: SparkSession) -> None:
    story = tell(tmp_path, records=40_000, products=2_000, master="local[2]")
    check(story)
    assert story.streamed.records == 40_000
    assert story.compacted.records_after < 4_000
    assert story.bytes_after < story.bytes_before / 3
    assert [step.name for step in story.steps][-1] == "verify"
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert report == html(story)
    assert report.count("<svg") == 14
    assert story.written.hot_keys[0][0] in report
    assert "40,000" in report
    assert f"{story.written.live_keys:,} products that were not deleted" in report
    lines = table_lines(story)
    assert len(lines) == PARTITIONS + 2
    assert len(step_lines(story.steps)) == len(story.steps) + 1
