"""Classic groups come together: first joins, rebalances, who leads, and what ends the waiting. Time is the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker.group_desk import JOIN, LEAVE, SUBSCRIBED_TO_T, SYNC, GroupDesk

NewDesk = Callable[..., GroupDesk]


@pytest.fixture
def new_desk(tmp_path: Path) -> Iterator[NewDesk]:
    desks: list[GroupDesk] = []

    def new_desk(**configs: object) -> GroupDesk:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        desks.append(GroupDesk(tmp_path / f"data{len(desks)}", dotted).with_topics(t=2))
        return desks[-1]

    yield new_desk
    for desk in desks:
        desk.close()


@pytest.fixture
def desk(new_desk: NewDesk) -> GroupDesk:
    return new_desk()


def test_a_new_member_is_given_an_id_and_joins_with_it(desk: GroupDesk) -> None:
    member = desk.member_id("g")
    assert member.startswith("client-")
    assert len(member) == len("client-") + 36
    assert desk.state("g") == "Empty"
    join = desk.join("g", member)
    desk.pass_time(0)
    answer = join.answer
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, member)
    assert (answer.protocol_type, answer.protocol_name, answer.skip_assignment) == ("consumer", "range", False)
    assert [(each.member_id, each.metadata) for each in answer.members] == [(member, SUBSCRIBED_TO_T)]
    assert desk.state("g") == "CompletingRebalance"
    sync = desk.sync("g", member, 1, assignments={member: b"mine", "stranger": b"x"})
    assert sync.answer.assignment == b"mine"
    described = desk.describe("g")
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [
        (each.member_id, each.client_id, each.client_host, each.member_metadata, each.member_assignment)
        for each in described.members
    ] == [(member, "client", "/10.0.0.7", SUBSCRIBED_TO_T, b"mine")]


@pytest.mark.parametrize("version", range(10))
def test_a_life_in_every_version(desk: GroupDesk, version: int) -> None:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 20_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIBED_TO_T}],
        "reason": "because",
    }
    if version >= 4:
        asked = desk.ask(JOIN, version, **fields)
        assert (asked.error_code, asked.generation_id, asked.leader, asked.members) == (79, -1, "", ())
        assert asked.protocol_name == (None if version >= 7 else "")
        fields["member_id"] = asked.member_id
    join = desk.begin(JOIN, version, **fields)
    desk.pass_time(0)
    joined = join.answer
    member = joined.member_id
    assert (joined.error_code, joined.generation_id, joined.leader, joined.protocol_name) == (0, 1, member, "range")
    assert desk.classic_group("g").members[member].rebalance_timeout_ms == (20_000 if version else 10_000)
    sync_version = min(version, 5)
    synced = desk.sync("g", member, 1, version=sync_version, assignments={member: b"a"}).answer
    assert (synced.error_code, synced.assignment) == (0, b"a")
    heartbeat = {"group_id": "g", "generation_id": 1, "member_id": member, "group_instance_id": None}
    assert desk.ask(12, min(version, 4), **heartbeat).error_code == 0
    leave_version = min(version, 5)
    one = {"member_id": member} if leave_version < 3 else {}
    several = {"members": [{"member_id": member, "group_instance_id": None, "reason": None}]}
    assert desk.ask(LEAVE, leave_version, group_id="g", **(one or several)).error_code == 0
    assert desk.state("g") == "Empty"


def test_the_first_rebalance_waits_for_more_members_while_more_come(new_desk: NewDesk) -> None:
    desk = new_desk(group_initial_rebalance_delay_ms=3000)
    first, second, third = (desk.member_id("g") for _ in range(3))
    joins = [desk.join("g", first)]
    desk.pass_time(2900)
    joins.append(desk.join("g", second))
    desk.pass_time(100)
    assert not joins[0].is_answered
    desk.pass_time(2900)
    joins.append(desk.join("g", third))
    desk.pass_time(3000)
    assert not joins[0].is_answered
    desk.pass_time(100)
    assert [join.answer.generation_id for join in joins] == [1, 1, 1]
    assert [len(join.answer.members) for join in joins] == [3, 0, 0]


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout(new_desk: NewDesk) -> None:
    desk = new_desk(group_initial_rebalance_delay_ms=3000)
    members = [desk.member_id("g", session_timeout=60_000) for _ in range(4)]
    joins = [desk.join("g", members[0], session_timeout=60_000, rebalance_timeout=7000)]
    for member in members[1:]:
        desk.pass_time(2000)
        joins.append(desk.join("g", member, session_timeout=60_000, rebalance_timeout=7000))
    desk.pass_time(900)
    assert not any(join.is_answered for join in joins)
    desk.pass_time(100)
    assert {join.answer.generation_id for join in joins} == {1}


def test_one_who_was_given_an_id_is_waited_for_and_forgotten_after_the_session_timeout(desk: GroupDesk) -> None:
    (leader,) = desk.stable("g")
    pending = desk.member_id("g", session_timeout=8000)
    again = desk.join("g", leader, session_timeout=30_000)
    desk.pass_time(7900)
    assert not again.is_answered
    desk.pass_time(100)
    assert again.answer.generation_id == 2
    assert desk.join("g", pending).answer.error_code == 25


def test_members_join_again_when_another_comes(desk: GroupDesk) -> None:
    (first,) = desk.stable("g")
    second = desk.member_id("g")
    joins = [desk.join("g", second)]
    assert desk.state("g") == "PreparingRebalance"
    assert desk.heartbeat("g", first, 1) == 27
    assert desk.sync("g", first, 1).answer.error_code == 27
    joins.append(desk.join("g", first))
    assert [join.answer.generation_id for join in joins] == [2, 2]
    assert {join.answer.leader for join in joins} == {first}
    syncs = [desk.sync("g", second, 2)]
    assert not syncs[0].is_answered
    syncs.append(desk.sync("g", first, 2, assignments={first: b"1", second: b"2"}))
    assert [sync.answer.assignment for sync in syncs] == [b"2", b"1"]
    assert desk.heartbeat("g", first, 2) == 0


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out_and_another_leads(desk: GroupDesk) -> None:
    first, second = desk.stable("g", 2, session_timeout=300_000)
    join = desk.join("g", second, session_timeout=300_000, protocols=[{"name": "range", "metadata": b"other"}])
    desk.pass_time(59_900)
    assert not join.is_answered
    desk.pass_time(100)
    assert (join.answer.leader, [each.member_id for each in join.answer.members]) == (second, [second])
    assert desk.heartbeat("g", first, 1) == 25


def test_a_static_member_that_is_late_keeps_its_place(desk: GroupDesk) -> None:
    static = desk.join("g", group_instance_id="i", session_timeout=300_000)
    desk.pass_time(0)
    desk.sync("g", static.answer.member_id, 1, group_instance_id="i")
    dynamic = desk.member_id("g")
    join = desk.join("g", dynamic)
    desk.pass_time(60_000)
    assert join.answer.leader == dynamic
    assert {each.group_instance_id for each in join.answer.members} == {"i", None}


def test_a_member_without_heartbeats_is_out_after_its_session_timeout(desk: GroupDesk) -> None:
    first, second = desk.stable("g", 2)
    for _ in range(4):
        desk.pass_time(5000)
        desk.heartbeat("g", first, 1)
        if second in desk.classic_group("g").members:
            last_seen = desk.now_ms
    assert second not in desk.classic_group("g").members
    assert last_seen < desk.now_ms
    assert desk.heartbeat("g", first, 1) == 27
    assert desk.join("g", first).answer.generation_id == 2


def test_the_session_timeout_is_exact(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    desk.pass_time(5000)
    desk.heartbeat("g", member, 1)
    desk.pass_time(9900)
    assert desk.state("g") == "Stable"
    desk.pass_time(100)
    assert desk.state("g") == "Empty"


def test_who_waits_for_the_others_needs_no_heartbeats(desk: GroupDesk) -> None:
    first, second = desk.stable("g", 2)
    desk.heartbeat("g", second, 1)
    join = desk.join("g", first)
    for _ in range(6):
        desk.pass_time(8000)
        assert desk.heartbeat("g", second, 1) == 27
    assert not join.is_answered
    desk.join("g", second)
    assert join.answer.generation_id == 2
    desk.pass_time(9900)
    assert first in desk.classic_group("g").members


def test_a_first_join_does_not_wait_longer_than_five_minutes(desk: GroupDesk) -> None:
    (leader,) = desk.stable("g", rebalance_timeout=1_800_000, session_timeout=1_800_000)
    newcomer = desk.join("g", desk.member_id("g"))
    desk.pass_time(299_000)
    assert not newcomer.is_answered
    desk.heartbeat("g", leader, 1)
    desk.pass_time(1000)
    assert (newcomer.answer.error_code, newcomer.answer.member_id) == (25, "")


def test_a_member_that_does_not_ask_for_its_share_is_out(desk: GroupDesk) -> None:
    members = [desk.member_id("g", session_timeout=300_000) for _ in range(2)]
    joins = [desk.join("g", member, session_timeout=300_000) for member in members]
    desk.pass_time(0)
    desk.sync("g", members[0], 1, assignments={members[0]: b"all"})
    desk.pass_time(60_000)
    assert desk.state("g") == "PreparingRebalance"
    assert desk.heartbeat("g", members[1], 1) == 25
    assert {join.answer.generation_id for join in joins} == {1}
    assert desk.join("g", members[0]).answer.generation_id == 2


def test_a_leader_that_does_not_assign_is_out_and_the_others_join_again(desk: GroupDesk) -> None:
    leader, follower = (desk.member_id("g", session_timeout=300_000) for _ in range(2))
    for member in (leader, follower):
        desk.join("g", member, session_timeout=300_000)
    desk.pass_time(0)
    sync = desk.sync("g", follower, 1)
    desk.pass_time(60_000)
    assert sync.answer.error_code == 27
    assert desk.join("g", follower).answer.leader == follower


def test_a_rebalance_takes_back_what_was_not_assigned_yet(desk: GroupDesk) -> None:
    first, second = (desk.member_id("g") for _ in range(2))
    for member in (first, second):
        desk.join("g", member)
    desk.pass_time(0)
    sync = desk.sync("g", second, 1)
    desk.join("g", first, protocols=[{"name": "range", "metadata": b"changed"}])
    assert (sync.answer.error_code, sync.answer.assignment) == (27, b"")


def test_the_same_join_again_is_answered_with_what_is(desk: GroupDesk) -> None:
    leader, follower = desk.stable("g", 2)
    assert desk.join("g", follower).answer.generation_id == 1
    assert desk.sync("g", follower, 1).answer.assignment == b"share 1"
    assert desk.state("g") == "Stable"
    desk.join("g", leader)
    assert desk.state("g") == "PreparingRebalance"
    desk.join("g", follower)
    again = desk.join("g", leader).answer
    assert (again.generation_id, len(again.members)) == (2, 2)


def test_a_join_that_is_sent_twice_is_answered_twice(desk: GroupDesk) -> None:
    leader, _ = desk.stable("g", 2)
    first, second = desk.join("g", leader), desk.join("g", leader)
    assert first.answer.error_code == 27
    assert not second.is_answered


def test_a_sync_that_is_sent_twice_is_answered_twice(desk: GroupDesk) -> None:
    members = [desk.member_id("g") for _ in range(2)]
    for member in members:
        desk.join("g", member)
    desk.pass_time(0)
    first, second = (desk.sync("g", members[1], 1) for _ in range(2))
    assert first.answer.error_code == 27
    desk.sync("g", members[0], 1, assignments={members[1]: b"x"})
    assert second.answer.assignment == b"x"


def test_the_protocol_that_most_like_best_is_chosen_among_those_that_all_know(desk: GroupDesk) -> None:
    likes = (["b", "a", "c"], ["a", "b", "c"], ["c", "b", "a"], ["z", "b", "a"])
    joins = []
    for names in likes:
        protocols = [{"name": name, "metadata": name.encode()} for name in names]
        joins.append(desk.join("g", version=3, protocols=protocols))
    desk.pass_time(0)
    assert {join.answer.protocol_name for join in joins} == {"b"}
    assert [each.metadata for each in joins[0].answer.members] == [b"b"] * 4


def test_who_knows_no_common_protocol_may_not_join(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    other = [{"name": "other", "metadata": b""}]
    assert desk.join("g", protocols=other).answer.error_code == 23
    assert desk.join("g", member, protocols=other).answer.error_code == 23
    assert desk.join("g", protocol_type="connect").answer.error_code == 23
    assert desk.join("g", protocols=[]).answer.error_code == 23
    assert desk.sync("g", member, 1, protocol_name="other").answer.error_code == 23
    assert desk.sync("g", member, 1, protocol_type="connect").answer.error_code == 23
    assert desk.sync("g", member, 1, protocol_type=None).answer.error_code == 23
    assert desk.sync("g", member, 1, version=4).answer.error_code == 0


def test_a_join_that_is_refused_creates_no_group(desk: GroupDesk) -> None:
    assert desk.join("g", protocols=[]).answer.error_code == 23
    assert desk.join("g", protocol_type="").answer.error_code == 23
    assert desk.join("g", "somebody").answer.error_code == 25
    assert desk.join("").answer.error_code == 24
    assert desk.join("g", session_timeout=5999).answer.error_code == 26
    assert desk.join("g", session_timeout=1_800_001).answer.error_code == 26
    assert not desk.groups.by_id
    assert not desk.records()


def test_a_full_group_accepts_no_member(new_desk: NewDesk) -> None:
    desk = new_desk(group_max_size=2)
    first, second = desk.stable("g", 2)
    refused = desk.join("g").answer
    assert (refused.error_code, refused.member_id) == (81, "")
    assert desk.heartbeat("g", first, 1) == 0
    desk.leave("g", (second, None))
    third = desk.member_id("g")
    fourth = desk.member_id("g")
    joins = [desk.join("g", third), desk.join("g", first)]
    assert desk.join("g", fourth).answer.error_code == 81
    desk.pass_time(60_000)
    assert {join.answer.generation_id for join in joins} == {2}


def test_unused_ids_are_bounded(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.broker.groups.classic.groups.MOST_PENDING_MEMBERS", 3)
    given = [desk.member_id("g") for _ in range(5)]
    assert list(desk.classic_group("g").pending_members) == given[2:]
    assert desk.join("g", given[0]).answer.error_code == 25


def test_leaving(desk: GroupDesk) -> None:
    first, second = desk.stable("g", 2)
    pending = desk.member_id("g")
    assert desk.leave("g", ("nobody", None), ("", None), ("", "i"), (first, "i")) == [25, 25, 25, 25]
    assert desk.state("g") == "Stable"
    assert desk.leave("g", (pending, None), (second, None), (second, None)) == [0, 0, 25]
    assert desk.state("g") == "PreparingRebalance"
    assert desk.join("g", first).answer.generation_id == 2
    assert desk.leave("g", (first, None)) == [0]
    assert desk.state("g") == "Empty"
    assert desk.describe("g").protocol_type == "consumer"
    assert desk.leave("no group", (first, None)) == [25]
    assert desk.ask(LEAVE, 2, group_id="g", member_id=first).error_code == 25


def test_a_member_that_leaves_while_it_waits_gets_an_answer(desk: GroupDesk) -> None:
    first, _ = desk.stable("g", 2)
    join = desk.join("g", first)
    desk.leave("g", (first, None))
    assert join.answer.error_code == 25
    members = [desk.member_id("h") for _ in range(2)]
    for member in members:
        desk.join("h", member)
    desk.pass_time(0)
    sync = desk.sync("h", members[1], 1)
    desk.leave("h", (members[1], None))
    assert sync.answer.error_code == 25


def test_requests_of_strangers(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    assert [desk.heartbeat("g", member, generation) for generation in (0, 1, 2)] == [22, 0, 22]
    assert desk.heartbeat("g", "nobody", 1) == 25
    assert desk.heartbeat("g", member, 1, "no instance") == 25
    assert desk.heartbeat("none", member, 1) == 25
    assert desk.heartbeat("", member, 1) == 24
    assert desk.sync("g", member, 2).answer.error_code == 22
    assert desk.sync("g", "nobody", 1).answer.error_code == 25
    assert desk.sync("none", member, 1).answer.error_code == 25
    assert desk.sync("", member, 1).answer.error_code == 24
    desk.leave("g", (member, None))
    assert desk.sync("g", member, 2).answer.error_code == 25
    assert desk.heartbeat("g", member, 2) == 25
    assert desk.join("g", member).answer.error_code == 25


def test_before_there_is_a_log_members_have_to_ask_for_the_coordinator(tmp_path: Path) -> None:
    with GroupDesk(tmp_path / "data") as desk:
        assert desk.join("g").answer.error_code == 16
        assert desk.sync("g", "m", 1).answer.error_code == 16
        assert desk.heartbeat("g", "m", 1) == 16
        assert desk.ask(LEAVE, 5, group_id="g", members=[]).error_code == 16
        assert desk.ask(JOIN, 0, group_id="g", session_timeout=10_000, protocols=[]).error_code == 16
        found = desk.begin(10, 6, key_type=0, coordinator_keys=["g", "h"])
        while not found.is_answered:
            desk.broker.run_pending()
        assert [(each.key, each.error_code, each.node_id) for each in found.answer.coordinators] == [
            ("g", 0, 1),
            ("h", 0, 1),
        ]
        assert desk.join("g").answer.error_code == 79
        assert desk.ask(SYNC, 0, group_id="g", member_id="m", generation_id=1, assignments=[]).error_code == 25
