"""Whether a snapshot may continue the last one: only if the result is certainly that of a full one.

What is new in the log is merged with the rows of the last snapshot, so every deletion since must still be in the log as
a tombstone. Compaction removes tombstones `delete.retention.ms` after it has first seen them. Of the directories of a
cluster, this says nothing: they may be a backup, and have been cleaned on several nodes. There the new offsets
themselves show it (`sound_copies`).
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import Logs
from duralog.spark.lake.made_from import MadeFrom
from duralog.spark.lake.row_planning import PlannedRows
from duralog.spark.lake.stored_schema import IDENTITY
from duralog.spark.lake.table_state import TableState
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.retention import COMPACT

GAPS = "offsets are missing in what is new: compaction may have taken tombstones away since the last one"
"""Why a snapshot of a cluster is a full one, if its copies show it."""


def why_not_from(
    before: TableState, nothing: TableState, ends: Mapping[TopicPartition, int], due_ms: int | None, where: str
) -> str | None:
    """Why this run cannot continue the last snapshot, None if it can. `nothing` is the state of an empty one."""
    if before.run == 0:
        return "there is no snapshot yet"
    isolation = Isolation(nothing.isolation)
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
    last, now = (MadeFrom.in_state(state, where) for state in (before, nothing))
    was_cluster, is_cluster = (found is not None and found.is_cluster for found in (last, now))
    if was_cluster != is_cluster:
        return f"the last one was made from {'the directories of a cluster' if was_cluster else 'one directory'}"
    for number, first in nothing.details["first_offsets"].items():
        if first < int(before.details["first_offsets"].get(number, 0)):
            return f"partition {number} begins earlier than at the last one: it has records that this one had not"
    if due_ms is not None and nothing.details["read_ms"] >= due_ms:
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


def tombstones_until_ms(logs: Logs, before: TableState) -> int | None:
    """From when on tombstones after the last snapshot may have been compacted away. None: nothing is compacted.

    0 if that is not known: without the cluster metadata, the configs of the topic are unknown. REQUIRES: the logs are
    those of one directory.
    """
    if not logs.has_configs:
        return 0
    config = logs.topic_config(before.topic)
    if COMPACT not in config.cleanup_policy:
        return None
    taken_ms = before.details.get("read_ms")
    if not isinstance(taken_ms, int) or before.details.get("is_latest") is not True:
        return 0
    return taken_ms + config.delete_retention_ms
