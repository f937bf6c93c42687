"""Appends records to an opened log directory, and checks a record beforehand."""

from __future__ import annotations

from collections.abc import Iterable

from duralog.client.producing import Placed, Written
from duralog.client.unknown_names import unknown_partition
from duralog.config import TopicConfig
from duralog.errors import InvalidTopic, UnknownTopic
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.murmur2 import partition_of_key
from duralog.format.record import Record
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.record_append import SendingProducer, batches_of_records
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.store import Store


def check_record(topic: str, config: TopicConfig, record: Record) -> None:
    """Raise what an append of this record would. Nothing is written."""
    _check_topic(topic)
    stamp = Stamp(next_offset=0, leader_epoch=0, now_ms=wall_clock_ms())
    batches_of_records([record], config=config, stamp=stamp, codec=None, producer=SendingProducer())


def to_store(
    store: Store,
    topic: str,
    groups: Iterable[list[Placed]],
    *,
    partition: int | None,
    codec: str | None,
    written: dict[int, Written],
) -> None:
    """Append each group as it arrives: records with a key to the partition of the key, others round robin.

    `written` gets what was appended, by partition, also if an error is raised. Kafka's internal topics are refused.
    """
    _check_topic(topic)
    numbers = store.partitions(topic)
    for turn, group in enumerate(groups):
        chosen: dict[int, list[Record]] = {}
        refusal: UnknownTopic | None = None
        for named, record in group:
            number = partition if partition is not None else named
            if number is None:
                if record.key is None:
                    number = numbers[turn % len(numbers)]
                else:
                    number = partition_of_key(record.key, store.partition_count(topic))
            if number not in numbers:
                refusal = unknown_partition(store.path, topic, number, numbers)
                break
            chosen.setdefault(number, []).append(record)
        for number, records in chosen.items():
            result = store.partition(topic, number).append(records, codec=codec)
            written.setdefault(number, Written()).add(result.base_offset, result.last_offset, len(records))
        if refusal is not None:
            raise refusal


def _check_topic(topic: str) -> None:
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is an internal topic of Kafka: only a broker writes to it")
