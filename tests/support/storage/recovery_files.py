"""Partition folders made by hand, for tests of recovery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.config import TopicConfig
from duralog.format import record_batch
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.record import Record
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.loaded_log import LoadedLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition

FOLDER = "/data/t-0"
NOW_MS = 1_700_000_100_000
RECORD_TIME_MS = 1_700_000_000_000


def batch(
    offset: int, count: int = 2, *, value: bytes = b"value", leader_epoch: int = 0, producer_id: int = -1
) -> bytes:
    """Records from this offset on."""
    records = [
        Record(key=b"%020d" % (offset + number), value=value, timestamp_ms=RECORD_TIME_MS + offset + number)
        for number in range(count)
    ]
    is_idempotent = producer_id >= 0
    return record_batch.encode(
        records,
        base_offset=offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=offset if is_idempotent else -1,
    )


def batches(offsets: Iterable[int]) -> bytes:
    """Batches of two records that start at these offsets."""
    return b"".join(map(batch, offsets))


def path(
    base_offset: int, kind: FileKind = FileKind.LOG, state: FileState = FileState.LIVE, folder: str = FOLDER
) -> str:
    return f"{folder}/{SegmentFile(base_offset, kind, state).name}"


def make_partition(fs: FileSystem, logs: dict[int, bytes], folder: str = FOLDER) -> None:
    """A folder with these logs, by base offset, and nothing else, all of it on disk."""
    fs.make_folder(folder)
    for base_offset, content in logs.items():
        fs.write(path(base_offset, folder=folder), content, sync=True)
    fs.sync_folder(folder)
    fs.sync_folder(folder.rsplit("/", 1)[0])
    fs.sync_folder("/")


def load(
    fs: FileSystem,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start: int = 0,
    read_only: bool = False,
    config: TopicConfig | None = None,
    folder: str = FOLDER,
) -> LoadedLog:
    return load_partition(
        fs,
        folder,
        LoadOptions(
            config=config or TopicConfig(index_interval_bytes=0),
            clean=clean,
            recovery_point=recovery_point,
            log_start_checkpoint=log_start,
            clock=lambda: NOW_MS,
            read_only=read_only,
        ),
    )


def close(loaded: LoadedLog) -> None:
    """As after a clean stop: everything has its final size and is on disk."""
    for segment in loaded.segments:
        segment.on_roll()
        segment.flush()
        segment.close()


def offsets_in(log: bytes) -> list[tuple[int, int]]:
    return [
        (int(row["base_offset"]), int(row["last_offset"]))
        for piece in read_pieces(MemorySource(log))
        for row in piece.batches
    ]


def offsets_on_disk(fs: FileSystem, folder: str = FOLDER) -> dict[int, list[tuple[int, int]]]:
    """By base offset, the first and last offsets of the batches of each plain log."""
    found: dict[int, list[tuple[int, int]]] = {}
    for name in sorted(entry.name for entry in fs.list(folder)):
        file = parse_segment_file(name)
        if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
            found[file.offset] = offsets_in(fs.read_all(f"{folder}/{name}"))
    return found


def names(fs: FileSystem, folder: str = FOLDER) -> Sequence[str]:
    return sorted(entry.name for entry in fs.list(folder))


def with_flipped_bit(log: bytes, position: int) -> bytes:
    return log[:position] + bytes([log[position] ^ 1]) + log[position + 1 :]
