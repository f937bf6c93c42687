"""All groups and all offsets, as the records of `__consumer_offsets` define them.

A record takes effect here, whether it was just written or is loaded at start: so a loaded group is the same as one that
never stopped. Nothing is written here and there are no timers: the coordinator has those, and a command that changes a
directory without a broker needs neither.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.broker.groups.classic.group import ClassicGroup, load_group
from duralog.broker.groups.classic.records import GROUP_METADATA
from duralog.broker.groups.consumer.records import CONSUMER_GROUP_TYPES
from duralog.broker.groups.consumer.replay import replay as replay_consumer_group
from duralog.broker.groups.group import Group
from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey
from duralog.broker.groups.offsets.table import OffsetTable
from duralog.broker.groups.unserved_group import UNSERVED_TYPES
from duralog.broker.groups.unserved_group import replay as replay_unserved_group
from duralog.format.internal.coordinator_records import CoordinatorRecord


class KnownGroups:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.by_id: dict[str, Group] = {}
        self.offsets = OffsetTable()

    def find_or_make(self, group_id: str) -> Group:
        """The group; if there is none, one with nothing but offsets, which needs no record."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = ClassicGroup(group_id, self._clock, state_timestamp_ms=self._clock())
        return group

    def remove(self, group_id: str) -> None:
        """Forget a group whose tombstones are written. Its offsets have their own tombstones."""
        group = self.by_id.pop(group_id, None)
        if group is not None:
            group.cancel_timers()

    def replay(self, record: CoordinatorRecord) -> str | None:
        """Apply a record that is in the log, or return why it has no effect: its group is of another kind.

        Offsets are applied by `replay_offset`.
        """
        if record.type_id in CONSUMER_GROUP_TYPES:
            return replay_consumer_group(self.by_id, record)
        if record.type_id in UNSERVED_TYPES:
            return replay_unserved_group(self.by_id, record, self._clock)
        if record.type_id == GROUP_METADATA and not isinstance(record.key, bytes):
            group_id = record.key["group"]
            if record.value is None:
                if isinstance(self.by_id.get(group_id), ClassicGroup):
                    self.remove(group_id)
            elif not isinstance(record.value, bytes):
                self.remove(group_id)
                self.by_id[group_id] = load_group(group_id, record.value, self._clock)
        return None

    def replay_offset(self, key: OffsetKey, committed: CommittedOffset | None) -> None:
        if committed is None:
            self.offsets.remove(key)
        else:
            self.find_or_make(key.group_id)
            self.offsets.put(key, committed)

    def replay_pending(self, partition: int, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        """An offset whose transaction has no marker yet. `partition` has the record, and will have the marker."""
        self.find_or_make(key.group_id)
        self.offsets.put_pending(partition, producer_id, key, committed)
