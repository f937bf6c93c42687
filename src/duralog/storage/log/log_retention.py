"""Retention of one log: what the policies see of it, and how their plan is carried out while others change the log.

A plan is for the segments and configs that it was made of. Where a compaction has put other segments into their places
since, a base offset names another segment, in which records may be that have not expired; and what configs of before
say does not count any more. So a plan is only carried out on what it was made of, under the log's lock, and otherwise
made again. What is appended meanwhile changes nothing but that it must stay.
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
    """What goes of the log by these policies. It is gone when this returns, unless it is only asked for.

    Nothing goes, this time, of a log that is never as it was when a plan was made. `held` are offsets that the built-in
    retention must not delete.
    """
    for _ in range(_MOST_PLANS):
        view, config = log.view, log.config
        try:
            removals = plan(aging(log, view, config, now_ms, held), policies)
        except StorageError:
            if _is_as_in(log, view, config):
                raise
            continue  # A segment was deleted while it was looked at.
        if not delete or not removals:
            return removals
        with log.writers_waiting():
            if _is_as_in(log, view, config):
                # What was appended since is not expired: the segment it is in must stay for now.
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
    """Whether the log has still these segments, to which others may have come, and these configs."""
    now = log.view.segments[: len(view.segments)]
    return log.config is config and list(map(id, now)) == list(map(id, view.segments))


def _reasons(removals: Iterable[Removal]) -> list[str]:
    return [f"{removal.base_offset}: {removal.reason}" for removal in removals]
