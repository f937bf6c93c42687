"""What a frame reads: the offsets that the log directory had when Spark loaded it.

Spark may plan a frame several times: once for all its queries, or for each query with filters. So where reading starts
and ends is found once, at `load()`, and every plan of the frame has these offsets. Records that come later are not in
it. Records that have gone since are data loss, except for what compaction took away: that leaves no rows and is not an
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.format.checkpoints import EpochStart
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.served import diverged_at
from duralog.scanning.logs import Logs, RememberedObjects, remembered_objects
from duralog.scanning.offset_ranges import OffsetRange, OnDataLoss, report_loss, total_loss
from duralog.scanning.slices import CREATED_AGAIN, PARTITION_GONE


@dataclass(frozen=True, slots=True)
class FrameSnapshot:
    ranges: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str]
    """Of the topics that have one. A topic that was deleted and created again has other records at these offsets."""
    histories: Mapping[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    """Of a cluster: the leader epochs of the logs. Another history has other records at some of these offsets."""
    objects: RememberedObjects = field(default=(), repr=False)
    """On an object store: what was read to find the offsets. Spark plans in another process, which opens it again."""

    @classmethod
    def of(cls, logs: Logs, ranges: Mapping[TopicPartition, OffsetRange]) -> FrameSnapshot:
        ids = {topic: logs.topic_id(topic) for topic in {partition.topic for partition in ranges}}
        known_ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}
        histories = {partition: logs.history(partition) for partition in ranges}
        known = {partition: history for partition, history in histories.items() if history is not None}
        return cls(ranges, known_ids, known, remembered_objects(logs.locations))

    def ranges_left(self, logs: Logs, on_data_loss: OnDataLoss | None) -> dict[TopicPartition, OffsetRange]:
        """The ranges of the partitions that are still there. What planning finds missing in a range is not left out."""
        there = {topic: set(logs.partitions(topic)) for topic in logs.topics()}
        left = {}
        for partition, found in self.ranges.items():
            topic_id = self.topic_ids.get(partition.topic)
            if partition.partition not in there.get(partition.topic, ()):
                reason = PARTITION_GONE
            elif topic_id is not None and logs.topic_id(partition.topic) not in (None, topic_id):
                reason = CREATED_AGAIN
            elif (change := self._changed(partition, found, logs)) is not None:
                reason = change
            else:
                left[partition] = found
                continue
            if found.start_offset < found.end_offset:
                report_loss(total_loss(partition, found, reason), on_data_loss)
        return left

    def _changed(self, partition: TopicPartition, found: OffsetRange, logs: Logs) -> str | None:
        before, now = self.histories.get(partition), logs.history(partition)
        diverged = diverged_at(before, now) if before and now else None
        if diverged is None or diverged >= found.end_offset:
            return None
        return (
            f"another copy is the chosen one now, and by its leader epochs it has other records from offset {diverged}"
            " on"
        )
