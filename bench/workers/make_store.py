"""Makes a log directory and closes it well: `segments DIRECTORY TOPIC FILE PARTITIONS`, each partition with the batches
of the file; `many DIRECTORY TOPIC PARTITIONS SEGMENTS`, each partition with so many segments of a few records.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import duralog
from duralog.columnar.pieces import read_pieces
from duralog.format.checkpoints import PartitionOffset, encode_offset_checkpoint
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.disk.file_source import FileSource

# The records are as old as their seed says; nothing may delete them.
_CONFIG = {"log.retention.ms": -1}
_RECORDS_A_SEGMENT = 10


def of_segments(directory: str, topic: str, file: str, partitions: int) -> None:
    with duralog.open(directory, _CONFIG) as store, FileSource(file) as source:
        store.create_topic(topic, partitions, {"retention.ms": -1})
        logs = [store.partition(topic, number) for number in range(partitions)]
        for piece in read_pieces(source):
            for log in logs:
                log.append_batches(piece.data.data[: piece.batches["size"].sum()], origin=AppendOrigin.AS_IS)


def of_many_partitions(directory: str, topic: str, partitions: int, segments: int) -> None:
    """The first partition is written, the others are copies of its files: so nobody waits for thousands of syncs."""
    records = [duralog.Record(key=b"key-%d" % n, value=b"v" * 90) for n in range(_RECORDS_A_SEGMENT)]
    with duralog.open(directory, _CONFIG) as store:
        store.create_topic(topic, partitions, {"retention.ms": -1})
        log = store.partition(topic, 0)
        for segment in range(segments):
            if segment:
                log.roll()
            log.append(records)
        end_offset = log.end_offset
    root = Path(directory)
    for number in range(1, partitions):
        shutil.copytree(root / f"{topic}-0", root / f"{topic}-{number}", dirs_exist_ok=True)
    offsets = encode_offset_checkpoint(PartitionOffset(topic, number, end_offset) for number in range(partitions))
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (root / name).write_bytes(offsets)


if __name__ == "__main__":
    kind, directory, topic, first, second = sys.argv[1:]
    if kind == "segments":
        of_segments(directory, topic, first, int(second))
    else:
        of_many_partitions(directory, topic, int(first), int(second))
