"""The committed offsets of groups, written to a new directory as a broker writes them.

A group keeps offset, leader epoch and metadata of each commit. The time of the commit becomes the time of the restore:
a broker deletes the offsets of an idle group `offsets.retention.minutes` after the last commit, so a backup that is
older than that would lose them at its first start. Members are not restored: consumers join again, and continue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from duralog.broker.groups.offsets.records import (
    CommittedOffset,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
)
from duralog.broker.topics.internal_topics import internal_topic
from duralog.errors import StorageError
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS
from duralog.format.java_hash import coordinator_partition
from duralog.format.record import Record
from duralog.operations.groups.stored_groups import groups_of_store
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.store import Store

_BATCH_BYTES = 256 << 10


def write_groups(store: Store, commits: Mapping[OffsetKey, CommittedOffset], partitions: int) -> None:
    """`partitions` is how many `__consumer_offsets` had."""
    if not commits:
        return
    config = replace(store.config, offsets_topic_num_partitions=partitions)
    store.create_topic(CONSUMER_OFFSETS, *internal_topic(CONSUMER_OFFSETS, config))
    now_ms = wall_clock_ms()
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for key, value in sorted(commits.items()):
        written = value._replace(commit_timestamp_ms=now_ms, expire_timestamp_ms=None)
        record = Record(key=encode_offset_key(key), value=encode_offset_value(written), timestamp_ms=now_ms)
        by_partition[coordinator_partition(key.group_id, partitions)].append(record)
    for number, records in by_partition.items():
        log = store.partition(CONSUMER_OFFSETS, number)
        for some in _in_batches(records):
            log.append(some)


def check_groups(store: Store, commits: Mapping[OffsetKey, CommittedOffset]) -> None:
    """Raise `StorageError` if the groups of a directory do not have these offsets."""
    found = {
        (view.group, each.topic, each.partition): each.committed
        for view in groups_of_store(store)
        for each in view.offsets
    }
    if found != {tuple(key): value.offset for key, value in commits.items()}:
        raise StorageError(f"{store.path}: the committed offsets are not what was read: run restore again")


def _in_batches(records: list[Record]) -> Iterator[list[Record]]:
    some: list[Record] = []
    size = 0
    for record in records:
        more = len(record.key or b"") + len(record.value or b"") + 64
        if some and size + more > _BATCH_BYTES:
            yield some
            some, size = [], 0
        some.append(record)
        size += more
    if some:
        yield some
