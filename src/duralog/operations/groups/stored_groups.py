"""The consumer groups of a directory, in `__consumer_offsets`, and changes of them without a broker.

The log has the members at its last write; only a running broker knows whether they are still connected. Changes are
written as a broker writes them (`broker.groups.stored_group`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from uuid import UUID

from duralog.broker.groups.group_loading import FoldedLog
from duralog.broker.groups.stored_group import Place, StoredGroup
from duralog.broker.topics.coordinator_log import LoggedMarker, LoggedRecord, read_log
from duralog.broker.topics.internal_topics import internal_topic
from duralog.client.groups import GroupView
from duralog.client.unknown_names import unknown_group
from duralog.config.error_text import printable
from duralog.config.plurals import plural
from duralog.config.progress import Counted, OnProgress, ignore
from duralog.errors import DuralogError, UnknownTopic
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS
from duralog.format.java_hash import coordinator_partition
from duralog.format.uuids import uuid_bytes
from duralog.operations.groups.group_records import GroupRecords
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

_MOST_NAMED = 3
_PROGRESS_RECORDS = 1_000


def groups_of_store(store: Store, *, on_progress: OnProgress = ignore) -> list[GroupView]:
    """All groups."""
    if CONSUMER_OFFSETS not in store.topics():
        return []
    return _read(store, on_progress).views(lambda topic, number: _end_offset(store, topic, number))


def _read(store: Store, on_progress: OnProgress) -> GroupRecords:
    groups = GroupRecords()
    logs = [store.partition(CONSUMER_OFFSETS, number) for number in store.partitions(CONSUMER_OFFSETS)]
    total = sum(log.end_offset - log.start_offset for log in logs)
    done = 0

    def entries(log: PartitionLog) -> Iterator[LoggedRecord | LoggedMarker]:
        nonlocal done
        label = f"{CONSUMER_OFFSETS}-{log.partition}"
        for entry in read_log(log):
            done += 1
            if done % _PROGRESS_RECORDS == 0:
                on_progress(Counted(label=label, done=min(done, total), total=total, unit="record"))
            yield entry

    for log in logs:
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


class StoreGroups:
    """The groups of an opened directory, for changes."""

    def __init__(self, directory: str, store: Store, *, evicts: bool) -> None:
        self.where = directory
        self._store = store
        self._evicts = evicts
        self._found: dict[str, StoredGroup] = {}

    def names(self) -> list[str]:
        """All groups but share groups, which only Kafka can change."""
        return [view.group for view in groups_of_store(self._store) if view.kind != "share"]

    def places(self) -> set[Place]:
        """All partitions."""
        return {(topic, number) for topic in self._store.topics() for number in self._store.partitions(topic)}

    def ranges(self, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
        """The start and end offsets of partitions."""
        logs = {place: self._store.partition(*place) for place in places}
        return {place: (log.start_offset, log.end_offset) for place, log in logs.items()}

    def offsets_at(self, places: Collection[Place], timestamp_ms: int) -> dict[Place, int]:
        """The first offsets at or after a time, of partitions that have one."""
        found = {place: self._store.partition(*place).offset_for_timestamp(timestamp_ms) for place in places}
        return {place: each.offset for place, each in found.items() if each is not None}

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
            raise unknown_group(name, self.where)
        return stored

    def _stored(self, name: str) -> StoredGroup | None:
        """None without `__consumer_offsets`. Raises for a share group, and for members that may not be evicted."""
        if CONSUMER_OFFSETS not in self._store.topics():
            return None
        stored = self._found.get(name)
        if stored is None:
            number = coordinator_partition(name, self._store.partition_count(CONSUMER_OFFSETS))
            log = self._store.partition(CONSUMER_OFFSETS, number)
            stored = self._found[name] = StoredGroup(name, log, wall_clock_ms)
        if stored.is_share_group:
            raise DuralogError(
                f"group {name} in {self.where} is a share group: only Kafka can change it. Start Kafka on the"
                " directory, and use kafka-share-groups.sh"
            )
        if stored.members and not self._evicts:
            raise DuralogError(_has_members(name, self.where, stored.members))
        return stored

    def _topic_id(self, topic: str) -> UUID | None:
        text = self._store.topic_id(topic)
        return None if text is None else UUID(bytes=uuid_bytes(text))


def _has_members(name: str, where: str, members: Sequence[str]) -> str:
    some = ", ".join(printable(member) for member in members[:_MOST_NAMED])
    more = ", ..." if len(members) > _MOST_NAMED else ""
    return (
        f"group {name} in {where} has {plural(len(members), 'member')} that did not leave ({some}{more}):"
        " start the broker and stop the consumers, or give --evict: consumers that come back join again"
    )
