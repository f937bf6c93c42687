"""Makes a log directory of many partitions to look at, and closes it well: `many DIRECTORY TOPIC PARTITIONS SEGMENTS`.

A tenth of the partitions are topics of their own; of these, every other one is compacted. All the others are the
topic's. Every partition has so many segments of a few records. Consumer groups have committed for some of them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import confluent_kafka

import duralog
from duralog.format.checkpoints import PartitionOffset, encode_offset_checkpoint
from duralog.format.filenames import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.testing import running_broker

GROUPS = 20
RECORDS_A_SEGMENT = 10

# The records are as old as their seed says; nothing may delete them, and no cleaner may change them.
_CONFIG = {"log.retention.ms": -1, "log.cleaner.enable": False}
_FIRST_MS = 1_700_000_000_000


def make(directory: str, topic: str, partitions: int, segments: int) -> None:
    small = max(partitions // 10, 1)
    names = [f"service-{number:03}" for number in range(small)]
    with duralog.open(directory, _CONFIG) as store:
        for number, name in enumerate(names):
            store.create_topic(name, 1, {"cleanup.policy": "compact" if number % 2 else "delete"})
        store.create_topic(topic, partitions - small)
        log = store.partition(topic, 0)
        for segment in range(segments):
            if segment:
                log.roll()
            log.append(_records(segment))
        end_offset = log.end_offset
    # The first partition was written, the others are copies of its files: so nobody waits for thousands of syncs.
    root = Path(directory)
    copies = [(name, 0) for name in names] + [(topic, number) for number in range(1, partitions - small)]
    for name, number in copies:
        metadata = (root / f"{name}-{number}" / "partition.metadata").read_bytes()
        shutil.copytree(root / f"{topic}-0", root / f"{name}-{number}", dirs_exist_ok=True)
        (root / f"{name}-{number}" / "partition.metadata").write_bytes(metadata)
    offsets = encode_offset_checkpoint(PartitionOffset(*place, end_offset) for place in [*copies, (topic, 0)])
    for checkpoint in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (root / checkpoint).write_bytes(offsets)
    _commit(directory, names, end_offset)


def _records(segment: int) -> list[duralog.Record]:
    numbers = range(segment * RECORDS_A_SEGMENT, (segment + 1) * RECORDS_A_SEGMENT)
    return [
        duralog.Record(
            key=b"customer-%d" % (number % 7), value=b'{"order": %d}' % number, timestamp_ms=_FIRST_MS + number * 60_000
        )
        for number in numbers
    ]


def _commit(directory: str, topics: list[str], end_offset: int) -> None:
    with running_broker(_CONFIG, data=directory) as broker:
        for number in range(GROUPS):
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"readers-{number:02}", "log_level": 0}
            )
            places = [
                confluent_kafka.TopicPartition(topic, 0, end_offset - number % end_offset) for topic in topics[:10]
            ]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()


if __name__ == "__main__":
    _, made, name, partition_count, segment_count = sys.argv[1:]
    make(made, name, int(partition_count), int(segment_count))
