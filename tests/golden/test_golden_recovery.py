"""Fifteen damaged partitions: recovery makes of them what Kafka made of them, and where it does not, it keeps more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.config import TopicConfig
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.loaded_log import LoadedLog
from duralog.storage.recovery.quarantine import Quarantine
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from duralog.storage.repair.restore import restore

HERE = Path(__file__).parent
DATA = HERE / "data"
BEFORE, AFTER = "recovery/before", "recovery/after"
MANIFEST = json.loads((HERE / "MANIFEST.json").read_text(encoding="utf-8"))
CASES = tuple(json.loads((DATA / "recovery/cases.json").read_text(encoding="utf-8")))

COMPARED = (".log", ".index", ".timeindex", ".txnindex")
BETTER = ("codecs-librdkafka-0", "codecs-librdkafka-4", "trimmed-0")
"""Where Kafka keeps a bad batch, or drops good ones."""
INTERVAL_BYTES = {"txn-0": 1024}

NOW_MS = 1_794_726_000_000
"""On the day on which Kafka wrote the files."""


def config(case: str) -> TopicConfig:
    return TopicConfig(index_interval_bytes=INTERVAL_BYTES.get(case, 4096))


def log_start(case: str) -> int:
    checkpoint = (DATA / "store/log-start-offset-checkpoint").read_bytes()
    starts = {f"{entry.topic}-{entry.partition}": entry.offset for entry in decode_offset_checkpoint(checkpoint)}
    return starts.get(case, 0)


def load(case: str, folder: Path, *, clean: bool = False, read_only: bool = False) -> LoadedLog:
    return load_partition(
        LocalFileSystem(),
        str(folder),
        LoadOptions(
            config=config(case),
            clean=clean,
            log_start_checkpoint=log_start(case),
            clock=lambda: NOW_MS,
            read_only=read_only,
        ),
    )


def load_and_close(case: str, folder: Path, *, clean: bool = False) -> LoadedLog:
    loaded = load(case, folder, clean=clean)
    for segment in loaded.segments:
        segment.close()
    return loaded


def damaged(case: str, target: Path) -> Path:
    """The partition as it was before recovery, made new."""
    folder = target / case
    folder.mkdir()
    for file in MANIFEST["files"] + MANIFEST["shared"]:
        path = Path(file["path"])
        if path.parent.as_posix() == f"{BEFORE}/{case}":
            (folder / path.name).write_bytes((DATA / file.get("same_as", file["path"])).read_bytes())
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in COMPARED and path.is_file()
    }


def everything(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def batches(log: bytes) -> Iterator[tuple[Any, bytes]]:
    for piece in read_pieces(MemorySource(log)):
        for row in piece.batches:
            begin = int(row["position"])
            yield row, log[begin : begin + int(row["size"])]


@pytest.mark.parametrize("case", [case for case in CASES if case not in BETTER])
def test_a_damaged_partition_becomes_what_kafka_made_of_it(case: str, tmp_path: Path) -> None:
    expected = {
        Path(file["path"]).name: file["sha256"]
        for file in MANIFEST["digests"]
        if Path(file["path"]).parent.as_posix() == f"{AFTER}/{case}" and Path(file["path"]).suffix in COMPARED
    }
    assert expected
    folder = damaged(case, tmp_path)
    load_and_close(case, folder)
    assert digests(folder) == expected


@pytest.mark.parametrize(
    ("case", "offsets", "quarantined"),
    [
        # Kafka keeps all three batches, the one of an unknown version too.
        ("codecs-librdkafka-0", [(0, 331), (660, 799)], [(65067, 130451)]),
        # Kafka empties the log, although only the last batch is in the wrong place.
        ("codecs-librdkafka-4", [(0, 319), (320, 653)], [(84076, 103062)]),
    ],
)
def test_only_the_bad_batch_goes(
    case: str, offsets: list[tuple[int, int]], quarantined: list[tuple[int, int]], tmp_path: Path
) -> None:
    folder = damaged(case, tmp_path)
    before = logs(folder)
    loaded = load_and_close(case, folder)
    (log,) = logs(folder).values()
    assert [(row["base_offset"], row["last_offset"]) for row, _ in batches(log)] == offsets
    assert loaded.end_offset == offsets[-1][1] + 1
    reports = Quarantine(LocalFileSystem(), str(folder), lambda: 0).reports()
    assert [(report.start, report.end) for report in reports] == quarantined
    (original,) = before.values()
    for start, end in quarantined:
        original = original[:start] + original[end:]
    assert log == original


def test_a_damaged_batch_before_the_start_of_the_log_does_not_cost_what_follows(tmp_path: Path) -> None:
    # Kafka cuts the log at offset 3445, sees that it starts at 3456, and deletes all of it.
    folder = damaged("trimmed-0", tmp_path)
    before = logs(folder)
    loaded = load_and_close("trimmed-0", folder)
    assert (loaded.log_start_offset, loaded.end_offset) == (3456, 5000)
    first, second = before.values()
    assert list(logs(folder).values()) == [first[:986671] + first[1002623:], second]
    (report,) = Quarantine(LocalFileSystem(), str(folder), lambda: 0).reports()
    assert (report.offset_before, report.offset_after, report.fault) == (3444, 3505, "CRC_MISMATCH")


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost(case: str, tmp_path: Path) -> None:
    folder = damaged(case, tmp_path)
    before = logs(folder) or {path.name.removesuffix(".swap"): path.read_bytes() for path in folder.glob("*.log.swap")}
    load_and_close(case, folder)
    pieces: dict[str, list[tuple[int, int, bytes]]] = {}
    quarantine = Quarantine(LocalFileSystem(), str(folder), lambda: 0)
    for report in quarantine.reports():
        file = quarantine.open(report)
        pieces.setdefault(report.file, []).append((report.start, report.end, file.read(0, file.size)))
    kept = logs(folder)
    for name, original in before.items():
        rebuilt = kept.get(name, b"")
        for start, end, taken in sorted(pieces.get(name, [])):
            assert len(taken) == end - start
            rebuilt = rebuilt[:start] + taken + rebuilt[start:]
        assert rebuilt == original, name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_recovered_partition_needs_no_more_recovery(case: str, clean: bool, tmp_path: Path) -> None:
    folder = damaged(case, tmp_path)
    first = load_and_close(case, folder)
    before = everything(folder)
    again = load_and_close(case, folder, clean=clean)
    assert everything(folder) == before
    assert (again.log_start_offset, again.end_offset) == (first.log_start_offset, first.end_offset)


@pytest.mark.parametrize("case", CASES)
def test_reading_only_changes_nothing(case: str, tmp_path: Path) -> None:
    folder = damaged(case, tmp_path)
    before = everything(folder)
    loaded = load(case, folder, read_only=True)
    for segment in loaded.segments:
        assert segment.next_offset() > segment.base_offset
        assert segment.offset_index.entry_count >= 0
    assert everything(folder) == before
    assert loaded.end_offset >= load(case, folder).end_offset


@pytest.mark.parametrize(
    ("case", "restored", "end_offset"),
    [
        ("codecs-1", [(640, 799)], 800),
        ("codecs-librdkafka-1", [(614, 799)], 800),
        ("codecs-librdkafka-2", [(626, 799)], 800),
        ("codecs-librdkafka-4", [], 654),
        ("plain-0", [], 6001),
        ("trimmed-0", [], 5000),
    ],
)
def test_what_is_valid_can_be_put_back(
    case: str, restored: list[tuple[int, int]], end_offset: int, tmp_path: Path
) -> None:
    folder = damaged(case, tmp_path)
    load_and_close(case, folder)
    for dry_run in (True, False):
        before = everything(folder)
        results = restore(
            LocalFileSystem(), str(folder), clock=lambda: 0, log_start_offset=log_start(case), dry_run=dry_run
        )
        assert [offsets for result in results for offsets in result.restored_offsets] == restored
        if dry_run or not restored:
            assert everything(folder) == before
    loaded = load_and_close(case, folder, clean=True)
    assert loaded.end_offset == end_offset
    written = {bytes_ for log in logs(DATA / "store" / case).values() for _, bytes_ in batches(log)}
    assert all(bytes_ in written for log in logs(folder).values() for _, bytes_ in batches(log))
    assert sum(report.restored_batches for report in Quarantine(LocalFileSystem(), str(folder), int).reports()) == len(
        restored
    )
    again = restore(LocalFileSystem(), str(folder), clock=lambda: 0, log_start_offset=log_start(case))
    assert not any(result.restored_offsets for result in again)
