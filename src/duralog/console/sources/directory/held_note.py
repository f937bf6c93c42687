"""The note about records that are older than the default retention: duralog holds them, Kafka would delete them."""

from __future__ import annotations

from collections.abc import Iterable

from duralog.config import TopicConfig
from duralog.config.byte_sizes import size_text
from duralog.config.error_text import printable
from duralog.config.plurals import plural
from duralog.config.times import duration_text
from duralog.console.sources.cleaner_metrics import HOW_TO_CHOOSE
from duralog.console.sources.directory.segment_times import timed_segments
from duralog.errors import DuralogError
from duralog.storage.log.retention import (
    DEFAULT_RETENTION_MS,
    DELETE,
    AgingLog,
    BeyondAge,
    Removal,
    is_retention_chosen,
    plan,
)
from duralog.storage.read_only_partitions import PartitionView


def held_note(rows: Iterable[tuple[PartitionView, int, TopicConfig]], now_ms: int) -> str | None:
    """The note for a directory, from its partitions, log start offsets and configs; None if no record is that old.

    The directory does not show whether the process that serves it was started with a retention. If it was, its next
    check deletes these records.
    """
    due = [removal for view, start, config in rows for removal in _due(view, start, config, now_ms)]
    if not due:
        return None
    sizes: dict[str, int] = {}
    for removal in due:
        sizes[removal.topic] = sizes.get(removal.topic, 0) + removal.size_bytes
    largest = printable(max(sizes, key=lambda topic: sizes[topic]))
    who = largest if len(sizes) == 1 else f"{largest} and {plural(len(sizes) - 1, 'more topic')}"
    verb = "has" if len(sizes) == 1 else "have"
    return (
        f"{who} {verb} records older than the default retention of {duration_text(DEFAULT_RETENTION_MS)},"
        f" {size_text(sum(sizes.values()))}. duralog holds them until a retention is chosen. {HOW_TO_CHOOSE}"
    )


def _due(view: PartitionView, start_offset: int, config: TopicConfig, now_ms: int) -> list[Removal]:
    if is_retention_chosen(config) or DELETE not in config.cleanup_policy or not view.segments:
        return []
    segments = timed_segments(view)
    try:
        # The usual case: one cached number, for any number of segments.
        if now_ms - segments[0].largest_timestamp_ms <= DEFAULT_RETENTION_MS:
            return []
        log = AgingLog(
            topic=view.partition.topic,
            partition=view.partition.partition,
            segments=segments,
            start_offset=start_offset,
            end_offset=view.end_offset,
            high_watermark=view.end_offset,
            config=config,
            now_ms=now_ms,
        )
        return plan(log, [BeyondAge()])
    except (OSError, DuralogError):
        return []  # A file has gone since it was listed: the next refresh shows it.
