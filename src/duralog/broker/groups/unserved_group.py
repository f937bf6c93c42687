"""Share groups and streams groups: known by the records that Kafka wrote, and kept as they are.

They cannot have members here, since their protocols are not served. But their ids are taken: a record of another kind
of group under the same id could not be loaded by Kafka, and with it no group of that partition. So they are known, and
requests are answered as Kafka answers requests for the wrong kind of group.

Members in the log were connected when the previous broker stopped. As in Kafka, they have a session timeout to come
back, and are removed after it; nothing is written for that. The offsets of a streams group without members may expire,
be changed or be deleted, and a classic group may take its id. A share group is always left alone: its progress is in
another topic, which only Kafka can delete.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.group import Group, misfit
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from duralog.format.internal.coordinator_records import CoordinatorRecord
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.share_records import SHARE_GROUP_TYPES
from duralog.format.internal.streams_records import STREAMS_GROUP_TYPES

_STREAMS_METADATA, _STREAMS_MEMBER, _STREAMS_TARGET_METADATA = 17, 19, 20
_STREAMS_TARGET_MEMBER, _STREAMS_CURRENT, _STREAMS_TOPOLOGY = 21, 22, 23
_TOMBSTONE_ORDER: Final = (
    _STREAMS_CURRENT,
    _STREAMS_TARGET_MEMBER,
    _STREAMS_TARGET_METADATA,
    _STREAMS_MEMBER,
    _STREAMS_METADATA,
    _STREAMS_TOPOLOGY,
)
"""The order of the tombstones of a streams group: Kafka refuses a log where a group ends before its members."""
SESSION_MS: Final = 45_000
"""Kafka's default for both kinds."""


class UnservedGroup(Group):
    def __init__(self, group_id: str, clock: Callable[[], int]) -> None:
        super().__init__(group_id)
        self._clock = clock
        self._loaded_ms = clock()
        self._keys: set[tuple[int, str | None]] = set()
        """Of the records that the log has: the type, and the member of those of a member, whose id may be empty."""

    def take(self, record: CoordinatorRecord) -> bool:
        """Note a record or a tombstone. Returns whether anything is left."""
        assert isinstance(record.key, Mapping)
        key = record.type_id, record.key.get("member_id")
        if record.value is None:
            self._keys.discard(key)
        else:
            self._keys.add(key)
        return bool(self._keys)

    @property
    def members(self) -> list[str]:
        """The ids of the members in the log."""
        return sorted({member_id for _, member_id in self._keys if member_id is not None})

    @property
    def protocol_type(self) -> str:
        return self.kind

    @property
    def is_empty(self) -> bool:
        return self._clock() - self._loaded_ms >= SESSION_MS or not self.members

    @abstractmethod
    def check_classic_join(self) -> None:
        """Refuse to replace it by a classic group."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise GroupRefusal(NON_EMPTY_GROUP)

    def cancel_timers(self) -> None:
        pass


class ShareGroup(UnservedGroup):
    kind = "share"
    may_expire = False

    @property
    def state(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    def check_classic_join(self) -> None:
        raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        del member_id, instance_id, epoch, transactional, version
        self._refuse()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """It has no offsets, and that is what Kafka answers."""

    def check_offset_delete(self) -> None:
        self._refuse()

    def check_delete(self) -> None:
        super().check_delete()
        raise GroupRefusal(UNSUPPORTED_VERSION)

    def is_subscribed_to(self, topic: str) -> bool:
        del topic
        return True

    def tombstones(self) -> list[CoordinatorRecord]:
        raise AssertionError("a share group is never deleted")

    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        del commit_timestamp_ms
        return None

    def _refuse(self) -> None:
        raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")


class StreamsGroup(UnservedGroup):
    kind = "streams"

    @property
    def state(self) -> str:
        return "Empty" if self.is_empty else "NotReady"

    def check_classic_join(self) -> None:
        if not self.is_empty:
            raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        del version
        if epoch < 0 and self.is_empty:
            return
        if not transactional or epoch >= 0 or member_id or instance_id is not None:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is not None or epoch >= 0:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)

    def check_offset_delete(self) -> None:
        pass

    def is_subscribed_to(self, topic: str) -> bool:
        """A member that may still reconnect may read any topic."""
        del topic
        return not self.is_empty

    def tombstones(self) -> list[CoordinatorRecord]:
        order = {type_id: place for place, type_id in enumerate(_TOMBSTONE_ORDER)}
        keys = sorted(self._keys, key=lambda key: (order[key[0]], key[1] or ""))
        return [_tombstone(self.group_id, *key) for key in keys]

    def member_tombstones(self) -> list[CoordinatorRecord]:
        """Those of the members alone: the group and its topology stay."""
        return [record for record in self.tombstones() if isinstance(record.key, Mapping) and "member_id" in record.key]

    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms


_CLASS_OF: Final[dict[int, type[ShareGroup | StreamsGroup]]] = {
    **{each.id: ShareGroup for each in SHARE_GROUP_TYPES},
    **{each.id: StreamsGroup for each in STREAMS_GROUP_TYPES},
}
UNSERVED_TYPES: Final = frozenset(_CLASS_OF)


def replay(groups: MutableMapping[str, Group], record: CoordinatorRecord, clock: Callable[[], int]) -> str | None:
    """Apply a record of one of `UNSERVED_TYPES`. Returns why it has no effect, if it does not fit."""
    assert not isinstance(record.key, bytes)
    group_id: str = record.key["group_id"]
    kind = _CLASS_OF[record.type_id]
    group = groups.get(group_id)
    if record.value is not None and (group is None or (isinstance(group, ClassicGroup) and group.is_simple)):
        group = groups[group_id] = kind(group_id, clock)
    if isinstance(group, kind):
        if not group.take(record):
            del groups[group_id]
    elif group is not None and record.value is not None:
        return misfit(group, record)
    return None


def _tombstone(group_id: str, type_id: int, member_id: str | None) -> CoordinatorRecord:
    key = {"group_id": group_id} if member_id is None else {"group_id": group_id, "member_id": member_id}
    return CoordinatorRecord(
        type_id=type_id, type_name=CONSUMER_OFFSETS_TYPES[type_id].name, key=key, version=None, value=None
    )
