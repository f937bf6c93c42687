"""Makes a log directory and closes it well: `segments DIRECTORY TOPIC FILE PARTITIONS`, each partition with the batches
of the file; `many DIRECTORY TOPIC PARTITIONS SEGMENTS`, each partition with so many segments of a few records.
"""

from __future__ import annotations

import sys

import duralog
from duralog.columnar.pieces import read_pieces
from duralog.storage.append_origin import AppendOrigin
from duralog.storage.files import FileSource

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
    records = [duralog.Record(key=b"key-%d" % n, value=b"v" * 90) for n in range(_RECORDS_A_SEGMENT)]
    with duralog.open(directory, _CONFIG) as store:
        store.create_topic(topic, partitions, {"retention.ms": -1})
        for number in range(partitions):
            log = store.partition(topic, number)
            for segment in range(segments):
                if segment:
                    log.roll()
                log.append(records)


if __name__ == "__main__":
    kind, directory, topic, first, second = sys.argv[1:]
    if kind == "segments":
        of_segments(directory, topic, first, int(second))
    else:
        of_many_partitions(directory, topic, int(first), int(second))
