"""Whether a snapshot may continue the last one: only if the result is certainly that of a full one.

What is new in the log is merged with the rows of the last snapshot, so every deletion since must still be in the log as
a tombstone. Compaction removes tombstones `delete.retention.ms` after it has first seen them.
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.spark.lake.row_planning import PlannedRows
from duralog.spark.lake.stored_schema import IDENTITY
from duralog.spark.lake.table_state import TableState
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.retention import COMPACT
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


def why_not_from(
    before: TableState, isolation: Isolation, ends: Mapping[TopicPartition, int], read_ms: int, due_ms: int | None
) -> str | None:
    """Why this run cannot continue the last snapshot, None if it can."""
    if before.run == 0:
        return "there is no snapshot yet"
    if before.isolation != isolation:
        return f"the last one was taken with {before.isolation}"
    if isolation is Isolation.READ_UNCOMMITTED:
        return "records of transactions that were aborted may have been compacted away since"
    for partition, end in ends.items():
        if end < before.next_offsets.get(partition.partition, 0):
            return "the last one is of a later point"
    try:
        for name in ("live_keys", "first_offsets"):
            {int(number): int(count) for number, count in before.details[name].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return "the state of the last one has no counts of keys or no first offsets"
    if due_ms is not None and read_ms >= due_ms:
        return (
            "tombstones after the last one may have been compacted away since: it must be of the end of the log, and"
            " younger than delete.retention.ms of the cluster metadata"
        )
    return None


def why_not_as_planned(before: TableState, planned: PlannedRows) -> str | None:
    """Why the rows of the last snapshot are not those that this run would make, None if they are."""
    if planned.evolution.is_change:
        return f"the columns have changed: {', '.join(planned.evolution.changes())}"
    if planned.details.get(IDENTITY) != before.details.get(IDENTITY):
        return "keys are compared in another way than the last time"
    return None


def tombstones_until_ms(store: Store, before: TableState) -> int | None:
    """From when on tombstones after the last snapshot may have been compacted away. None: nothing is compacted.

    0 if that is not known: without the cluster metadata, the configs of the topic are unknown.
    """
    try:
        store.partition(*METADATA_PARTITION)
    except DuralogError:
        return 0
    config = store.topic_config(before.topic)
    if COMPACT not in config.cleanup_policy:
        return None
    taken_ms = before.details.get("read_ms")
    if not isinstance(taken_ms, int) or before.details.get("is_latest") is not True:
        return 0
    return taken_ms + config.delete_retention_ms
