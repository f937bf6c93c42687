"""A stream on the directories of a cluster: the copy that counts may change between two micro-batches.

Another copy has the same records up to the high watermark, so the query continues with it. What must always be true:
- Offsets never go back. The high watermark that is known may: checkpoints are some seconds old, and a directory may be
  missing for a while. Then the query waits.
- After an unclean election the log may have other records at offsets that the query has read. Leader epochs show that,
  as to a consumer (KIP-320). It is data loss, and the error names the offsets. They are compared with those of the last
  micro-batch of this run: the checkpoint has offsets alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duralog.format.checkpoints import EpochStart
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.served import diverged_at
from duralog.scanning.logs import Logs
from duralog.spark.source.stream_offsets import Positions


class StreamHistory:
    """The leader epochs of the logs, as the query saw them last."""

    def __init__(self) -> None:
        self._epochs: dict[TopicPartition, tuple[EpochStart, ...]] = {}

    def differences(self, logs: Logs, start: Mapping[TopicPartition, int]) -> Iterator[str]:
        """What has changed at offsets below those where the query stands, in sentences. Each is returned once."""
        for partition in present(logs, start):
            before, now = self._epochs.get(partition), logs.history(partition)
            if now is None:
                return
            self._epochs[partition] = now
            changed_at = diverged_at(before, now) if before and now else None
            if changed_at is not None and max(changed_at, logs.start_offset(partition)) < start[partition]:
                yield (
                    f"{partition}: another copy is the chosen one now, and by its leader epochs it has other records"
                    " from offset"
                    f" {changed_at} on; the query has read up to offset {start[partition]}"
                )


def waiting(logs: Logs, stood: Mapping[TopicPartition, int], ends: Positions) -> Positions:
    """The ends, and in a cluster not before the place where the query stood, if the log has these offsets."""
    held = dict(ends)
    for partition in present(logs, stood):
        offset = stood[partition]
        if logs.history(partition) is not None and held.get(partition, offset) < offset <= logs.end_offset(partition):
            held[partition] = offset
    return held


def not_back(logs: Logs, stood: Mapping[TopicPartition, int], ends: Positions) -> Positions:
    """The ends, and in a cluster not before the place where the query stood, whatever the log has."""
    there = [partition for partition in present(logs, stood) if logs.history(partition) is not None]
    return ends | {partition: max(ends[partition], stood[partition]) for partition in there if partition in ends}


def present(logs: Logs, partitions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    numbers = {topic: set(logs.partitions(topic)) for topic in logs.topics()}
    return [partition for partition in partitions if partition.partition in numbers.get(partition.topic, ())]
