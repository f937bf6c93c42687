"""Directories that Kafka wrote, read in slices of any size: together they hold what reading as a whole gives."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from duralog.columnar.tables import to_table
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import resolve, select_partitions
from duralog.scanning.planning import plan
from duralog.scanning.slice_reading import read_slices
from duralog.storage.log.isolation import Isolation
from tests.support.places import GOLDEN

DATA = GOLDEN
DIRECTORIES = ["store", "legacy", "compaction/before", "compaction/after"]
EVERY_ENTRY = 1
"""So small a slice that every index entry is a cut."""


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_slices_hold_together_what_the_log_holds(directory: str, isolation: Isolation) -> None:
    with open_store(str(DATA / directory)) as store:
        partitions = select_partitions(store, topics=store.topics())
        whole = {partition: store.partition(*partition).read_arrow(isolation=isolation) for partition in partitions}
        ranges = resolve(store, partitions, isolation=isolation)
        counts = []
        for max_slice_bytes in (EVERY_ENTRY, 5_000, 77_000, 128 << 20):
            planned = plan(store, ranges, isolation=isolation, max_slice_bytes=max_slice_bytes)
            counts.append(len(planned.slices))
            for partition in partitions:
                own = [found for found in planned.slices if (found.topic, found.partition) == partition]
                assert all(one.end_offset <= next_one.start_offset for one, next_one in pairwise(own))
                table = to_table(read_slices(own), None)
                assert table.combine_chunks().equals(whole[partition].combine_chunks()), (partition, max_slice_bytes)
        assert sorted(counts, reverse=True) == counts
        assert counts[0] > 2 * counts[-1]


def test_every_record_that_kafka_saw_comes_once() -> None:
    for directory in DIRECTORIES:
        with open_store(str(DATA / directory)) as store:
            partitions = select_partitions(store, topics=store.topics())
            planned = plan(store, resolve(store, partitions), max_slice_bytes=10_000)
            found: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
            for part in planned.slices:
                rows = sum(batch.num_rows for batch in read_slices([part], columns=["offset"]))
                found[TopicPartition(part.topic, part.partition)] += rows
            for partition in partitions:
                seen = kafkas_offsets(DATA / directory / str(partition))
                if seen is not None:
                    start = store.partition(*partition).start_offset
                    assert found[partition] == sum(offset >= start for offset in seen), partition


def kafkas_offsets(folder: Path) -> list[int] | None:
    """Of all data records; None if Kafka's reader has not reported every segment."""
    logs = sorted(folder.glob("*.log"))
    truths = [log.with_name(f"{log.stem}.truth.jsonl.gz") for log in logs]
    if not all(truth.exists() for truth in truths):
        return None
    offsets: list[int] = []
    for truth in truths:
        with gzip.open(truth, "rt", encoding="utf-8") as lines:
            for batch in map(json.loads, lines):
                if not batch["control"]:
                    offsets += [record["offset"] for record in batch["records"]]
    return offsets


@pytest.mark.parametrize("directory", ["store", "compaction/after"])
def test_a_directory_without_indexes_reads_alike(directory: str, tmp_path: Path) -> None:
    for log in (DATA / directory).glob("*-*/*.log"):
        folder = tmp_path / log.parent.name
        folder.mkdir(exist_ok=True)
        (folder / log.name).write_bytes(log.read_bytes())
    with open_store(str(DATA / directory)) as known, open_store(str(tmp_path)) as bare:
        partitions = select_partitions(bare, topics=bare.topics())
        isolation = Isolation.READ_COMMITTED
        ranges = resolve(bare, partitions, isolation=isolation)
        planned = plan(bare, ranges, isolation=isolation, max_slice_bytes=20_000)
        for partition in partitions:
            start = known.partition(*partition).start_offset
            expected = known.partition(*partition).read_arrow(isolation=isolation).column("offset").to_pylist()
            own = [found for found in planned.slices if (found.topic, found.partition) == partition]
            offsets = to_table(read_slices(own, columns=["offset"]), ["offset"]).column("offset").to_pylist()
            # What a checkpoint tells of the start of a log is in none of the logs.
            assert [offset for offset in offsets if offset >= start] == expected
