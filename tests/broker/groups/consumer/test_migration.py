"""Groups with members of both protocols: classic groups that become consumer groups, and back. On a real log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.wire.error_codes import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from duralog.format.internal.embedded_protocol import ASSIGNMENT, SUBSCRIPTION, decode_embedded, encode_embedded
from tests.support.broker.group_desk import HEARTBEAT, JOIN, LEAVE, OFFSET_COMMIT, SYNC, GroupDesk

CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
Partitions = Iterable[tuple[str, Iterable[int]]]


def subscription(topics: Iterable[str], owned: Partitions = ()) -> bytes:
    fields = {
        "topics": list(topics),
        "user_data": None,
        "owned_partitions": [{"topic": topic, "partitions": list(numbers)} for topic, numbers in owned],
        "generation_id": -1,
        "rack_id": None,
    }
    return encode_embedded(SUBSCRIPTION, 3, fields)


def assignment(partitions: Partitions, user_data: bytes | None = None) -> bytes:
    assigned = [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions]
    return encode_embedded(ASSIGNMENT, 1, {"assigned_partitions": assigned, "user_data": user_data})


class Classic:
    """A consumer that speaks the classic protocol."""

    def __init__(self, desk: GroupDesk, instance_id: str | None = None, group_id: str = "g") -> None:
        self.desk = desk
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def begin_join(self, topics: Iterable[str] = ("t",), owned: Partitions = (), **more: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(topics, owned)}],
            "reason": None,
        }
        return self.desk.begin(JOIN, 9, **{**fields, **more})

    def take(self, answer: Any) -> Any:
        if answer.error_code in (NONE, MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error_code == NONE:
            self.generation = answer.generation_id
        return answer

    def join(self, topics: Iterable[str] = ("t",), owned: Partitions = (), **more: Any) -> Any:
        answer = self._join_once(topics, owned, **more)
        return answer if answer.error_code != MEMBER_ID_REQUIRED else self._join_once(topics, owned, **more)

    def _join_once(self, topics: Iterable[str], owned: Partitions, **more: Any) -> Any:
        waiting = self.begin_join(topics, owned, **more)
        self.desk.pass_time(0)
        return self.take(waiting.answer)

    def sync(self, **more: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }
        return self.desk.begin(SYNC, 5, **{**fields, **more}).answer

    def assigned(self) -> dict[str, set[int]]:
        answer = self.sync()
        assert answer.error_code == NONE
        found = decode_embedded(ASSIGNMENT, answer.assignment)["assigned_partitions"]
        return {each["topic"]: set(each["partitions"]) for each in found}

    def heartbeat(self, **more: Any) -> int:
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        code: int = self.desk.begin(HEARTBEAT, 4, **{**fields, **more}).answer.error_code
        return code

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        leaving = members or ((self.member_id, self.instance_id),)
        listed = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in leaving]
        answer = self.desk.begin(LEAVE, 5, group_id=self.group_id, members=listed).answer
        return [member.error_code for member in answer.members]

    def commit(self, generation: int) -> list[int]:
        partitions = [
            {"partition_index": number, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
            for number in (0, 3)
        ]
        answer = self.desk.begin(
            OFFSET_COMMIT,
            9,
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[{"name": "t", "partitions": partitions}],
        ).answer
        return [partition.error_code for topic in answer.topics for partition in topic.partitions]

    def lead(self, *partitions: tuple[str, Iterable[int]]) -> None:
        """Form a group of one."""
        assert self.join().error_code == NONE
        given = [{"member_id": self.member_id, "assignment": assignment(partitions)}]
        assert self.sync(assignments=given).error_code == NONE


def heartbeat(desk: GroupDesk, member_id: str, epoch: int, **more: Any) -> Any:
    fields = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topic_partitions": None, **more}
    return desk.begin(CONSUMER_HEARTBEAT, 1, **fields).answer


def join(desk: GroupDesk, member_id: str, *topics: str, **more: Any) -> Any:
    fields = {"rebalance_timeout_ms": 20_000, "topic_partitions": [], "subscribed_topic_names": list(topics), **more}
    return heartbeat(desk, member_id, 0, **fields)


def given(answer: Any) -> set[int] | None:
    """The partitions of an assignment of one topic or none."""
    if answer.assignment is None:
        return None
    return {number for topic in answer.assignment.topic_partitions for number in topic.partitions}


def describe(desk: GroupDesk) -> Any:
    return desk.begin(CONSUMER_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False).answer.groups[0]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data", {"group.consumer.assignment.interval.ms": 0}) as desk:
        yield desk.with_topics(t=4)


def test_a_classic_group_becomes_a_consumer_group_and_hands_over(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    joined = join(desk, "new", "t")
    assert (joined.error_code, joined.member_epoch, given(joined)) == (NONE, 2, set())
    described = describe(desk)
    assert {member.member_id: member.member_type for member in described.members} == {"new": 1, old.member_id: 0}
    assert (described.group_state, described.group_epoch) == ("Reconciling", 2)

    assert old.commit(1) == [NONE, NONE]
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert old.sync().error_code == REBALANCE_IN_PROGRESS
    assert old.join(owned=[("t", range(4))]).generation_id == 1
    assert old.assigned() == {"t": {0, 1}}
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert given(heartbeat(desk, "new", 2)) is None
    again = old.join(owned=[("t", [0, 1])])
    assert (again.generation_id, again.protocol_name, again.leader, again.members) == (2, "range", "", ())
    assert old.assigned() == {"t": {0, 1}}
    assert old.heartbeat() == NONE
    assert given(heartbeat(desk, "new", 2)) == {2, 3}
    assert describe(desk).group_state == "Stable"
    assert old.commit(2) == [NONE, NONE]
    # Version 9 names no topic ids, so that what the member owned in which epoch cannot be looked up: as in Kafka.
    assert old.commit(1) == [ILLEGAL_GENERATION, ILLEGAL_GENERATION]
    assert old.commit(3) == [ILLEGAL_GENERATION, ILLEGAL_GENERATION]


def test_requests_that_waited_in_the_classic_group_are_answered_to_join_again(desk: GroupDesk) -> None:
    first, second = Classic(desk), Classic(desk)
    first.lead(("t", range(4)))
    second.take(second.begin_join().answer)
    waiting = second.begin_join()
    assert not waiting.is_answered
    assert join(desk, "new", "t").error_code == NONE
    assert waiting.answer.error_code == REBALANCE_IN_PROGRESS


def test_the_group_is_a_classic_one_again_when_the_last_new_member_left(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    join(desk, "new", "t")
    assert old.join(owned=[("t", range(4))]).error_code == NONE
    assert old.join(owned=[("t", [0, 1])]).error_code == NONE
    assert heartbeat(desk, "new", -1).error_code == NONE
    assert describe(desk).error_message == "Group g is not a consumer group."
    assert (desk.groups.by_id["g"].kind, desk.groups.by_id["g"].state) == ("classic", "PreparingRebalance")
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    rejoined = old.join()
    assert (rejoined.error_code, rejoined.generation_id, rejoined.leader) == (NONE, 3, old.member_id)


def test_a_new_member_that_is_silent_leaves_a_classic_group_behind(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    join(desk, "new", "t")
    old.join(owned=[("t", range(4))])
    for _ in range(9):
        desk.pass_time(5_000)
        old.join(owned=[("t", [0, 1])])
        old.sync()
    assert desk.groups.by_id["g"].kind == "classic"


def test_a_group_of_both_kinds_of_members_outlives_a_restart(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    join(desk, "new", "t")
    before = describe(desk)
    with desk.restarted() as restarted:
        assert describe(restarted) == before
        old.desk = restarted
        assert old.heartbeat() == REBALANCE_IN_PROGRESS
        restarted.pass_time(10_001)
        assert [member.member_id for member in describe(restarted).members] == ["new"]


def test_a_group_outlives_a_crash_at_any_step(desk: GroupDesk, tmp_path: Path) -> None:
    """What was answered is in the log: a broker that is killed right after has the same state."""
    old = Classic(desk)
    old.lead(("t", range(4)))
    steps = (
        lambda: join(desk, "new", "t"),
        lambda: old.join(owned=[("t", range(4))]),
        lambda: old.join(owned=[("t", [0, 1])]),
        lambda: heartbeat(desk, "new", 2),
        lambda: join(desk, "static", "t", instance_id="i"),
        lambda: heartbeat(desk, "static", -2, instance_id="i"),
        lambda: old.leave(),
    )
    for number, step in enumerate(steps):
        step()
        with desk.crashed(tmp_path / f"crash-{number}") as restarted:
            assert describe(restarted) == describe(desk)


def test_what_a_restart_finds_after_a_group_became_classic_again(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    join(desk, "new", "t")
    heartbeat(desk, "new", -1)
    with desk.restarted() as restarted:
        group = restarted.groups.by_id["g"]
        assert (group.kind, group.state) == ("classic", "Stable")
        old.desk = restarted
        old.generation = 2
        assert old.heartbeat() == NONE


def test_a_member_that_does_not_join_again_in_time_is_out(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.lead(("t", range(4)))
    join(desk, "new", "t")
    for _ in range(4):
        assert old.heartbeat() == REBALANCE_IN_PROGRESS
        desk.pass_time(4_999)
        heartbeat(desk, "new", 2)
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    desk.pass_time(100)
    assert old.heartbeat() == UNKNOWN_MEMBER_ID
    assert given(heartbeat(desk, "new", 2)) == {0, 1, 2, 3}


def test_a_member_that_does_not_ask_for_its_assignment_in_time_is_out(desk: GroupDesk) -> None:
    join(desk, "new", "t")
    old = Classic(desk)
    assert old.join().error_code == NONE
    for _ in range(4):
        desk.pass_time(4_999)
        assert old.heartbeat() == NONE
        heartbeat(desk, "new", 2)
    desk.pass_time(100)
    assert old.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_classic_member_joins_a_consumer_group(desk: GroupDesk) -> None:
    join(desk, "new", "t")
    old = Classic(desk)
    asked_back = old.take(old.begin_join().answer)
    assert (asked_back.error_code, asked_back.generation_id) == (MEMBER_ID_REQUIRED, -1)
    assert len(describe(desk).members) == 1
    assert old.join().generation_id == 3
    assert old.assigned() == {}
    assert old.heartbeat() == NONE
    topic = desk.broker.topics.by_name("t")
    assert topic is not None
    heartbeat(desk, "new", 2)
    heartbeat(desk, "new", 2, topic_partitions=[{"topic_id": topic.topic_id, "partitions": [0, 1]}])
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert old.join().generation_id == 3
    assert old.assigned() == {"t": {2, 3}}


def test_classic_members_of_a_consumer_group_need_a_protocol_in_common(desk: GroupDesk) -> None:
    join(desk, "new", "t")
    old, other = Classic(desk), Classic(desk)
    assert old.join().error_code == NONE
    metadata = subscription(["t"])
    nothing_in_common: list[dict[str, Any]] = [
        {"protocols": [{"name": "sticky", "metadata": metadata}]},
        {"protocols": []},
        {"protocol_type": "connect"},
    ]
    for more in nothing_in_common:
        assert other.join(**more).error_code == INCONSISTENT_GROUP_PROTOCOL
    both = [{"name": "sticky", "metadata": metadata}, {"name": "range", "metadata": metadata}]
    joined = other.join(protocols=both)
    assert (joined.error_code, joined.protocol_name) == (NONE, "sticky")
    assert other.join(protocols=[{"name": "range", "metadata": b"\0"}]).error_code == UNKNOWN_SERVER_ERROR


def test_requests_that_are_refused(desk: GroupDesk) -> None:
    join(desk, "new", "t")
    old = Classic(desk)
    old.join()
    assert old.heartbeat(generation_id=7) == ILLEGAL_GENERATION
    assert old.heartbeat(member_id="nobody") == UNKNOWN_MEMBER_ID
    assert old.heartbeat(member_id="new", generation_id=2) == UNKNOWN_MEMBER_ID
    assert old.heartbeat(group_instance_id="nobody") == UNKNOWN_MEMBER_ID
    assert old.sync(generation_id=7).error_code == ILLEGAL_GENERATION
    assert old.sync(protocol_name="sticky").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert old.sync(protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert old.sync(member_id="nobody").error_code == UNKNOWN_MEMBER_ID
    assert old.leave(("nobody", None), ("", "nobody"), (old.member_id, "nobody")) == [UNKNOWN_MEMBER_ID] * 3
    assert old.leave() == [NONE]
    assert [member.member_id for member in describe(desk).members] == ["new"]


def test_static_members_take_each_others_place(desk: GroupDesk) -> None:
    old = Classic(desk, "one")
    old.lead(("t", range(4)))
    taken = join(desk, "new", "t", instance_id="one")
    assert (taken.error_code, taken.member_epoch, given(taken)) == (NONE, 1, {0, 1, 2, 3})
    assert old.heartbeat() == FENCED_INSTANCE_ID
    assert old.sync().error_code == FENCED_INSTANCE_ID
    assert old.join().error_code == FENCED_INSTANCE_ID
    back = Classic(desk, "one")
    assert back.join().generation_id == 1
    assert (desk.groups.by_id["g"].kind, desk.groups.by_id["g"].state) == ("classic", "Stable")
    assert back.assigned() == {"t": {0, 1, 2, 3}}
    assert back.heartbeat() == NONE


def test_a_static_member_that_comes_back_with_other_topics_makes_the_classic_group_rebalance(desk: GroupDesk) -> None:
    join(desk, "new", "t", instance_id="one")
    heartbeat(desk, "new", -2, instance_id="one")
    back = Classic(desk, "one")
    assert back.join(["t", "u"]).generation_id == 0
    assert (desk.groups.by_id["g"].kind, desk.groups.by_id["g"].state) == ("classic", "PreparingRebalance")
    assert back.sync().error_code == ILLEGAL_GENERATION


def test_an_administrator_sends_static_members_away(desk: GroupDesk) -> None:
    join(desk, "new", "t", instance_id="one")
    join(desk, "other", "t", instance_id="two")
    assert Classic(desk).leave(("", "one"), ("x", "two"), ("", "three")) == [
        NONE,
        FENCED_INSTANCE_ID,
        UNKNOWN_MEMBER_ID,
    ]
    assert [member.member_id for member in describe(desk).members] == ["other"]


@pytest.mark.parametrize(
    ("protocol_type", "user_data", "reason"),
    [
        ("connect", None, "the group does not use the consumer embedded protocol"),
        (
            "consumer",
            b"x",
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade",
        ),
    ],
)
def test_classic_groups_that_cannot_change(
    desk: GroupDesk, protocol_type: str, user_data: bytes | None, reason: str
) -> None:
    old = Classic(desk)
    old.join(protocol_type=protocol_type)
    parts = [{"member_id": old.member_id, "assignment": assignment([("t", [0])], user_data)}]
    assert old.sync(assignments=parts, protocol_type=protocol_type).error_code == NONE
    refused = join(desk, "new", "t")
    assert refused.error_code == GROUP_ID_NOT_FOUND
    assert refused.error_message == f"Cannot upgrade classic group g to consumer group because {reason}."
    assert old.heartbeat() == NONE


def test_a_group_whose_bytes_are_no_consumers_cannot_change(desk: GroupDesk) -> None:
    old = Classic(desk)
    old.join(protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\7"}])
    refused = join(desk, "new", "t")
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because the embedded consumer protocol is malformed."
    )


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "Bidirectional"])
def test_the_policy_says_what_may_change(tmp_path: Path, policy: str) -> None:
    configs = {"group.consumer.migration.policy": policy, "group.consumer.assignment.interval.ms": 0}
    may_upgrade = policy in ("upgrade", "Bidirectional")
    may_downgrade = policy in ("downgrade", "Bidirectional")
    with GroupDesk(tmp_path / "data", configs) as desk:
        desk.with_topics(t=4)
        old = Classic(desk, group_id="h")
        old.lead(("t", range(4)))
        answer = join(desk, "new", "t", group_id="h")
        assert answer.error_code == (NONE if may_upgrade else GROUP_ID_NOT_FOUND)
        if not may_upgrade:
            assert answer.error_message == (
                "Cannot upgrade classic group h to consumer group because online upgrade is disabled."
            )
        join(desk, "new", "t")
        classic = Classic(desk)
        assert classic.join().error_code == (INCONSISTENT_GROUP_PROTOCOL if policy == "disabled" else NONE)
        heartbeat(desk, "new", -1)
        assert desk.groups.by_id["g"].kind == ("classic" if may_downgrade else "consumer")


def test_empty_groups_change_whatever_the_policy_says(tmp_path: Path) -> None:
    with GroupDesk(tmp_path / "data", {"group.consumer.migration.policy": "disabled"}) as desk:
        desk.with_topics(t=4)
        old = Classic(desk)
        old.lead(("t", range(4)))
        assert old.commit(1) == [NONE, NONE]
        assert old.leave() == [NONE]
        assert join(desk, "new", "t").error_code == NONE
        assert desk.groups.by_id["g"].kind == "consumer"
        heartbeat(desk, "new", -1)
        back = Classic(desk)
        assert back.join().error_code == NONE
        assert desk.groups.by_id["g"].kind == "classic"
        assert len(list(desk.groups.offsets.keys_of_group("g"))) == 2


def test_a_group_that_cannot_be_a_classic_one_lets_its_members_go_all_the_same(desk: GroupDesk) -> None:
    """Of a member's protocols, only the first was read when it joined; the group would use the second."""
    assert join(desk, "new", "t").error_code == NONE
    good = subscription(["t"])
    odd, *others = Classic(desk), Classic(desk), Classic(desk)
    protocols = [{"name": "range", "metadata": good}, {"name": "roundrobin", "metadata": b""}]
    assert odd.join(protocols=protocols).error_code == NONE
    for other in others:
        protocols = [{"name": name, "metadata": good} for name in ("roundrobin", "range")]
        assert other.join(protocols=protocols).error_code == NONE
    assert heartbeat(desk, "new", -1).error_code == NONE
    group = desk.groups.by_id["g"]
    assert group.kind == "consumer"
    assert heartbeat(desk, "new", 1).error_code == UNKNOWN_MEMBER_ID


def test_a_classic_group_that_has_no_protocol_yet_becomes_a_consumer_group(tmp_path: Path) -> None:
    configs = {"group.consumer.assignment.interval.ms": 0, "group.initial.rebalance.delay.ms": 3_000}
    with GroupDesk(tmp_path / "data", configs) as desk:
        desk.with_topics(t=4)
        classic = Classic(desk)
        classic.take(classic.begin_join().answer)
        waiting = classic.begin_join()
        joined = join(desk, "new", "t")
        assert (joined.error_code, waiting.answer.error_code) == (NONE, REBALANCE_IN_PROGRESS)
        assert classic.join().error_code == NONE
        assert classic.assigned() == {"t": {0, 1}}
        assert [set(topic.partitions) for topic in joined.assignment.topic_partitions] == [{2, 3}]
        assert desk.groups.by_id["g"].state == "Stable"


def test_a_member_that_does_not_know_the_old_protocol_comes_along(desk: GroupDesk) -> None:
    first, second = Classic(desk), Classic(desk)
    both = [{"name": name, "metadata": subscription(["t"])} for name in ("range", "roundrobin")]
    assert first.join(protocols=both).error_code == NONE
    first.sync(assignments=[{"member_id": first.member_id, "assignment": assignment([("t", range(4))])}])
    second.take(second.begin_join(protocols=both[1:]).answer)
    waiting = second.begin_join(protocols=both[1:])
    assert desk.state("g") == "PreparingRebalance"
    assert join(desk, "new", "t").error_code == NONE
    assert waiting.answer.error_code == REBALANCE_IN_PROGRESS
    described = desk.ask(CONSUMER_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False).groups[0]
    assert {member.member_id for member in described.members} == {first.member_id, second.member_id, "new"}
