"""Records written straight to a directory, which is locked meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duralog.cli.common.opened_store import opened_store
from duralog.cli.common.unknown_names import unknown_partition
from duralog.cli.records.record_input import Placed
from duralog.errors import InvalidTopic, UnknownTopic
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.murmur2 import partition_of_key
from duralog.format.record import Record


@dataclass(slots=True)
class Place:
    """Where records went, of one partition."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, first: int, last: int, records: int) -> None:
        self.first_offset = first if self.records == 0 else min(self.first_offset, first)
        self.last_offset = max(self.last_offset, last)
        self.records += records


def to_store(
    directory: str,
    topic: str,
    groups: Iterable[list[Placed]],
    *,
    partition: int | None,
    codec: str | None,
    quiet: bool,
    written: dict[int, Place],
) -> None:
    """Each group is appended as it comes: records with a key where Kafka's clients put them, others in turn.

    `written` tells what became of them, also where an error ends it. Kafka's own topics are refused, as a broker does.
    """
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is one of Kafka's own topics: only a broker writes to it")
    with opened_store(directory, read_only=False, server_properties=None, quiet=quiet) as store:
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
                    refusal = unknown_partition(directory, topic, number, numbers)
                    break
                chosen.setdefault(number, []).append(record)
            for number, records in chosen.items():
                result = store.partition(topic, number).append(records, codec=codec)
                written.setdefault(number, Place()).add(result.base_offset, result.last_offset, len(records))
            if refusal is not None:
                raise refusal
