"""Small clusters for tests: a log that is written once, and copied to the directories of some nodes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

import duralog
from duralog import Record
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from duralog.format.properties import MetaProperties, encode_meta_properties
from duralog.format.uuids import random_uuid

CLUSTER_ID = "made-for-a-test-abcdeQ"
TOPIC = "orders"


def write_log(
    folder: Path, *, segments: int = 4, batches: int = 5, records: int = 3, config: Mapping[str, object] | None = None
) -> Path:
    """A log directory with one partition of batches of `records` records. Every segment is the work of one leader."""
    with duralog.open(folder) as store:
        store.create_topic(TOPIC, partitions=1, config=dict(config or {}))
        log = store.partition(TOPIC, 0)
        for segment in range(segments):
            log.become_leader(segment)
            for batch in range(batches):
                log.append(
                    Record(key=b"k%d" % number, value=b"%d-%d-%d " % (segment, batch, number) * 8)
                    for number in range(records)
                )
            if segment < segments - 1:
                log.roll()
    return folder


def copy_directory(source: Path, target: Path, node_id: int, *, with_metadata: bool = False) -> Path:
    """The directory as that of another node. Without the metadata, epochs decide."""
    ignored = [".kafka_cleanshutdown", ".lock", *([] if with_metadata else ["__cluster_metadata-0"])]
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*ignored))
    write_meta(target, node_id)
    return target


def write_meta(directory: Path, node_id: int, *, cluster_id: str = CLUSTER_ID, directory_id: str | None = None) -> None:
    meta = MetaProperties(version=1, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id or random_uuid())
    (directory / "meta.properties").write_bytes(encode_meta_properties(meta, written="now"))


def write_high_watermark(directory: Path, offset: int, topic: str = TOPIC) -> None:
    (directory / HIGH_WATERMARK_CHECKPOINT).write_bytes(encode_offset_checkpoint([PartitionOffset(topic, 0, offset)]))


def write_high_watermarks(directories: Sequence[Path], offset: int) -> None:
    for directory in directories:
        write_high_watermark(directory, offset)


def write_epochs(directory: Path, *entries: tuple[int, int]) -> None:
    checkpoint = encode_leader_epoch_checkpoint([EpochStart(*entry) for entry in entries])
    (directory / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT).write_bytes(checkpoint)


def lead(directory: Path, node_id: int, epoch: int, cut_at: int, records: int, mark: bytes = b"new") -> None:
    """A leader of this epoch that has the log up to an offset, as after an unclean election, and writes."""
    with duralog.open(directory, config={"log.cleaner.enable": "false"}) as store:
        log = store.partition(TOPIC, 0)
        log.truncate_to(cut_at)
        log.become_leader(epoch)
        for number in range(records):
            log.append([Record(key=b"k%d" % number, value=mark + b"-%d" % number)])
    shutil.rmtree(directory / "__cluster_metadata-0", ignore_errors=True)
    write_meta(directory, node_id)


def three_nodes(folder: Path, *, segments: int = 4, batches: int = 5, records: int = 3) -> list[Path]:
    """Three equal directories with a high watermark at the end of the log."""
    source = _source(segments, batches, records)
    directories = [copy_directory(source, folder / f"broker-{node}", node) for node in (1, 2, 3)]
    for directory in directories:
        write_high_watermark(directory, segments * batches * records)
    return directories


@cache
def _source(segments: int, batches: int, records: int) -> Path:
    """A log directory that is copied, and not changed."""
    work = tempfile.TemporaryDirectory(prefix="duralog-cluster-")
    atexit.register(work.cleanup)
    return write_log(Path(work.name) / "source", segments=segments, batches=batches, records=records)


def logs(directory: Path, topic: str = TOPIC) -> Sequence[Path]:
    """The `.log` files of partition 0, oldest first."""
    return sorted((directory / f"{topic}-0").glob("*.log"))


def flip(path: Path, position: int) -> None:
    """Damage one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def set_leader_epoch(path: Path, epoch: int) -> None:
    """Let another leader have written the batches. The checksum does not cover it."""
    data = bytearray(path.read_bytes())
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big")
        data[position + 12 : position + 16] = epoch.to_bytes(4, "big")
        position += 12 + size
    path.write_bytes(data)


def damage(rng: Random, path: Path) -> None:
    """Change a log file in one of the ways in which files are damaged."""
    size = path.stat().st_size
    kind = rng.choice(("flip", "flips", "cut", "zeros", "gone"))
    if kind == "gone":
        path.unlink()
    elif kind == "cut":
        cut(path, rng.randrange(size))
    elif kind == "zeros":
        first = rng.randrange(size)
        data = bytearray(path.read_bytes())
        data[first : first + rng.randint(1, 400)] = bytes(len(data[first : first + 400]))
        path.write_bytes(data[:size])
    else:
        for _ in range(1 if kind == "flip" else 4):
            flip(path, rng.randrange(size))
