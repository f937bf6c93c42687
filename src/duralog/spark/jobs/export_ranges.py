"""Which offsets a run of the export reads: from where the table ends, up to where consumers can read.

Offsets never go back. Of a cluster's directories, the high watermark that is known may be below the end of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange, OnDataLoss, report_loss
from duralog.scanning.slices import DataLoss
from duralog.spark.lake.made_from import MadeFrom
from duralog.spark.lake.table_state import StateRefused, TableState


def check_made_from(made_from: MadeFrom, state: TableState, where: str) -> None:
    before = MadeFrom.in_state(state, where)
    if before is not None and before.is_cluster and not made_from.is_cluster:
        raise StateRefused(
            f"{where}: it was exported from the directories of a cluster, up to the high watermark. One directory alone"
            " may have records that consumers were never served: give the directories as a list, a pattern in quotes or"
            " a manifest, also if only one is left, or another target"
        )


def new_ranges(
    there: Mapping[TopicPartition, OffsetRange], state: TableState, on_data_loss: OnDataLoss | None
) -> dict[TopicPartition, OffsetRange]:
    """From where the table ends. Where less can be read than it has, nothing is new."""
    ranges = {}
    for partition, found in there.items():
        taken = state.next_offsets.get(partition.partition, found.start_offset)
        if taken < found.start_offset:
            loss = DataLoss(
                topic=partition.topic,
                partition=partition.partition,
                asked_start=taken,
                asked_end=taken,
                available_start=found.start_offset,
                available_end=found.end_offset,
            )
            report_loss(loss, on_data_loss)
        start = max(taken, found.start_offset)
        ranges[partition] = OffsetRange(start, max(start, found.end_offset))
    return ranges


def not_read(topic: str, there: Mapping[TopicPartition, OffsetRange], state: TableState) -> Iterator[str]:
    """Partitions of the table of which this run cannot read anything, in sentences for people."""
    ends = {partition.partition: found.end_offset for partition, found in there.items()}
    for number, taken in sorted(state.next_offsets.items()):
        if number not in ends:
            yield f"{topic}: partition {number} is in the table, and has no copy here: nothing new was read of it"
        elif ends[number] < taken:
            yield (
                f"{topic}: partition {number} is in the table up to offset {taken}, and can be read up to"
                f" {ends[number]} here: nothing is new until more can be read"
            )
