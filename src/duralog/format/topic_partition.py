"""The name of a partition. Kafka's `TopicPartition`."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Written as Kafka writes it, `orders-0`, which is also the name of the partition's folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
