"""The new group protocol, where the broker assigns."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.groups import JOIN_LAST, RANGE, describe, find_coordinator_of, join, stable
from oracle.conformance.scenarios.offsets import commit, commits, committed, wanted
from oracle.conformance.wire import Fields

MEMBER = "AAAAAAAAAAAAAAAAAAAAA"
"""Clients of version 1 make their own ids; these are not taken for random ones."""


def beat(dialog: Dialog, version: int, group: str, member: str, epoch: int, **fields: Any) -> Fields:
    pending = dialog.on().send(
        "consumer_group_heartbeat", version, group_id=group, member_id=member, member_epoch=epoch, **fields
    )
    answer = pending.take()
    if answer["assignment"] is not None:
        for each in answer["assignment"]["topic_partitions"]:
            each["partitions"].sort()
        answer["assignment"]["topic_partitions"].sort(key=lambda each: dialog.shown(each))
    pending.write_down(answer)
    return answer


def first_beat(dialog: Dialog, version: int, group: str, member: str, *topics: str, **fields: Any) -> Fields:
    request = {"rebalance_timeout": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []} | fields
    return beat(dialog, version, group, member, 0, **request)


def coordinator_knows(dialog: Dialog, group: str, topic: str) -> None:
    """Until the group's coordinator assigns the topic: Kafka tells it of new topics after everyone else.

    Each partition of `__consumer_offsets` is told for itself, so it is the group itself that is tried, and deleted.
    """
    find_coordinator_of(dialog, group)
    preparing = dialog.connection("preparing")
    member = {"group_id": group, "member_id": f"{MEMBER}-preparing"}
    joining = {
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    for _ in dialog.tries():
        answer = preparing.ask("consumer_group_heartbeat", 1, member | joining)
        if answer["assignment"] is not None and answer["assignment"]["topic_partitions"]:
            break
    preparing.ask("consumer_group_heartbeat", 1, member | {"member_epoch": -1})
    deleted = preparing.ask("delete_groups", 2, {"groups_names": [group]})
    assert deleted["results"][0]["error_code"] == 0, deleted


@each_version(0, 1)
def consumer_group_heartbeat(dialog: Dialog, version: int) -> None:
    """One member: it joins, gets all partitions, owns them, subscribes anew, leaves."""
    group = topic = dialog.name
    topic_id = dialog.create_topic(topic, 3)
    coordinator_knows(dialog, group, topic)
    member = first_beat(dialog, version, group, "" if version == 0 else MEMBER, topic)["member_id"]
    owned = [{"topic_id": topic_id, "partitions": [0, 1, 2]}]
    beat(dialog, version, group, member, 1)
    beat(dialog, version, group, member, 1, topic_partitions=owned)
    beat(
        dialog,
        version,
        group,
        member,
        1,
        topic_partitions=owned,
        rebalance_timeout=60_000,
        subscribed_topic_names=[topic],
    )
    beat(
        dialog,
        version,
        group,
        member,
        0,
        topic_partitions=owned,
        rebalance_timeout=60_000,
        subscribed_topic_names=[topic],
    )
    beat(dialog, version, group, member, 7)
    beat(dialog, version, group, "nobody", 1)
    beat(dialog, version, group, member, 1, subscribed_topic_names=[topic, f"{topic}-missing"])
    beat(dialog, version, group, member, 2)
    beat(dialog, version, group, member, 1)
    beat(dialog, version, group, member, -1)
    beat(dialog, version, group, member, 2)
    describe_group(dialog, version, group)


@each_version(0, 1)
def consumer_group_heartbeat_wrongly(dialog: Dialog, version: int) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic)
    coordinator_knows(dialog, group, topic)
    first_beat(dialog, version, "", MEMBER, topic)
    first_beat(dialog, version, group, "", topic, rebalance_timeout=-1)
    first_beat(dialog, version, group, MEMBER, topic, rebalance_timeout=-1)
    first_beat(dialog, version, group, MEMBER, topic, topic_partitions=None)
    first_beat(dialog, version, group, MEMBER, topic, topic_partitions=[{"topic_id": UUID(int=5), "partitions": [0]}])
    first_beat(dialog, version, group, MEMBER, topic, subscribed_topic_names=None)
    first_beat(dialog, version, group, MEMBER, topic, server_assignor="nonsense")
    first_beat(dialog, version, group, MEMBER, topic, server_assignor="")
    first_beat(dialog, version, group, MEMBER, topic, instance_id="")
    first_beat(dialog, version, group, MEMBER, topic, rack_id="")
    first_beat(dialog, version, group, "", topic) if version == 1 else None
    beat(dialog, version, group, MEMBER, 5)
    beat(dialog, version, group, MEMBER, -1)
    beat(dialog, version, group, MEMBER, -2)
    beat(dialog, version, group, MEMBER, -2, instance_id="one")
    beat(dialog, version, group, MEMBER, -3)
    beat(dialog, version, group, "", 1)
    if version >= 1:
        first_beat(dialog, version, group, MEMBER, subscribed_topic_names=None, subscribed_topic_regex="(")
        first_beat(dialog, version, group, MEMBER, subscribed_topic_names=None, subscribed_topic_regex="")


@scenario
def consumer_group_of_two(dialog: Dialog) -> None:
    """The first gives up a partition before the second gets it."""
    group = topic = dialog.name
    topic_id = dialog.create_topic(topic, 4)
    coordinator_knows(dialog, group, topic)
    first, second = f"{MEMBER}-1", f"{MEMBER}-2"
    first_beat(dialog, 1, group, first, topic)
    beat(dialog, 1, group, first, 1, topic_partitions=[{"topic_id": topic_id, "partitions": [0, 1, 2, 3]}])
    first_beat(dialog, 1, group, second, topic)
    describe_group(dialog, 1, group)
    beat(dialog, 1, group, second, 2)
    beat(dialog, 1, group, first, 1)
    describe_group(dialog, 1, group)
    beat(dialog, 1, group, second, 2)
    beat(dialog, 1, group, first, 1, topic_partitions=[{"topic_id": topic_id, "partitions": [0, 1]}])
    beat(dialog, 1, group, second, 2)
    beat(dialog, 1, group, second, 2, topic_partitions=[{"topic_id": topic_id, "partitions": [2, 3]}])
    beat(dialog, 1, group, first, 2)
    describe_group(dialog, 1, group)
    owner = {"member_id": second, "generation_id_or_member_epoch": 2}
    commit(dialog, 9, group, commits(topic, (2, 5)), **owner)
    commit(dialog, 9, group, commits(topic, (2, 5)), **owner | {"generation_id_or_member_epoch": 1})
    commit(dialog, 9, group, commits(topic, (2, 5)), **owner | {"generation_id_or_member_epoch": 9})
    commit(dialog, 9, group, commits(topic, (2, 5)), **owner | {"member_id": "nobody"})
    commit(dialog, 8, group, commits(topic, (2, 6)), **owner)
    commit(dialog, 9, group, commits(topic, (2, 7)))
    committed(dialog, 9, group, wanted(topic, 2), member_id=second, member_epoch=2)
    committed(dialog, 9, group, wanted(topic, 2), member_id=second, member_epoch=1)
    committed(dialog, 9, group, wanted(topic, 2), member_id="nobody", member_epoch=2)
    committed(dialog, 8, group, wanted(topic, 2))
    beat(dialog, 1, group, first, -1)
    beat(dialog, 1, group, second, 2)
    describe_group(dialog, 1, group)


@scenario
def consumer_group_with_static_members(dialog: Dialog) -> None:
    group = topic = dialog.name
    topic_id = dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    first, second = f"{MEMBER}-1", f"{MEMBER}-2"
    first_beat(dialog, 1, group, first, topic, instance_id="one")
    beat(dialog, 1, group, first, 1, instance_id="one", topic_partitions=[{"topic_id": topic_id, "partitions": [0, 1]}])
    first_beat(dialog, 1, group, second, topic, instance_id="one")
    beat(dialog, 1, group, first, -2, instance_id="one")
    describe_group(dialog, 1, group)
    first_beat(dialog, 1, group, second, topic, instance_id="one")
    beat(dialog, 1, group, first, 1, instance_id="one")
    beat(dialog, 1, group, second, 1, instance_id="other")
    beat(dialog, 1, group, second, -1, instance_id="one")
    describe_group(dialog, 1, group)


@scenario
def consumer_group_with_a_pattern(dialog: Dialog) -> None:
    group = dialog.name
    topic = f"{group}-matched"
    dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{group}-ma.*"}
    first_beat(dialog, 1, group, MEMBER, **pattern)
    for _ in dialog.tries():
        answer = dialog.connection("").ask(
            "consumer_group_heartbeat",
            1,
            {
                "group_id": group,
                "member_id": MEMBER,
                "member_epoch": 0,
                "rebalance_timeout": 60_000,
                "topic_partitions": [],
                **pattern,
            },
        )
        if answer["assignment"] is not None and answer["assignment"]["topic_partitions"]:
            break
    dialog.note("the assignment", answer["assignment"])
    describe_group(dialog, 1, group)


@scenario
def consumer_group_assignors(dialog: Dialog) -> None:
    """Five members, by each assignor. How many each gets: who gets which goes by the order of a hash table in Kafka."""
    for assignor in ("uniform", "range"):
        group = topic = f"{dialog.name}-{assignor}"
        dialog.create_topic(topic, 10)
        coordinator_knows(dialog, group, topic)
        for number in range(5):
            request = {"group_id": group, "member_id": f"{MEMBER}-{number}", "member_epoch": 0, "topic_partitions": []}
            request |= {"rebalance_timeout": 60_000, "subscribed_topic_names": [topic], "server_assignor": assignor}
            answer = dialog.connection("").ask("consumer_group_heartbeat", 1, request)
            dialog.note(f"{assignor}: member {number}", [answer["error_code"], answer["member_epoch"]])
        answer = dialog.connection("").ask("consumer_group_describe", 1, {"group_ids": [group]})
        targets = [member["target_assignment"]["topic_partitions"] for member in answer["groups"][0]["members"]]
        dialog.note(f"{assignor}: shares", [sum(len(each["partitions"]) for each in target) for target in targets])


def describe_group(dialog: Dialog, version: int, *groups: str, **fields: Any) -> None:
    pending = dialog.on().send("consumer_group_describe", version, group_ids=list(groups), **fields)
    answer = pending.take()
    answer["groups"].sort(key=lambda each: each["group_id"])
    for group in answer["groups"]:
        for member in group["members"]:
            member["subscribed_topic_names"].sort()
            for kind in ("assignment", "target_assignment"):
                member[kind]["topic_partitions"].sort(key=lambda each: each["topic_name"])
                for each in member[kind]["topic_partitions"]:
                    each["partitions"].sort()
    pending.write_down(answer)


@each_version(0, 1)
def consumer_group_describe(dialog: Dialog, version: int) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    describe_group(dialog, version, f"{group}-missing", "")
    describe_group(dialog, version)
    first_beat(dialog, 1, group, MEMBER, topic)
    describe_group(dialog, version, group)
    describe_group(dialog, version, group, include_authorized_operations=True)
    stable(dialog, f"{group}-classic")
    describe_group(dialog, version, f"{group}-classic", group)
    describe(dialog, 6, group)


@scenario
def consumer_group_meets_the_classic_protocol(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 2)
    coordinator_knows(dialog, group, topic)
    first_beat(dialog, 1, group, MEMBER, topic)
    join(dialog, JOIN_LAST, group, protocols=[{"name": "nonsense", "metadata": b""}]).receive()
    join(dialog, JOIN_LAST, group, protocols=RANGE, protocol_type="other").receive()
    dialog.ask("heartbeat", 4, group_id=group, member_id=MEMBER, generation_id=1)
    dialog.ask("leave_group", 5, group_id=group, members=[{"member_id": "nobody", "group_instance_id": None}])
    dialog.ask("delete_groups", 2, groups_names=[group])
    beat(dialog, 1, group, MEMBER, -1)
    dialog.ask("delete_groups", 2, groups_names=[group])
    classic = f"{group}-classic"
    coordinator_knows(dialog, classic, topic)
    member = stable(dialog, classic)["member_id"]
    dialog.ask("leave_group", 0, group_id=classic, member_id=member)
    first_beat(dialog, 1, classic, MEMBER, topic)
    describe_group(dialog, 1, classic)
