"""Static members of classic groups: back under a new id without a rebalance, and fencing who still uses the old one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import StorageError
from tests.support.broker.group_desk import SUBSCRIBED_TO_T, GroupDesk

UNKNOWN_MEMBER, FENCED = 25, 82


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2)


def stable_statics(desk: GroupDesk, *instances: str) -> list[str]:
    joins = [desk.join("g", group_instance_id=instance) for instance in instances]
    desk.pass_time(0)
    members = [join.answer.member_id for join in joins]
    shares = {member: instance.encode() for member, instance in zip(members, instances, strict=True)}
    syncs = [
        desk.sync("g", member, 1, group_instance_id=instance, assignments=shares if member == members[0] else {})
        for member, instance in reversed(list(zip(members, instances, strict=True)))
    ]
    assert {sync.answer.error_code for sync in syncs} == {0}
    return members


def test_a_static_member_needs_no_id_first(desk: GroupDesk) -> None:
    (member,) = stable_statics(desk, "i")
    assert member.startswith("i-")
    assert desk.describe("g").members[0].group_instance_id == "i"
    assert desk.heartbeat("g", member, 1, "i") == 0
    assert desk.heartbeat("g", member, 1) == 0
    assert desk.heartbeat("g", "another", 1, "i") == FENCED
    assert desk.heartbeat("g", member, 1, "j") == UNKNOWN_MEMBER


def test_a_follower_that_comes_back_takes_its_place_without_a_rebalance(desk: GroupDesk) -> None:
    leader, follower = stable_statics(desk, "i", "j")
    back = desk.join("g", group_instance_id="j").answer
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, leader)
    assert (back.members, back.skip_assignment) == ((), False)
    assert back.member_id not in (leader, follower)
    assert desk.state("g") == "Stable"
    assert desk.sync("g", back.member_id, 1, group_instance_id="j").answer.assignment == b"j"
    assert desk.heartbeat("g", follower, 1, "j") == FENCED
    assert desk.heartbeat("g", follower, 1) == UNKNOWN_MEMBER
    assert desk.sync("g", follower, 1, group_instance_id="j").answer.error_code == FENCED
    assert desk.join("g", follower, group_instance_id="j").answer.error_code == FENCED
    assert desk.leave("g", (follower, "j")) == [FENCED]
    fenced = desk.commit("g", {("t", 0): 1}, member=follower, generation=1, group_instance_id="j")
    assert fenced == {("t", 0): FENCED}
    written = desk.records("g")[-1]["value"]
    assert {member["member_id"] for member in written["members"]} == {leader, back.member_id}


def test_a_returning_leader_gets_nothing_to_assign(desk: GroupDesk) -> None:
    stable_statics(desk, "i", "j")
    back = desk.join("g", group_instance_id="i").answer
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    assert desk.state("g") == "Stable"


def test_a_leader_whose_client_cannot_skip_assignments_is_not_named_leader(desk: GroupDesk) -> None:
    leader, _ = stable_statics(desk, "i", "j")
    back = desk.join("g", group_instance_id="i", version=5).answer
    assert (back.leader, back.members) == (leader, ())
    assert back.member_id != leader
    assert desk.classic_group("g").leader_id == back.member_id


def test_other_bytes_for_the_same_protocol_are_no_reason_to_rebalance_but_another_protocol_is(desk: GroupDesk) -> None:
    stable_statics(desk, "i")
    same: list[dict[str, Any]] = [{"name": "range", "metadata": SUBSCRIBED_TO_T + b"more"}]
    desk.join("g", group_instance_id="i", protocols=same)
    assert desk.state("g") == "Stable"
    assert desk.describe("g").members[0].member_metadata == SUBSCRIBED_TO_T + b"more"
    other = desk.join("g", group_instance_id="i", protocols=[{"name": "sticky", "metadata": b""}, *same]).answer
    assert (other.generation_id, other.protocol_name) == (2, "sticky")


def test_requests_that_wait_under_the_old_id_are_fenced(desk: GroupDesk) -> None:
    leader, _ = stable_statics(desk, "i", "j")
    old = desk.join("g", leader, group_instance_id="i")
    new = desk.join("g", group_instance_id="i")
    assert (old.answer.error_code, old.answer.member_id) == (FENCED, leader)
    assert not new.is_answered
    member = desk.classic_group("g").static_members["j"]
    desk.join("g", member, group_instance_id="j")
    follower_sync = desk.sync("g", member, 2, group_instance_id="j")
    desk.join("g", group_instance_id="j")
    assert follower_sync.answer.error_code == FENCED
    assert desk.state("g") == "PreparingRebalance"


def test_one_that_comes_back_while_a_generation_begins_makes_another(desk: GroupDesk) -> None:
    join = desk.join("g", group_instance_id="i")
    desk.pass_time(0)
    assert join.answer.generation_id == 1
    assert desk.join("g", group_instance_id="i").answer.generation_id == 2


def test_an_administrator_sends_static_members_away(desk: GroupDesk) -> None:
    leader, _ = stable_statics(desk, "i", "j")
    assert desk.leave("g", ("", "j"), ("", "j"), ("", "k")) == [0, UNKNOWN_MEMBER, UNKNOWN_MEMBER]
    assert desk.heartbeat("g", leader, 1, "i") == 27


def test_if_the_new_id_cannot_be_written_the_old_one_stays(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    (member,) = stable_statics(desk, "i")

    def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(desk.broker.partitions, "append_records", fail)
        refused = desk.join("g", group_instance_id="i", session_timeout=20_000).answer
    assert (refused.error_code, refused.member_id) == (16, "")
    assert desk.heartbeat("g", member, 1, "i") == 0
    assert desk.classic_group("g").members[member].session_timeout_ms == 10_000
    assert desk.sync("g", member, 1, group_instance_id="i").answer.assignment == b"i"
    assert desk.join("g", group_instance_id="i").answer.error_code == 0
