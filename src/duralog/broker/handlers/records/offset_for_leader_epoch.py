"""OffsetForLeaderEpoch, versions 2 to 4: where the records of a leader epoch end.

The current leader epoch counts as started, although nothing may have been written in it yet.
"""

from __future__ import annotations

from duralog.broker.topics.leadership import NO_EPOCH, epoch_error
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.checkpoints import EpochStart
from duralog.storage.log.leader_epochs import UNDEFINED_OFFSET
from duralog.storage.log.partition_log import PartitionLog

_UNKNOWN = EpochStart(NO_EPOCH, UNDEFINED_OFFSET)


def handle(partitions: Partitions, request: Request) -> Answer:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _found(partitions, topic.topic, asked.partition, asked.current_leader_epoch, asked.leader_epoch)
                    for asked in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


def _found(partitions: Partitions, topic: str, number: int, current_leader_epoch: int, epoch: int) -> Fields:
    partition = partitions.get(topic, number)
    if partition is None:
        is_offline = partitions.is_offline(topic, number)
        return _partition(number, codes.KAFKA_STORAGE_ERROR if is_offline else codes.UNKNOWN_TOPIC_OR_PARTITION)
    error = epoch_error(current_leader_epoch, partition.log.leader_epoch)
    return _partition(number, error, _UNKNOWN if error else end_of_epoch(partition.log, epoch))


def end_of_epoch(log: PartitionLog, epoch: int) -> EpochStart:
    """The last epoch up to this one that the log has, and the offset after its last record."""
    if epoch == NO_EPOCH or epoch > log.leader_epoch:
        return _UNKNOWN
    if epoch == log.leader_epoch:
        return EpochStart(epoch, log.high_watermark)
    entries = log.leader_epochs.entries
    if entries and epoch < entries[-1].epoch:
        return log.leader_epochs.end_offset_for(epoch, log.high_watermark)
    return EpochStart(entries[-1].epoch if entries else epoch, log.high_watermark)


def _partition(number: int, error_code: int, found: EpochStart = _UNKNOWN) -> Fields:
    return {
        "error_code": error_code,
        "partition": number,
        "leader_epoch": found.epoch,
        "end_offset": found.start_offset,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_partition(asked.partition, error_code) for asked in topic.partitions],
            }
            for topic in request.message.topics
        ]
    }


API = Api(23, "OffsetForLeaderEpoch", 2, 4, handle, refuse)
