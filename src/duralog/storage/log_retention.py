"""Retention of one log: what the policies see of it, and how their plan is carried out while others append."""

from __future__ import annotations

from collections.abc import Iterable

from duralog.storage.partition_log import PartitionLog
from duralog.storage.retention import AgingLog, Removal, RetentionPolicy, plan


def retain(log: PartitionLog, policies: Iterable[RetentionPolicy], now_ms: int, *, delete: bool) -> list[Removal]:
    """What goes of the log by these policies. It is gone when this returns, unless it is only asked for."""
    view = log.view
    aging = AgingLog(
        topic=log.topic,
        partition=log.partition,
        segments=view.infos(),
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        high_watermark=view.end_offset,
        config=log.config,
        now_ms=now_ms,
    )
    removals = plan(aging, policies)
    if not delete or not removals:
        return removals
    with log.writers_waiting():
        # What was appended since is not expired: the segment it is in must stay for now.
        if removals[-1].base_offset == view.segments.active.base_offset and log.end_offset != view.end_offset:
            removals.pop()
        log.delete_segments((removal.base_offset for removal in removals), "; ".join(_reasons(removals)))
    return removals


def _reasons(removals: Iterable[Removal]) -> list[str]:
    return [f"{removal.base_offset}: {removal.reason}" for removal in removals]
