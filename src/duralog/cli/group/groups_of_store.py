"""The consumer groups of a directory, in `__consumer_offsets`, and changes of them without a broker.

The log has the members at its last write; only a running broker knows whether they are still there. Changes are written
as a broker writes them (`broker.groups.stored_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from duralog.broker.groups.group_loading import FoldedLog
from duralog.broker.groups.stored_group import Place, StoredGroup
from duralog.broker.topics.coordinator_log import LoggedMarker, LoggedRecord, read_log
from duralog.broker.topics.internal_topics import internal_topic
from duralog.cli.common.failures import printable
from duralog.cli.common.opened_store import opened_store
from duralog.cli.common.options import now_ms
from duralog.cli.common.progress import CountingBar
from duralog.cli.common.tables import plural
from duralog.cli.group.group_records import GroupRecords
from duralog.client.groups import GroupView, ResetTo
from duralog.client.unknown_names import unknown_group, unknown_partition, unknown_topic
from duralog.errors import DuralogError, UnknownTopic
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS
from duralog.format.java_hash import coordinator_partition
from duralog.format.uuids import uuid_bytes
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

_MOST_NAMED = 3


def groups_of_store(directory: str, *, is_shown: bool = False) -> list[GroupView]:
    """All groups. With `is_shown`, a progress bar is shown."""
    with opened_store(directory, read_only=True, server_properties=None) as store:
        if CONSUMER_OFFSETS not in store.topics():
            return []
        return _read(store, is_shown=is_shown).views(lambda topic, number: _end_offset(store, topic, number))


def _read(store: Store, *, is_shown: bool) -> GroupRecords:
    groups = GroupRecords()
    logs = [store.partition(CONSUMER_OFFSETS, number) for number in store.partitions(CONSUMER_OFFSETS)]
    total = sum(log.end_offset - log.start_offset for log in logs)
    with CountingBar(total, unit="record", wanted=is_shown) as progress:

        def entries(log: PartitionLog) -> Iterator[LoggedRecord | LoggedMarker]:
            for entry in read_log(log):
                progress.advance(1)
                yield entry

        for log in logs:
            progress.begin(f"{CONSUMER_OFFSETS}-{log.partition}")
            # Offsets of a transaction count once it is committed; other commits do not wait for it.
            folded = FoldedLog()
            folded.add(entries(log))
            for record in folded.last():
                groups.add(record)
    return groups


def _end_offset(store: Store, topic: str, partition: int) -> int | None:
    try:
        return store.partition(topic, partition).end_offset
    except UnknownTopic:
        return None


@contextmanager
def stored_groups(directory: str, *, evicts: bool, read_only: bool, quiet: bool) -> Iterator[StoreGroups]:
    """The groups of a directory, which is locked meanwhile unless `read_only`."""
    with opened_store(directory, read_only=read_only, server_properties=None, quiet=quiet) as store:
        yield StoreGroups(directory, store, evicts=evicts)


class StoreGroups:
    def __init__(self, directory: str, store: Store, *, evicts: bool) -> None:
        self._directory = directory
        self._store = store
        self._evicts = evicts
        self._found: dict[str, StoredGroup] = {}

    def targets(self, topic: str, partition: int | None, to: ResetTo) -> dict[Place, int]:
        """The offsets to set, within the range of each partition."""
        if self._store.find_topic(topic) is None:
            raise unknown_topic(self._directory, topic, self._store.topics())
        numbers = self._store.partitions(topic)
        if partition is not None and partition not in numbers:
            raise unknown_partition(self._directory, topic, partition, numbers)
        return {
            (topic, number): self._target((topic, number), to)
            for number in (numbers if partition is None else [partition])
        }

    def _target(self, place: Place, to: ResetTo) -> int:
        log = self._store.partition(*place)
        if to.offset is not None:
            return min(max(to.offset, log.start_offset), log.end_offset)
        if to.timestamp_ms is not None:
            found = log.offset_for_timestamp(to.timestamp_ms)
            return log.end_offset if found is None else found.offset
        return log.end_offset if to.latest else log.start_offset

    def committed(self, name: str) -> dict[Place, int]:
        """The committed offsets of a group. Raises if the group may not be changed."""
        stored = self._stored(name)
        return {} if stored is None else stored.committed

    def set_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        """Set offsets. A missing group, and a missing `__consumer_offsets`, is created as by a broker."""
        if CONSUMER_OFFSETS not in self._store.topics():
            self._store.create_topic(CONSUMER_OFFSETS, *internal_topic(CONSUMER_OFFSETS, self._store.config))
        stored = self._stored(name)
        assert stored is not None
        stored.set_offsets(offsets, {topic: self._topic_id(topic) for topic, _ in offsets})

    def check(self, name: str) -> int:
        """The number of offsets of a group. Raises if it may not be deleted."""
        return len(self._existing(name).committed)

    def delete(self, name: str) -> None:
        self._existing(name).delete()

    def _existing(self, name: str) -> StoredGroup:
        stored = self._stored(name)
        if stored is None or not stored.is_there:
            raise unknown_group(name, self._directory)
        return stored

    def _stored(self, name: str) -> StoredGroup | None:
        """None without `__consumer_offsets`. Raises for a share group, and for members that may not be evicted."""
        if CONSUMER_OFFSETS not in self._store.topics():
            return None
        stored = self._found.get(name)
        if stored is None:
            number = coordinator_partition(name, self._store.partition_count(CONSUMER_OFFSETS))
            log = self._store.partition(CONSUMER_OFFSETS, number)
            stored = self._found[name] = StoredGroup(name, log, now_ms)
        if stored.is_share_group:
            raise DuralogError(
                f"group {name} in {self._directory} is a share group: only Kafka can change it. Start Kafka on the"
                " directory, and use kafka-share-groups.sh"
            )
        if stored.members and not self._evicts:
            raise DuralogError(_has_members(name, self._directory, stored.members))
        return stored

    def _topic_id(self, topic: str) -> UUID | None:
        text = self._store.topic_id(topic)
        return None if text is None else UUID(bytes=uuid_bytes(text))


def _has_members(name: str, where: str, members: Sequence[str]) -> str:
    some = ", ".join(printable(member) for member in members[:_MOST_NAMED])
    more = ", ..." if len(members) > _MOST_NAMED else ""
    return (
        f"group {name} in {where} has {plural(len(members), 'member')} that have not left ({some}{more}):"
        " start the broker and stop the consumers, or give --evict: consumers that come back join again"
    )
