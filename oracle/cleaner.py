"""Kafka's log cleaner on partition folders (`java/LogCompactor.java`): no broker, and the time that it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oracle.kafka_process import Json, KafkaProcess, KafkaRefusedError

DEFAULT_MAP_BYTES = 128 << 20
DEFAULT_LOAD_FACTOR = 0.9
DEFAULT_BUFFER_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerPass:
    """One cleaning of a log. Offsets that are left out are those that Kafka's cleaner manager finds."""

    now_ms: int
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    map_bytes: int = DEFAULT_MAP_BYTES
    load_factor: float = DEFAULT_LOAD_FACTOR
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """Of each of the two buffers: half of `log.cleaner.io.buffer.size`."""
    rounds: int = 1
    """At most so many, each as far as the map holds; 0 for as many as it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerJob:
    folder: Path
    passes: Sequence[CleanerPass]
    configs: Mapping[str, object] = field(default_factory=dict)
    """Of the topic, by Kafka's names; `internal.segment.bytes` allows segments below 1 MiB."""
    log_start_offset: int = 0


@dataclass(frozen=True, slots=True)
class CleanerRound:
    """What Kafka told of a round. `end_offset` is the next first dirty offset."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    cleanable_ratio: float
    end_offset: int
    seconds: float
    map_seconds: float
    map_messages_read: int
    map_fill: float
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    invalid_messages_read: int


def clean_by_kafka(kafka: KafkaProcess, jobs: Sequence[CleanerJob]) -> list[list[CleanerRound] | KafkaRefusedError]:
    """Clean each log and close it: the rounds of all its passes in order, or what Kafka's cleaner died of.

    REQUIRES: the folders were closed cleanly, and nobody else has them open.
    """
    answer = kafka.ask(command="compact", jobs=[_described(job) for job in jobs])
    return [_rounds(log) for log in answer["logs"]]


def _rounds(log: Json) -> list[CleanerRound] | KafkaRefusedError:
    if "failure" in log:
        return KafkaRefusedError(log["failure"])
    return [CleanerRound(**told) for rounds in log["passes"] for told in rounds]


def _described(job: CleanerJob) -> Json:
    return {
        "folder": str(job.folder),
        "configs": dict(job.configs),
        "log_start_offset": job.log_start_offset,
        "passes": [
            {name: getattr(one, name) for name in CleanerPass.__dataclass_fields__ if getattr(one, name) is not None}
            for one in job.passes
        ],
    }
