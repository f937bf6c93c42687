"""Retention of one log: runs the policies and deletes segments while other threads change the log.

A plan is only valid for the segments and configs that it was made from. If a compaction replaced segments since, a base
offset may belong to another segment, with records that have not expired. So a plan is carried out under the log's lock,
and only if segments and configs are the same; otherwise a new plan is made. Records that were appended meanwhile stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from duralog.config import TopicConfig
from duralog.errors import StorageError
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import AgingLog, Removal, RetentionPolicy, plan
from duralog.storage.log.view import LogView

_MOST_PLANS = 5


def retain(
    log: PartitionLog,
    policies: Collection[RetentionPolicy],
    now_ms: int,
    *,
    delete: bool,
    held: Sequence[range] = (),
) -> list[Removal]:
    """The segments that these policies delete. With `delete`, they are deleted when this returns.

    Nothing is deleted this time if the log changes during every attempt. `held` are offsets that the built-in default
    of `retention.ms` must not delete.
    """
    for _ in range(_MOST_PLANS):
        view, config = log.view, log.config
        try:
            removals = plan(aging(log, view, config, now_ms, held), policies)
        except StorageError:
            if _is_as_in(log, view, config):
                raise
            continue  # A segment was deleted meanwhile.
        if not delete or not removals:
            return removals
        with log.writers_waiting():
            if _is_as_in(log, view, config):
                # Records that were appended since have not expired: their segment must stay for now.
                if removals[-1].base_offset == view.segments.active.base_offset and log.end_offset != view.end_offset:
                    removals.pop()
                log.delete_segments((removal.base_offset for removal in removals), "; ".join(_reasons(removals)))
                return removals
    return []


def aging(log: PartitionLog, view: LogView, config: TopicConfig, now_ms: int, held: Sequence[range] = ()) -> AgingLog:
    """The log as policies see it."""
    return AgingLog(
        topic=log.topic,
        partition=log.partition,
        segments=view.infos(),
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        high_watermark=view.end_offset,
        config=config,
        now_ms=now_ms,
        held=held,
    )


def _is_as_in(log: PartitionLog, view: LogView, config: TopicConfig) -> bool:
    """Whether the log still has these configs and segments. There may be new segments after them."""
    now = log.view.segments[: len(view.segments)]
    return log.config is config and list(map(id, now)) == list(map(id, view.segments))


def _reasons(removals: Iterable[Removal]) -> list[str]:
    return [f"{removal.base_offset}: {removal.reason}" for removal in removals]
