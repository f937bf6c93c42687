"""What a table was made from: one log directory, or the directories of a cluster.

The table's state names neither paths nor nodes, so that directories may come and go from run to run. It has the id of
the cluster, because leader epochs are unique only within one: a restored topic continues with epochs of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import Logs
from duralog.spark.lake.table_state import StateRefused, TableState

DETAIL = "made_from"
"""Of a table's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFrom:
    is_cluster: bool
    """Then each partition ends at its high watermark, and not where a copy ends."""
    cluster_id: str | None

    @classmethod
    def of(cls, logs: Logs, partitions: list[TopicPartition]) -> MadeFrom:
        is_cluster = any(logs.history(partition) is not None for partition in partitions)
        return cls(is_cluster=is_cluster, cluster_id=logs.cluster_id)

    @classmethod
    def in_state(cls, state: TableState, where: str) -> MadeFrom | None:
        """None if no run has been, or the last one was of a version that did not remember it: one directory's."""
        known = state.details.get(DETAIL)
        if known is None:
            return None
        is_cluster, cluster_id = (
            (known.get(name) for name in ("is_cluster", "cluster_id")) if _is_map(known) else (0, 0)
        )
        if not isinstance(is_cluster, bool) or not isinstance(cluster_id, str | None):
            raise StateRefused(f"{where}: the state is damaged: {known!r} is not what a table was made from")
        return cls(is_cluster=is_cluster, cluster_id=cluster_id)

    def detail(self) -> dict[str, Any]:
        return {DETAIL: asdict(self)}


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)
