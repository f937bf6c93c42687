"""The log of the groups: `__consumer_offsets`, appended to batch by batch and loaded as a whole at start.

A group's records are all in one partition, by Java's hash of its id. A batch is in the log as a whole or not at all,
also after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import logger
from duralog.broker.runtime import Runtime
from duralog.broker.topics.coordinator_log import SkippedRecords
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_FETCH_SIZE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    code_of,
)
from duralog.errors import DuralogError
from duralog.format.compression import Codec
from duralog.format.java_hash import coordinator_partition
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog

KeyAndValue = tuple[bytes, bytes | None]

_CLIENT_CODES = {
    UNKNOWN_TOPIC_OR_PARTITION: COORDINATOR_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS: COORDINATOR_NOT_AVAILABLE,
    REQUEST_TIMED_OUT: COORDINATOR_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER: NOT_COORDINATOR,
    KAFKA_STORAGE_ERROR: NOT_COORDINATOR,
    MESSAGE_TOO_LARGE: UNKNOWN_SERVER_ERROR,
    RECORD_LIST_TOO_LARGE: UNKNOWN_SERVER_ERROR,
    INVALID_FETCH_SIZE: UNKNOWN_SERVER_ERROR,
}
"""The error code for a member if the append fails: it makes the member retry, or look up its coordinator again."""


class GroupLog:
    def __init__(self, runtime: Runtime, topics: Topics, partitions: Partitions) -> None:
        self._runtime = runtime
        self._topics = topics
        self._partitions = partitions
        self.unreadable: set[int] = set()
        """Partitions that could not be read at start. Their groups are unknown, so they must not be changed."""
        self.skipped = SkippedRecords(logger)

    @property
    def is_there(self) -> bool:
        return self._topics.by_name(CONSUMER_OFFSETS) is not None

    @property
    def partition_count(self) -> int:
        """Of the topic, or of the one that will be created."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        return self._runtime.config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    @property
    def max_message_bytes(self) -> int:
        """Of the topic; 0 as long as there is none."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        return 0 if topic is None else topic.topic.config.max_message_bytes

    def partition_for(self, group_id: str) -> int:
        return coordinator_partition(group_id, self.partition_count)

    def check_ready(self, group_id: str) -> None:
        """Refuse if the group's log is unreadable or missing. The client sends FindCoordinator, which creates it."""
        if not self.is_there or self.partition_for(group_id) in self.unreadable:
            raise GroupRefusal(NOT_COORDINATOR)

    def append(
        self,
        group_id: str,
        records: Sequence[KeyAndValue],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> int:
        """Write the records as one batch; those of a producer are part of its transaction. Returns the first offset."""
        self.check_ready(group_id)
        try:
            result = self._partitions.append_records(
                CONSUMER_OFFSETS,
                self.partition_for(group_id),
                [Record(key=key, value=value) for key, value in records],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                codec=Codec(self._runtime.config.offsets_topic_compression_codec),
            )
        except DuralogError as error:
            code = code_of(error)
            raise GroupRefusal(_CLIENT_CODES.get(code, code), str(error)) from error
        return result.base_offset

    def ends(self) -> dict[int, int]:
        """Where each partition ends now."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        numbers = () if topic is None else topic.partitions
        found = (self._partitions.get(CONSUMER_OFFSETS, number) for number in numbers)
        return {partition.number: partition.log.end_offset for partition in found if partition is not None}

    def partitions(self) -> Iterator[tuple[int, PartitionLog]]:
        """The partitions that have records and can be used."""
        topic = self._topics.by_name(CONSUMER_OFFSETS)
        for number in () if topic is None else topic.partitions:
            partition = self._partitions.get(CONSUMER_OFFSETS, number)
            if partition is None:
                self.unreadable.add(number)
            elif partition.log.end_offset > partition.log.start_offset:
                yield number, partition.log
