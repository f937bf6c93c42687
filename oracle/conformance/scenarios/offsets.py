"""Committed offsets: commit, fetch, delete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.discovery import NO_SUCH_ID
from oracle.conformance.scenarios.groups import (
    JOIN_LAST,
    SYNC_LAST,
    assignment,
    find_coordinator_of,
    joined,
    stable,
    sync,
)
from oracle.conformance.wire import Fields


def commits(
    topic: str | UUID, *partitions: tuple[int, int], metadata: str | None = "note", **fields: Any
) -> dict[str, Any]:
    named = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    asked = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata} | fields
        for index, offset in partitions
    ]
    return named | {"partitions": asked}


def commit(dialog: Dialog, version: int, group: str, *topics: dict[str, Any], **fields: Any) -> Fields:
    request = {"generation_id_or_member_epoch": -1, "member_id": ""} | fields
    return dialog.ask("offset_commit", version, group_id=group, topics=list(topics), **request)


def wanted(topic: str | UUID, *partitions: int) -> dict[str, Any]:
    return ({"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}) | {
        "partition_indexes": list(partitions)
    }


def committed(
    dialog: Dialog, version: int, group: str, *topics: dict[str, Any], everything: bool = False, **fields: Any
) -> None:
    asked = None if everything else list(topics)
    request: dict[str, Any]
    if version >= 8:
        group_fields = {name: fields.pop(name) for name in ("member_id", "member_epoch") if name in fields}
        request = {"groups": [{"group_id": group, "topics": asked} | group_fields]}
    else:
        request = {"group_id": group, "topics": asked}
    pending = dialog.on().send("offset_fetch", version, **request | fields)
    answer = pending.take()
    for each in answer.get("groups", [answer]):
        each["topics"].sort(key=lambda topic: str(topic.get("name", "")))
        for topic in each["topics"]:
            if everything:
                topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    pending.write_down(answer)


@each_version(2, 10)
def offset_commit(dialog: Dialog, version: int) -> None:
    """By a consumer that belongs to no group."""
    group = dialog.name
    topic_id = dialog.create_topic(dialog.name, 3)
    topic: str | UUID = topic_id if version >= 10 else dialog.name
    missing: str | UUID = NO_SUCH_ID if version >= 10 else f"{dialog.name}-missing"
    find_coordinator_of(dialog, group)
    commit(dialog, version, group, commits(topic, (0, 5), (2, 7)))
    commit(dialog, version, group, commits(topic, (1, 0), metadata=None), commits(missing, (0, 1)))
    commit(dialog, version, group, commits(topic, (9, 1), (-1, 1)))
    commit(dialog, version, group, commits(topic, (0, -1)))
    commit(dialog, version, group, commits(topic, (0, 6), metadata="x" * 5000), commits(topic, (1, 1)))
    commit(dialog, version, group, commits(topic, (0, 6), (0, 8)))
    commit(dialog, version, "", commits(topic, (0, 6)))
    commit(dialog, version, group)
    commit(dialog, version, group, commits(topic, (0, 6)), member_id="nobody")
    commit(dialog, version, group, commits(topic, (0, 6)), generation_id_or_member_epoch=3)
    commit(dialog, version, f"{group}-new", commits(topic, (0, 6)), member_id="nobody", generation_id_or_member_epoch=3)
    if version >= 6:
        commit(dialog, version, group, commits(topic, (2, 9), committed_leader_epoch=4))
    if version >= 10:
        commit(dialog, version, group, commits(UUID(int=0), (0, 1)))
    committed(dialog, 5, group, wanted(dialog.name, 0, 1, 2))


@scenario
def offset_commit_by_members(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 2)
    member = joined(dialog, JOIN_LAST, group)
    name, generation = member["member_id"], member["generation_id"]
    owner = {"member_id": name, "generation_id_or_member_epoch": generation}
    commit(dialog, 8, group, commits(topic, (0, 1)), **owner)
    sync(dialog, SYNC_LAST, group, member, assignments=assignment(member)).receive()
    commit(dialog, 8, group, commits(topic, (0, 2)), **owner)
    commit(dialog, 8, group, commits(topic, (0, 3)), **owner | {"generation_id_or_member_epoch": generation + 1})
    commit(dialog, 8, group, commits(topic, (0, 3)), **owner | {"member_id": "nobody"})
    commit(dialog, 8, group, commits(topic, (0, 3)))
    commit(dialog, 8, group, commits(topic, (0, 3)), **owner, group_instance_id="nobody")
    committed(dialog, 8, group, wanted(topic, 0, 1))
    dialog.ask("leave_group", 0, group_id=group, member_id=name)
    commit(dialog, 8, group, commits(topic, (0, 4)), **owner)
    commit(dialog, 8, group, commits(topic, (0, 5)))
    committed(dialog, 8, group, wanted(topic, 0, 1))


@each_version(1, 10)
def offset_fetch(dialog: Dialog, version: int) -> None:
    group = dialog.name
    topic_id = dialog.create_topic(dialog.name, 3)
    topic: str | UUID = topic_id if version >= 10 else dialog.name
    missing: str | UUID = NO_SUCH_ID if version >= 10 else f"{dialog.name}-missing"
    find_coordinator_of(dialog, group)
    committed(dialog, version, f"{group}-missing", wanted(topic, 0))
    commit(dialog, 8, group, commits(dialog.name, (2, 7), (0, 5)))
    committed(dialog, version, group, wanted(topic, 2, 1, 0))
    committed(dialog, version, group, wanted(topic, 9, -1), wanted(missing, 0))
    committed(dialog, version, group, wanted(topic, 0, 0))
    committed(dialog, version, group, wanted(topic))
    committed(dialog, version, group)
    committed(dialog, version, "", wanted(topic, 0))
    if version >= 2:
        committed(dialog, version, group, everything=True)
        committed(dialog, version, f"{group}-missing", everything=True)
    if version >= 7:
        committed(dialog, version, group, wanted(topic, 0), require_stable=True)
    if version >= 8:
        many = [{"group_id": each, "topics": [wanted(topic, 0)]} for each in (f"{group}-missing", group, group, "")]
        dialog.ask("offset_fetch", version, groups=many)
        dialog.ask("offset_fetch", version, groups=[])
    if version >= 9:
        committed(dialog, version, group, wanted(topic, 0), member_id="nobody", member_epoch=1)
        committed(dialog, version, group, wanted(topic, 0), member_id=None, member_epoch=-1)
    if version >= 10:
        committed(dialog, version, group, wanted(UUID(int=0), 0))


def odd_shapes(topic: str) -> tuple[tuple[dict[str, Any], ...], ...]:
    """Commits with topics and partitions named twice, good beside bad, without partitions, and odd values."""
    missing = f"{topic}-missing"
    return (
        (),
        (commits(topic),),
        (commits(missing),),
        (commits(topic, (0, 1), (0, 2)),),
        (commits(topic, (0, 3)), commits(topic, (1, 4), (0, 5))),
        (commits(topic, (0, 6)), commits(missing, (0, 4)), commits(topic, (1, 9), (7, 1))),
        (commits("", (0, 4)),),
        (commits(topic, (-1, 1)),),
        (commits(topic, (0, -1), (1, -9)),),
        (commits(topic, (0, 2**62), metadata=None),),
        (commits(topic, (0, 1), metadata="\N{EURO SIGN}" * 4096),),
        (commits(topic, (0, 1), metadata="\N{GRINNING FACE}" * 2049), commits(topic, (1, 8))),
    )


@scenario
def offsets_in_odd_shapes(dialog: Dialog) -> None:
    group = topic = dialog.name
    topic_id = dialog.create_topic(topic, 2)
    find_coordinator_of(dialog, group)
    for shape in odd_shapes(topic):
        commit(dialog, 9, group, *shape)
        committed(dialog, 8, group, wanted(topic, 0, 1))
    commit(dialog, 10, group, commits(topic_id, (0, 11), (0, 12)))
    commit(dialog, 10, group, commits(NO_SUCH_ID), commits(topic_id))
    commit(dialog, 10, group, commits(NO_SUCH_ID, (0, 1)), commits(topic_id, (1, 13), (7, 1)))
    commit(dialog, 10, group, commits(topic_id, (0, 14)), commits(topic_id, (1, 15)))
    committed(dialog, 10, group, wanted(topic_id, 0, 1))


@scenario
def offset_delete(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 3)
    find_coordinator_of(dialog, group)

    def delete(group: str, *topics: tuple[str, list[int]]) -> None:
        asked = [
            {"name": name, "partitions": [{"partition_index": index} for index in partitions]}
            for name, partitions in topics
        ]
        pending = dialog.on().send("offset_delete", 0, group_id=group, topics=asked)
        answer = pending.take()
        answer["topics"].sort(key=lambda each: each["name"])
        pending.write_down(answer)

    delete(group, (topic, [0]))
    commit(dialog, 8, group, commits(topic, (0, 5), (1, 6), (2, 7)))
    delete(group, (topic, [0]))
    delete(group, (topic, [0, 1, 9]), (f"{topic}-missing", [0]))
    delete(group)
    delete("", (topic, [0]))
    delete(group, (topic, []), (f"{topic}-missing", []))
    delete(group, (topic, [2, 2]), (topic, [9]))
    committed(dialog, 5, group, wanted(topic, 0, 1, 2))
    member = stable(dialog, group)["member_id"]
    delete(group, (topic, [2]))
    dialog.ask("leave_group", 0, group_id=group, member_id=member)
    delete(group, (topic, [2]))
    committed(dialog, 5, group, everything=True)


@scenario
def offsets_of_deleted_topics(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 1)
    dialog.create_topic(f"{topic}-kept", 1)
    find_coordinator_of(dialog, group)
    commit(dialog, 8, group, commits(topic, (0, 5)), commits(f"{topic}-kept", (0, 6)))
    dialog.ask("delete_topics", 6, topics=[{"name": topic}], timeout=30_000)
    dialog.eventually(lambda answer: len(answer["topics"]) == 1, "offset_fetch", 5, group_id=group, topics=None)
    committed(dialog, 5, group, wanted(topic, 0))
