"""Everything that a partition answers to its readers, asked of Kafka and of duralog in the same words.

When a directory changes hands, the two views must be equal: records under both isolation levels, where the log starts,
ends and is stable, offsets by time with the leader epochs that wrote them, and what is known of producers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duralog.format.record import Record
from duralog.storage.log.partition_log import EARLIEST, LATEST, MAX_TIMESTAMP, PartitionLog
from oracle.kafka_process import Json
from oracle.kafka_server import KafkaServer

_SPECIAL_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    start_offset: int
    end_offset: int
    last_stable_offset: int
    records: Sequence[Json]
    committed: Sequence[Json]
    """Those that a reader gets who asks for committed ones only."""
    times: Sequence[Json]
    producers: dict[int, Json]
    """Those whose state is not older than what both forget by themselves."""

    @property
    def values(self) -> list[str | None]:
        return [record["value"] for record in self.records]

    @property
    def committed_values(self) -> list[str | None]:
        return [record["value"] for record in self.committed]


def seen_by_kafka(server: KafkaServer, topic: str, partition: int = 0, *, times: Iterable[int] = ()) -> PartitionView:
    everything = server.consume(topic, partition)
    committed = server.consume(topic, partition, isolation="read_committed")
    asked: list[str | int] = [*_SPECIAL_TIMES, *times]
    return PartitionView(
        start_offset=everything["start"],
        end_offset=everything["end"],
        last_stable_offset=committed["end"],
        records=everything["records"],
        committed=committed["records"],
        times=_comparable(asked, server.offsets(topic, partition, *asked)),
        producers=server.producers(topic, partition),
    )


def seen_by_duralog(log: PartitionLog, *, times: Iterable[int] = ()) -> PartitionView:
    asked: list[str | int] = [*_SPECIAL_TIMES, *times]
    return PartitionView(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        last_stable_offset=log.last_stable_offset,
        records=as_consumed(log.read(log.start_offset)),
        committed=as_consumed(log.read(log.start_offset, isolation="read_committed")),
        times=_comparable(asked, [_offset(log, time) for time in asked]),
        producers={
            one.producer_id: {
                "epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.timestamp_ms,
                "coordinator_epoch": one.coordinator_epoch,
                "transaction_start": one.transaction_first_offset,
            }
            for one in log.producers()
        },
    )


def as_consumed(records: Iterable[Record]) -> list[Json]:
    """Records in the words of Kafka's consumer (`java/BrokerClient.java`)."""
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": record.timestamp_type.label,
            "key": None if record.key is None else record.key.hex(),
            "value": None if record.value is None else record.value.hex(),
            "headers": [[key, None if value is None else value.hex()] for key, value in record.headers],
        }
        for record in records
    ]


def _offset(log: PartitionLog, time: str | int) -> Json:
    found = log.offset_for_timestamp(_SPECIAL_TIMES[time] if isinstance(time, str) else time)
    if found is None:
        return {"offset": -1, "timestamp": -1, "leader_epoch": -1}
    return {"offset": found.offset, "timestamp": found.timestamp_ms, "leader_epoch": found.leader_epoch}


def _comparable(asked: Sequence[str | int], answers: Sequence[Json]) -> list[Json]:
    """The end of a log is told with the epoch of now, which every start of a broker raises: it is left out."""
    end = dict(zip(asked, answers, strict=True))["latest"]["offset"]
    return [
        {"asked": time, **answer, "leader_epoch": None if answer["offset"] == end else answer["leader_epoch"]}
        for time, answer in zip(asked, answers, strict=True)
    ]
