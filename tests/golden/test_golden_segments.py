"""The segments that Kafka wrote, through `Segment`: the same indexes, and every lookup as a plain scan answers it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from duralog.format import batches
from duralog.format.filenames import FileKind, parse_segment_file
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.batch_extents import extents
from duralog.storage.segment.segment import Segment, SegmentOptions
from duralog.storage.segment.segment_files import SegmentFiles

FS = LocalFileSystem()
INTERVAL_BYTES = {"store/txn-0": 1024}
"""The partitions whose topic has an `index.interval.bytes` of its own."""
SAMPLE = 40


def open_segment(log: Path, options: SegmentOptions, *, read_only: bool) -> Segment:
    file = parse_segment_file(log.name)
    assert file is not None
    size_bytes = log.stat().st_size
    files = SegmentFiles(FS, str(log.parent), file.offset, read_only=read_only)
    return Segment(files, size_bytes=size_bytes, created_ms=0, options=options)


@pytest.fixture
def options(golden: Path, log_with_truth: Path) -> SegmentOptions:
    folder = log_with_truth.parent.relative_to(golden).as_posix()
    return SegmentOptions(index_interval_bytes=INTERVAL_BYTES.get(folder, 4096))


@pytest.fixture
def copy(tmp_path: Path, log_with_truth: Path) -> Path:
    """The segment's files in a folder of their own."""
    for path in log_with_truth.parent.glob(log_with_truth.stem + ".*"):
        shutil.copy2(path, tmp_path)
    return tmp_path / log_with_truth.name


def side_files(log: Path) -> dict[str, bytes]:
    return {path.suffix: path.read_bytes() for path in log.parent.glob(log.stem + ".*index")}


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def check_lookups(segment: Segment, data: bytes) -> None:
    """A sample of all offsets and times, near every one that the log holds and beyond both ends."""
    choose = random.Random(len(data))
    found = [(batch, batches.decode_records(data, batch)) for batch in batches.scan(data)]
    records = [record for _, inside in found for record in inside]
    ends = [(batch.last_offset, batch.position, batch.size_bytes) for batch, _ in found]
    last = ends[-1][0] if ends else segment.base_offset - 1
    assert segment.next_offset() == last + 1
    assert segment.max_timestamp_ms == max((batch.max_timestamp_ms for batch, _ in found), default=-1)

    edges = [segment.base_offset - 1, segment.base_offset, last, last + 1]
    for offset in edges + [choose.randint(segment.base_offset, last + 1) for _ in range(SAMPLE)]:
        expected = next(((position, size, end) for end, position, size in ends if end >= offset), None)
        assert segment.find_batch(offset) == expected

    times = [record.timestamp_ms for record in records] or [0]
    near = [choose.choice(times) + choose.randint(-1, 1) for _ in range(SAMPLE)]
    for timestamp in [min(times) - 1, min(times), max(times), max(times) + 1, *near]:
        start = choose.choice([segment.base_offset, choose.randint(segment.base_offset, last + 1)])
        expected = next(
            (
                (record.offset, record.timestamp_ms, batch.leader_epoch)
                for batch, inside in found
                if batch.max_timestamp_ms >= timestamp
                for record in inside
                if record.timestamp_ms >= timestamp and record.offset >= start
            ),
            None,
        )
        by_time = segment.find_offset_by_timestamp(timestamp, start)
        assert (None if by_time is None else (*by_time, by_time.leader_epoch)) == expected


def test_lookups_agree_with_a_scan_and_reading_changes_nothing(copy, options):
    before = state_of(copy.parent)
    data = copy.read_bytes()
    segment = open_segment(copy, options, read_only=True)
    check_lookups(segment, data)
    read = segment.read(segment.base_offset, 1 << 30)
    assert (read.read() if read else b"") == data
    segment.transaction_index.check()
    segment.close()
    assert state_of(copy.parent) == before


def test_opening_for_writing_and_closing_changes_nothing(copy, options):
    before = state_of(copy.parent)
    has_indexes = copy.with_suffix(".index").exists()
    segment = open_segment(copy, options, read_only=False)
    check_lookups(segment, copy.read_bytes())
    segment.flush()
    segment.close()
    after = state_of(copy.parent)
    assert {name: after[name] for name in before} == before
    assert has_indexes or set(after) - set(before) <= {copy.stem + ".index", copy.stem + ".timeindex"}


def test_recovery_gives_the_indexes_that_kafka_wrote(copy, options):
    expected = side_files(copy)
    transactions = expected.pop(".txnindex", None)
    data = copy.read_bytes()
    segment = open_segment(copy, options, read_only=False)
    aborted = list(segment.transaction_index.entries)
    assert bool(aborted) == (transactions is not None)
    recovered = segment.recover()
    segment.transaction_index.rewrite(aborted)
    assert (recovered.valid_bytes, recovered.cut_bytes, recovered.reason) == (len(data), 0, None)
    assert copy.read_bytes() == data
    if expected:
        assert side_files(copy) == expected | ({".txnindex": transactions} if transactions else {})
    check_lookups(segment, data)


def test_appending_batch_by_batch_writes_the_files_that_kafka_wrote(tmp_path, log_with_truth, options):
    source = open_segment(log_with_truth, options, read_only=True)
    data = log_with_truth.read_bytes()
    copy = Segment.create(FS, str(tmp_path), source.base_offset, created_ms=0, options=options)
    for piece in source.batches_from(0):
        for row in range(len(piece.batches)):
            rows = piece.batches[row : row + 1].copy()
            begin = int(rows["position"][0])
            rows["position"] = 0
            copy.append((data[begin : begin + int(rows["size"][0])],), extents(rows))
    copy.close()
    written = Path(copy.path(FileKind.LOG))
    assert written.read_bytes() == data
    expected = side_files(log_with_truth)
    expected.pop(".txnindex", None)
    if expected:
        assert side_files(written) == expected
