"""Groups that change between the classic and the newer protocol while they have members, there and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duralog.format.internal.embedded_protocol import ASSIGNMENT, SUBSCRIPTION, decode_embedded, encode_embedded
from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import scenario
from oracle.conformance.scenarios.consumer_groups import MEMBER, beat, coordinator_knows, describe_group, first_beat
from oracle.conformance.scenarios.groups import JOIN_LAST, SYNC_LAST, describe, heartbeat, join, joined, sync
from oracle.conformance.scenarios.offsets import commit, commits, committed
from oracle.conformance.wire import Fields

_VERSION = 1
_RANGE = "range"


def _places(topic: str, partitions: Sequence[int]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(partitions)}] if partitions else []


def _subscribed(topic: str, *owned: int) -> list[dict[str, Any]]:
    """What a member says for its protocol: what it reads, and what it has."""
    fields = {"topics": [topic], "user_data": None, "owned_partitions": _places(topic, owned)}
    return [{"name": _RANGE, "metadata": encode_embedded(SUBSCRIPTION, _VERSION, fields)}]


def _assigned(topic: str, *partitions: int) -> bytes:
    fields = {"assigned_partitions": _places(topic, partitions), "user_data": None}
    return encode_embedded(ASSIGNMENT, _VERSION, fields)


def _led(dialog: Dialog, group: str, topic: str, member: Fields, *partitions: int, **fields: Any) -> None:
    """The leader of a group of one gives itself these partitions."""
    shares = [{"member_id": member["member_id"], "assignment": _assigned(topic, *partitions)}]
    sync(dialog, SYNC_LAST, group, member, assignments=shares, **fields).receive()


def _synced(dialog: Dialog, group: str, member: Fields, **fields: Any) -> list[int]:
    """What a member of a group that the broker assigns for is given."""
    answer = sync(dialog, SYNC_LAST, group, member, **fields).receive()
    if not answer["assignment"]:
        return []
    places = decode_embedded(ASSIGNMENT, answer["assignment"])["assigned_partitions"]
    return [number for place in places for number in place["partitions"]]


@scenario
def groups_that_change_their_protocol(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    member = joined(dialog, JOIN_LAST, group, protocols=_subscribed(topic))
    _led(dialog, group, topic, member, 0, 1)
    name = member["member_id"]
    owner = {"member_id": name, "generation_id_or_member_epoch": member["generation_id"]}
    commit(dialog, 9, group, commits(topic, (0, 5), (1, 6)), **owner)
    other = first_beat(dialog, 1, group, MEMBER, topic)
    describe_group(dialog, 1, group)
    describe(dialog, 6, group)
    heartbeat(dialog, 4, group, name, member["generation_id"])
    commit(dialog, 9, group, commits(topic, (0, 7)), **owner)
    owned = [0, 1]
    for _ in range(3):
        member = join(dialog, JOIN_LAST, group, name, protocols=_subscribed(topic, *owned)).receive()
        owned = _synced(dialog, group, member)
        heartbeat(dialog, 4, group, name, member["generation_id"])
        other = beat(dialog, 1, group, MEMBER, other["member_epoch"])
    owner["generation_id_or_member_epoch"] = member["generation_id"]
    commit(dialog, 8, group, commits(topic, (0, 8)), **owner)
    commit(dialog, 8, group, commits(topic, (0, 9)), **owner | {"generation_id_or_member_epoch": 99})
    newer = {"member_id": MEMBER, "generation_id_or_member_epoch": other["member_epoch"]}
    for version in (8, 9):
        commit(dialog, version, group, commits(topic, (1, 10)), **newer)
    describe_group(dialog, 1, group)
    beat(dialog, 1, group, MEMBER, -1)
    describe_group(dialog, 1, group)
    describe(dialog, 6, group)
    heartbeat(dialog, 4, group, name, member["generation_id"])
    beat(dialog, 1, group, MEMBER, other["member_epoch"])
    member = join(dialog, JOIN_LAST, group, name, protocols=_subscribed(topic, *owned)).receive()
    _led(dialog, group, topic, member, 0, 1)
    describe(dialog, 6, group)
    committed(dialog, 9, group, everything=True)
    dialog.ask("leave_group", 5, group_id=group, members=[{"member_id": name, "group_instance_id": None}])
    describe(dialog, 6, group)


@scenario
def static_members_that_change_their_protocol(dialog: Dialog) -> None:
    group = topic = dialog.name
    static = {"group_instance_id": "one"}
    dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    member = joined(dialog, JOIN_LAST, group, protocols=_subscribed(topic), **static)
    _led(dialog, group, topic, member, 0, 1, **static)
    newer = first_beat(dialog, 1, group, MEMBER, topic, instance_id="one")
    describe_group(dialog, 1, group)
    heartbeat(dialog, 4, group, member["member_id"], member["generation_id"], **static)
    first_beat(dialog, 1, group, f"{MEMBER}-2", topic, instance_id="one")
    back = join(dialog, JOIN_LAST, group, protocols=_subscribed(topic), on="restarted", **static).receive()
    describe_group(dialog, 1, group)
    describe(dialog, 6, group)
    beat(dialog, 1, group, MEMBER, newer["member_epoch"], instance_id="one")
    _synced(dialog, group, back, **static)
    heartbeat(dialog, 4, group, back["member_id"], back["generation_id"], **static)
    first_beat(dialog, 1, group, MEMBER, topic)
    describe_group(dialog, 1, group)
    away = [{"member_id": "", "group_instance_id": "one"}]
    dialog.ask("leave_group", 5, group_id=group, members=away)
    dialog.ask("leave_group", 5, group_id=group, members=away)
    describe_group(dialog, 1, group)
