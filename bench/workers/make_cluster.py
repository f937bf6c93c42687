"""Makes the log directories of three nodes: `copies DIRECTORY TOPIC STORE`, each with the first partition of a store's
topic; `many DIRECTORY TOPIC PARTITIONS SEGMENTS`, each with so many partitions of the same small segments.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import duralog
from duralog.format.checkpoints import PartitionOffset, encode_offset_checkpoint
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA
from duralog.format.properties import MetaProperties, encode_meta_properties
from duralog.format.uuids import random_uuid

_NODES = (1, 2, 3)
_PARTITIONS_A_TOPIC = 100
_RECORDS_A_SEGMENT = 5


def copies(folder: Path, topic: str, store: str) -> None:
    with duralog.open(store, read_only=True) as opened:
        end_offset = opened.partition(topic, 0).end_offset
    for node in _NODES:
        directory = folder / f"broker-{node}"
        directory.mkdir(parents=True)
        shutil.copytree(Path(store) / f"{topic}-0", directory / f"{topic}-0")
        _finish(directory, node, [PartitionOffset(topic, 0, end_offset)])


def many(folder: Path, topic: str, partitions: int, segments: int) -> None:
    """By hard links: planning reads a few bytes of each file."""
    with duralog.open(folder / "seed") as store:
        store.create_topic("seed", partitions=1)
        log = store.partition("seed", 0)
        for segment in range(segments):
            for _ in range(_RECORDS_A_SEGMENT):
                log.append([duralog.Record(key=b"key", value=bytes(100))])
            if segment < segments - 1:
                log.roll()
        end_offset = log.end_offset
    files = [path for path in (folder / "seed" / "seed-0").iterdir() if path.name != PARTITION_METADATA]
    names = [(f"{topic}-{number // _PARTITIONS_A_TOPIC}", number % _PARTITIONS_A_TOPIC) for number in range(partitions)]
    for node in _NODES:
        directory = folder / f"broker-{node}"
        for name, number in names:
            target = directory / f"{name}-{number}"
            target.mkdir(parents=True)
            for path in files:
                os.link(path, target / path.name)
        _finish(directory, node, [PartitionOffset(name, number, end_offset) for name, number in names])
    shutil.rmtree(folder / "seed")


def _finish(directory: Path, node: int, high_watermarks: list[PartitionOffset]) -> None:
    meta = MetaProperties(version=1, cluster_id="measured-abcdefghijklQ", node_id=node, directory_id=random_uuid())
    (directory / META_PROPERTIES).write_bytes(encode_meta_properties(meta, written="now"))
    (directory / HIGH_WATERMARK_CHECKPOINT).write_bytes(encode_offset_checkpoint(high_watermarks))


if __name__ == "__main__":
    kind, directory, topic, *arguments = sys.argv[1:]
    if kind == "copies":
        copies(Path(directory), topic, *arguments)
    else:
        many(Path(directory), topic, *map(int, arguments))
