"""All scenarios. Importing this package fills the table."""

from oracle.conformance.scenarios import (
    configs,
    consumer_groups,
    discovery,
    fetching,
    groups,
    hostile,
    odd_admin_requests,
    odd_reads_and_writes,
    offsets,
    positions,
    producing,
    protocol_changes,
    topics,
    transaction_corners,
    transactions,
)

__all__ = [
    "configs",
    "consumer_groups",
    "discovery",
    "fetching",
    "groups",
    "hostile",
    "odd_admin_requests",
    "odd_reads_and_writes",
    "offsets",
    "positions",
    "producing",
    "protocol_changes",
    "topics",
    "transaction_corners",
    "transactions",
]
