"""Kafka's internal topics, and how each is created.

One node has one replica, and so `min.insync.replicas` of the transaction topic is always one: otherwise, a
Kafka that is started on the directory could not write to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.broker.topics.topic_faults import REPLICAS
from duralog.config import BrokerConfig
from duralog.format.internal.internal_topics import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)

__all__ = [
    "CONSUMER_OFFSETS",
    "INTERNAL_TOPICS",
    "KEPT_TOPICS",
    "NOT_FOR_CLIENTS",
    "TRANSACTION_STATE",
    "internal_topic",
]

INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""The topics that clients see as internal. They do not see the cluster metadata at all."""

KEPT_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Those in which this broker keeps its state."""

NOT_FOR_CLIENTS = frozenset({SHARE_GROUP_STATE, CLUSTER_METADATA})
"""Not created when a client asks for them: share groups are not supported, and the other one is the metadata."""


def internal_topic(name: str, config: BrokerConfig) -> tuple[int, Mapping[str, object]]:
    """The number of partitions and the configs of `__consumer_offsets` or `__transaction_state`."""
    if name == CONSUMER_OFFSETS:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": config.offsets_topic_segment_bytes,
        }
    if name == TRANSACTION_STATE:
        return config.transaction_state_log_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": min(config.transaction_state_log_min_isr, REPLICAS),
            "segment.bytes": config.transaction_state_log_segment_bytes,
            "unclean.leader.election.enable": False,
        }
    raise ValueError(f"{name} is not a topic that the broker keeps for itself")
