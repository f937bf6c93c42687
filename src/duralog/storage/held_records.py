"""Records that the built-in retention must not delete: those that were due when the directory was opened.

Kafka's default retention is seven days. The user who opens a backup, or a directory of old records, did not choose it.
So the default deletes only records that expire while the store is open; those that had expired before are held. A
retention that was chosen, for the topic or for the broker, deletes expired records as in Kafka, and so does
`Store.apply_retention`.

What must always be true:
- Which records are held is decided once, by the clock and the segments at the opening, before the first append.
  Records that are appended later age as in Kafka until the next opening, even with old timestamps.
- Records are held by their offsets: a compaction that merges their segment with others does not release them.
- A segment with one held record stays as a whole, and with it all that follow: a log has no holes.

For logs with a chosen retention, only the end offset is remembered. If that config is removed while the store is open,
their segments are checked then, against the clock of the opening.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from duralog.config.plurals import plural
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.log_retention import aging
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import (
    DEFAULT_RETENTION_MS,
    DELETE,
    BeyondAge,
    is_retention_chosen,
    plan,
)

_MOST_NAMED = 10
_DAY_MS = 86_400_000
_BY_AGE = (BeyondAge(),)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTopic:
    """What a chosen retention of seven days would delete from a topic now, and the default does not."""

    topic: str
    records: int
    """By offsets: a compacted log has fewer."""
    size_bytes: int


class HeldRecords:
    """The held records of one store. Any thread may call any method."""

    def __init__(self, logs: Mapping[TopicPartition, PartitionLog], opened_ms: int) -> None:
        """REQUIRES: nothing was appended to the logs since they were loaded."""
        self._opened_ms = opened_ms
        self._ends = {partition: log.end_offset for partition, log in logs.items()}
        self._held: dict[TopicPartition, Sequence[range]] = {}
        self._measuring = threading.Lock()
        for partition, log in logs.items():
            if DELETE in log.config.cleanup_policy and not is_retention_chosen(log.config):
                self.of(partition, log)

    def of(self, partition: TopicPartition, log: PartitionLog) -> Sequence[range]:
        """The offsets of a log that are held as long as its retention is the default."""
        with self._measuring:
            held = self._held.get(partition)
            if held is None:
                end_offset = self._ends.get(partition, 0)
                held = self._held[partition] = _due(log, end_offset, self._opened_ms) if end_offset else ()
            return held

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """New logs of these names inherit nothing."""
        with self._measuring:
            for partition in partitions:
                self._ends.pop(partition, None)
                self._held.pop(partition, None)

    def topics(self, logs: Mapping[TopicPartition, PartitionLog], now_ms: int) -> tuple[HeldTopic, ...]:
        """What is held now, the largest first."""
        records: dict[str, int] = {}
        size_bytes: dict[str, int] = {}
        for partition, log in logs.items():
            view, config = log.view, log.config
            if is_retention_chosen(config) or DELETE not in config.cleanup_policy:
                continue
            held = self.of(partition, log)
            if not held:
                continue
            try:
                due = plan(aging(log, view, config, now_ms), _BY_AGE)
                goes = plan(aging(log, view, config, now_ms, held), _BY_AGE)
            except (DuralogError, OSError):
                continue  # The next retention check reports it.
            for removal in due[len(goes) :]:
                count = removal.end_offset - max(removal.base_offset, view.start_offset)
                records[log.topic] = records.get(log.topic, 0) + max(count, 0)
                size_bytes[log.topic] = size_bytes.get(log.topic, 0) + removal.size_bytes
        found = [HeldTopic(topic=name, records=records[name], size_bytes=size_bytes[name]) for name in records]
        return tuple(sorted(found, key=lambda topic: (-topic.size_bytes, topic.topic)))


def warn_of(directory: str, held: Sequence[HeldTopic]) -> None:
    """Log which records are held, and what can be done about them."""
    if not held:
        return
    named = [f"{topic.topic} ({plural(topic.records, 'record')}, {topic.size_bytes:,} bytes)" for topic in held]
    more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
    days = DEFAULT_RETENTION_MS // _DAY_MS
    _logger.warning(
        "%s: %s had records older than the default retention of %d days when the directory was opened, %s in %s bytes:"
        " %s%s. They are held, with everything after them in their logs, because no retention was chosen. To delete"
        " them, run duralog retain while the directory is closed, or set retention.ms for the topic or"
        " log.retention.hours for the broker, or start with duralog serve --apply-retention. To keep them for good, set"
        " retention.ms=-1",
        directory,
        plural(len(held), "topic"),
        days,
        plural(sum(topic.records for topic in held), "record"),
        f"{sum(topic.size_bytes for topic in held):,}",
        ", ".join(named[:_MOST_NAMED]),
        more,
    )


def _due(log: PartitionLog, end_offset: int, opened_ms: int) -> Sequence[range]:
    """The offsets below `end_offset` that are in segments which were due at the opening."""
    view = log.view
    segments = list(view.segments)
    ends = [following.base_offset for following in segments[1:]] + [view.end_offset]
    found: list[range] = []
    try:
        for segment, end in zip(segments, ends, strict=True):
            if segment.base_offset >= end_offset:
                break
            if opened_ms - segment.largest_timestamp_ms <= DEFAULT_RETENTION_MS:
                continue
            start = segment.base_offset
            if found and found[-1].stop == start:
                start = found.pop().start
            found.append(range(start, min(end, end_offset)))
    except (DuralogError, OSError) as error:
        _logger.warning(
            "%s: its records are held until the next opening: their age is not known: %s", log.folder, error
        )
        return (range(end_offset),)
    return tuple(found)
