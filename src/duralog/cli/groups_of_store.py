"""Consumer groups as a directory has them: read from `__consumer_offsets`, without a broker. Nothing is changed.

What only a running broker knows, whether a group's members are still there, is not told.
"""

from __future__ import annotations

from duralog.cli.group_records import GroupRecords
from duralog.cli.group_views import GroupView
from duralog.cli.opened_store import opened_store
from duralog.cli.progress import Progress
from duralog.errors import UnknownTopic
from duralog.format.internal_topics import CONSUMER_OFFSETS
from duralog.storage.isolation import Isolation
from duralog.storage.store import Store


def groups_of_store(directory: str, *, is_shown: bool = False) -> list[GroupView]:
    """With `is_shown`, progress is."""
    with opened_store(directory, read_only=True, server_properties=None) as store:
        if CONSUMER_OFFSETS not in store.topics():
            return []
        return _read(store, is_shown=is_shown).views(lambda topic, number: _end_offset(store, topic, number))


def _read(store: Store, *, is_shown: bool) -> GroupRecords:
    groups = GroupRecords()
    logs = [store.partition(CONSUMER_OFFSETS, number) for number in store.partitions(CONSUMER_OFFSETS)]
    total = sum(log.end_offset - log.start_offset for log in logs)
    with Progress(total, unit="record", wanted=is_shown) as progress:
        for log in logs:
            progress.begin(f"{CONSUMER_OFFSETS}-{log.partition}")
            # What a transaction committed counts when the transaction does.
            for record in log.read(log.start_offset, isolation=Isolation.READ_COMMITTED):
                groups.take(record)
                progress.advance(1)
    return groups


def _end_offset(store: Store, topic: str, partition: int) -> int | None:
    try:
        return store.partition(topic, partition).end_offset
    except UnknownTopic:
        return None
