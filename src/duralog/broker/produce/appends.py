"""The dependencies of a producer's append, and the responses to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duralog.broker.net.log_lines import error_text
from duralog.broker.produce.response import PartitionResponse
from duralog.broker.produce.rules import append_refusal
from duralog.broker.runtime import Runtime
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes
from duralog.errors import DuralogError, StorageError
from duralog.storage.log.partition_log import AppendResult

CheckTransaction = Callable[[str | None, int, int, Sequence[tuple[str, int]], int], dict[tuple[str, int], int]]
"""`TransactionCoordinator.check_produce`."""


class ProducerAppends:
    __slots__ = ("background", "check_transaction", "log_lines", "partitions")

    def __init__(self, runtime: Runtime, partitions: Partitions, check_transaction: CheckTransaction) -> None:
        self.background = runtime.background
        self.log_lines = runtime.log_lines
        self.partitions = partitions
        self.check_transaction = check_transaction

    def topic_name(self, topic: bytes, *, is_id: bool) -> str | None:
        """The name of a topic that a request names, or gives the id of; None for an unknown id."""
        return self.partitions.topic_name(topic) if is_id else topic.decode("utf-8", "replace")

    def success(self, partition: Partition, result: AppendResult) -> PartitionResponse:
        start_offset = partition.log.view.start_offset
        return PartitionResponse(error_codes.NONE, result.base_offset, result.log_append_time_ms, start_offset)

    def refusal(
        self, partition: Partition, size_bytes: int, error: Exception, base_offset: int = 0
    ) -> PartitionResponse:
        """For a batch of this size, which claims this base offset."""
        if not isinstance(error, DuralogError):
            self.log_lines.fail("append", f"append to {partition.topic}-{partition.number}: {error_text(error)}")
        if self.partitions.get(partition.topic, partition.number) is not partition:
            # Its topic was deleted meanwhile: that its log is closed is not the disk's fault.
            return PartitionResponse(error_codes.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(error, StorageError):
            self.log_lines.log_disk_error(error)
        return append_refusal(error, partition.log, size_bytes, base_offset)
