"""The classic group protocol: joining, syncing, heartbeats, leaving, and who gets told what."""

from __future__ import annotations

import struct
from typing import Any

from oracle.conformance.dialog import Dialog, Pending
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.wire import Fields

SUBSCRIPTION = struct.pack(">hih6si", 0, 1, 6, b"topics", -1)
"""To one topic. Not any bytes: Kafka 4.3.1 reads it when a member joins, and hangs on some that are wrong."""
RANGE = [{"name": "range", "metadata": SUBSCRIPTION}]
MEMBER_ID_REQUIRED = 79
JOIN_LAST, SYNC_LAST = 9, 5


def join(dialog: Dialog, version: int, group: str, member: str = "", on: str = "", **fields: Any) -> Pending:
    request = {
        "group_id": group,
        "session_timeout": 300_000,  # However slow the machine is.
        "rebalance_timeout": 300_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": RANGE,
    } | fields
    return dialog.on(on).send("join_group", version, **request)


def joined(dialog: Dialog, version: int, group: str, member: str = "", on: str = "", **fields: Any) -> Fields:
    """The answer to a join, after the second try that new versions ask for."""
    answer = ready(dialog, version, group, member, on, **fields)
    if answer["error_code"] == MEMBER_ID_REQUIRED:
        answer = join(dialog, version, group, answer["member_id"], on, **fields).receive()
    return answer


def ready(dialog: Dialog, version: int, group: str, member: str = "", on: str = "", **fields: Any) -> Fields:
    """The first answer of a coordinator that has loaded its partition."""
    find_coordinator_of(dialog, group)
    pending = join(dialog, version, group, member, on, **fields)
    return pending.receive()


def find_coordinator_of(dialog: Dialog, group: str) -> None:
    """Until the coordinator is there and has loaded the group's partition."""
    preparing = dialog.connection("preparing")
    for _ in dialog.tries():
        if preparing.ask("find_coordinator", 1, {"key": group})["error_code"] == 0:
            answer = preparing.ask("describe_groups", 0, {"groups": [group]})
            if answer["groups"][0]["error_code"] == 0:
                return


def sync(dialog: Dialog, version: int, group: str, member: Fields, on: str = "", **fields: Any) -> Pending:
    request = {
        "group_id": group,
        "generation_id": member["generation_id"],
        "member_id": member["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
    } | fields
    return dialog.on(on).send("sync_group", version, **request)


def assignment(*members: Fields) -> list[dict[str, Any]]:
    return [{"member_id": each["member_id"], "assignment": b"part %d" % n} for n, each in enumerate(members)]


def heartbeat(dialog: Dialog, version: int, group: str, member: str, generation: int, **fields: Any) -> Fields:
    return dialog.ask("heartbeat", version, group_id=group, member_id=member, generation_id=generation, **fields)


def stable(dialog: Dialog, group: str, **fields: Any) -> Fields:
    """A group with one member that has its assignment."""
    member = joined(dialog, JOIN_LAST, group, **fields)
    sync(dialog, SYNC_LAST, group, member, assignments=assignment(member)).receive()
    return member


@each_version(0, 6)
def find_coordinator(dialog: Dialog, version: int) -> None:
    api = "find_coordinator"
    name = dialog.name
    if version < 4:
        dialog.ask(api, version, key=name)
        dialog.ask(api, version, key="")
        if version >= 1:
            for kind in (1, 2, 7):
                dialog.ask(api, version, key=name, key_type=kind)
            dialog.ask(api, version, key="", key_type=1)
    else:
        dialog.ask(api, version, coordinator_keys=[f"{name}-b", f"{name}-a", ""])
        dialog.ask(api, version, key_type=1, coordinator_keys=[name, ""])
        dialog.ask(api, version, coordinator_keys=[])
        dialog.ask(api, version, coordinator_keys=[name, name])
        dialog.ask(api, version, key_type=7, coordinator_keys=[name])
        if version < 6:
            dialog.ask(api, version, key_type=2, coordinator_keys=[name])


@each_version(0, 9)
def join_group(dialog: Dialog, version: int) -> None:
    group = dialog.name
    member = joined(dialog, version, group)
    sync(dialog, min(version, SYNC_LAST), group, member, assignments=assignment(member)).receive()
    again = join(dialog, version, group, member["member_id"]).receive()
    sync(dialog, min(version, SYNC_LAST), group, again, assignments=assignment(again)).receive()


@each_version(0, 9)
def join_group_wrongly(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)
    join(dialog, version, "").receive()
    join(dialog, version, group, "nobody").receive()
    join(dialog, version, group, session_timeout=1).receive()
    join(dialog, version, group, session_timeout=1 << 30).receive()
    join(dialog, version, group, protocols=[]).receive()
    join(dialog, version, group, protocol_type="").receive()
    member = joined(dialog, version, group)
    join(dialog, version, group, "nobody").receive()
    join(dialog, version, group, on="other", protocols=[{"name": "other", "metadata": SUBSCRIPTION}]).receive()
    join(dialog, version, group, on="other", protocol_type="other").receive()
    heartbeat(dialog, 0, group, member["member_id"], member["generation_id"])


@each_version(0, 5)
def sync_group(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)
    nobody = {"generation_id": 1, "member_id": "nobody"}
    sync(dialog, version, group, nobody).receive()
    member = joined(dialog, JOIN_LAST, group)
    sync(dialog, version, group, nobody).receive()
    sync(dialog, version, group, member | {"generation_id": 7}).receive()
    sync(dialog, version, "", member).receive()
    if version == 5:
        sync(dialog, version, group, member, protocol_name="other").receive()
        sync(dialog, version, group, member, protocol_type="other").receive()
        sync(dialog, version, group, member, protocol_name=None, protocol_type=None).receive()
    sync(dialog, version, group, member, assignments=assignment(member)).receive()
    sync(dialog, version, group, member).receive()


@scenario
def sync_group_without_an_assignment(dialog: Dialog) -> None:
    group = dialog.name
    member = joined(dialog, JOIN_LAST, group)
    stranger = {"member_id": "stranger", "assignment": b"x"}
    sync(dialog, SYNC_LAST, group, member, assignments=[stranger]).receive()
    sync(dialog, SYNC_LAST, group, member).receive()


@each_version(0, 4)
def heartbeats(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)
    heartbeat(dialog, version, group, "nobody", 1)
    heartbeat(dialog, version, "", "nobody", 1)
    member = joined(dialog, JOIN_LAST, group)
    name, generation = member["member_id"], member["generation_id"]
    heartbeat(dialog, version, group, name, generation)
    sync(dialog, SYNC_LAST, group, member, assignments=assignment(member)).receive()
    heartbeat(dialog, version, group, name, generation)
    heartbeat(dialog, version, group, name, generation + 1)
    heartbeat(dialog, version, group, "nobody", generation)
    heartbeat(dialog, version, group, "", generation)
    if version >= 3:
        heartbeat(dialog, version, group, name, generation, group_instance_id="not-mine")


@each_version(0, 5)
def leave_group(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)

    def leave(*members: str, group_id: str = group, **fields: Any) -> None:
        asked = [{"member_id": each, "group_instance_id": None, "reason": "done"} for each in members]
        dialog.ask("leave_group", version, group_id=group_id, member_id=members[0], **{"members": asked} | fields)

    leave("nobody")
    leave("nobody", group_id="")
    member = stable(dialog, group)["member_id"]
    leave("nobody")
    leave(member)
    leave(member)
    if version >= 3:
        first = stable(dialog, f"{group}-many")["member_id"]
        leave(first, "nobody", first, group_id=f"{group}-many")
        leave("", members=[])
        leave("", members=[{"member_id": "", "group_instance_id": "nobody"}])


def told_to_rejoin(dialog: Dialog, group: str, member: Fields) -> None:
    dialog.eventually(
        lambda answer: answer["error_code"] == 27,
        "heartbeat", 4, group_id=group, member_id=member["member_id"], generation_id=member["generation_id"],
    )  # fmt: skip


@scenario
def rebalance_of_two(dialog: Dialog) -> None:
    """A second member joins, the first is told by its heartbeat, both sync, the second leaves."""
    group = dialog.name
    first = stable(dialog, group)
    asked = join(dialog, JOIN_LAST, group, on="second", protocols=RANGE).receive()
    waiting = join(dialog, JOIN_LAST, group, asked["member_id"], on="second")
    told_to_rejoin(dialog, group, first)
    again = join(dialog, JOIN_LAST, group, first["member_id"]).receive()
    second = waiting.receive()
    syncing = sync(dialog, SYNC_LAST, group, second, on="second")
    sync(dialog, SYNC_LAST, group, again, assignments=assignment(again, second)).receive()
    syncing.receive()
    describe(dialog, 6, group)
    heartbeat(dialog, 4, group, second["member_id"], second["generation_id"])
    dialog.ask(
        "leave_group", 5, group_id=group, members=[{"member_id": second["member_id"], "group_instance_id": None}]
    )
    heartbeat(dialog, 4, group, first["member_id"], again["generation_id"])
    describe(dialog, 6, group)
    alone = join(dialog, JOIN_LAST, group, first["member_id"]).receive()
    heartbeat(dialog, 4, group, first["member_id"], again["generation_id"])
    describe(dialog, 6, group)
    sync(dialog, SYNC_LAST, group, alone, assignments=assignment(alone)).receive()


@scenario
def protocols_that_members_agree_on(dialog: Dialog) -> None:
    group = dialog.name
    both = [{"name": "sticky", "metadata": SUBSCRIPTION}, {"name": "range", "metadata": SUBSCRIPTION}]
    first = joined(dialog, JOIN_LAST, group, protocols=both)
    asked = join(dialog, JOIN_LAST, group, on="second").receive()
    waiting = join(dialog, JOIN_LAST, group, asked["member_id"], on="second")
    told_to_rejoin(dialog, group, first)
    again = join(dialog, JOIN_LAST, group, first["member_id"], protocols=both).receive()
    waiting.receive()
    heartbeat(dialog, 4, group, again["member_id"], again["generation_id"])


@scenario
def static_members(dialog: Dialog) -> None:
    group = dialog.name
    first = stable(dialog, group, group_instance_id="one")
    describe(dialog, 5, group)
    member, generation = first["member_id"], first["generation_id"]
    heartbeat(dialog, 4, group, member, generation, group_instance_id="one")
    heartbeat(dialog, 4, group, member, generation, group_instance_id="two")
    heartbeat(dialog, 4, group, "nobody", generation, group_instance_id="one")
    restarted = join(dialog, JOIN_LAST, group, group_instance_id="one", on="restarted").receive()
    sync(dialog, SYNC_LAST, group, restarted, group_instance_id="one").receive()
    heartbeat(dialog, 4, group, member, generation, group_instance_id="one")
    sync(dialog, SYNC_LAST, group, first, group_instance_id="one").receive()
    join(dialog, JOIN_LAST, group, member, group_instance_id="one").receive()
    dialog.ask("leave_group", 5, group_id=group, members=[{"member_id": member, "group_instance_id": "one"}])
    dialog.ask("leave_group", 5, group_id=group, members=[{"member_id": "", "group_instance_id": "one"}])
    describe(dialog, 6, group)


def describe(dialog: Dialog, version: int, *groups: str, **fields: Any) -> Fields:
    pending = dialog.on().send("describe_groups", version, groups=list(groups), **fields)
    answer = pending.take()
    answer["groups"].sort(key=lambda each: each["group_id"])
    pending.write_down(answer)
    return answer


@each_version(0, 6)
def describe_groups(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)
    describe(dialog, version, group, f"{group}-missing", "")
    describe(dialog, version)
    member = joined(dialog, JOIN_LAST, group)
    describe(dialog, version, group)
    sync(dialog, SYNC_LAST, group, member, assignments=assignment(member)).receive()
    describe(dialog, version, group)
    describe(dialog, version, group, group)
    dialog.ask("leave_group", 0, group_id=group, member_id=member["member_id"])
    describe(dialog, version, group)
    if version >= 3:
        describe(dialog, version, group, include_authorized_operations=True)


@each_version(0, 5)
def list_groups(dialog: Dialog, version: int) -> None:
    group = dialog.name
    stable(dialog, f"{group}-stable")
    member = stable(dialog, f"{group}-empty")["member_id"]
    dialog.ask("leave_group", 0, group_id=f"{group}-empty", member_id=member)

    def listed(**fields: Any) -> None:
        dialog.versions_asked.add(("list_groups", version))
        answer = dialog.connection("").ask("list_groups", version, fields)
        own = sorted(
            (each for each in answer["groups"] if each["group_id"].startswith(group)), key=lambda each: each["group_id"]
        )
        dialog.note(f"list_groups v{version} {fields}", answer | {"groups": own})

    listed()
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty", "Dead"], ["Nonsense"], []):
            listed(states_filter=states)
    if version >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["Nonsense"]):
            listed(types_filter=types)
        listed(states_filter=["Stable"], types_filter=["classic"])


@each_version(0, 2)
def delete_groups(dialog: Dialog, version: int) -> None:
    group = dialog.name
    find_coordinator_of(dialog, group)

    def delete(*groups: str) -> None:
        pending = dialog.on().send("delete_groups", version, groups_names=list(groups))
        answer = pending.take()
        answer["results"].sort(key=lambda each: each["group_id"])
        pending.write_down(answer)

    delete(f"{group}-missing", "")
    member = stable(dialog, group)["member_id"]
    delete(group)
    dialog.ask("leave_group", 0, group_id=group, member_id=member)
    delete(group, group)
    delete(group)
    delete()
    describe(dialog, 6, group)
