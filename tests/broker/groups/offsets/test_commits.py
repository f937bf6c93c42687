"""Committed offsets: who may commit, what is answered, what a fetch finds, and what goes with its topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from duralog.broker.groups.offsets.records import OffsetKey
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from tests.support.broker.group_desk import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, GroupDesk

UNKNOWN_TOPIC, TOO_LARGE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE = 3, 12, 22, 25, 27
NOT_FOUND, SUBSCRIBED, NON_EMPTY, UNKNOWN_ID = 69, 86, 68, 100


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2, u=1)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_in_every_version(desk: GroupDesk, version: int) -> None:
    answer = desk.commit("g", {("t", 0): 5, ("t", 9): 1, ("nope", 0): 1, ("t", 1): 2}, version=version, metadata="m")
    assert answer == {("t", 9): UNKNOWN_TOPIC, ("nope", 0): UNKNOWN_TOPIC, ("t", 0): 0, ("t", 1): 0}
    known = desk.groups.offsets.of_group("g")["t"]
    assert {number: (each.offset, each.metadata) for number, each in known.items()} == {0: (5, "m"), 1: (2, "m")}
    assert known[0].leader_epoch == (7 if version >= 6 else -1)
    assert known[0].topic_id == desk.topic_id("t")
    assert desk.classic_group("g").is_simple


@pytest.mark.parametrize("version", range(1, 10))
def test_a_fetch_in_every_version(desk: GroupDesk, version: int) -> None:
    desk.commit("g", {("t", 0): 5}, metadata="m")
    asked: dict[str, Any] = {
        "group_id": "g",
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"name": "t", "partition_indexes": [0, 1]}, {"name": "nope", "partition_indexes": [3]}],
    }
    fields = {"groups": [asked], "require_stable": True} if version >= 8 else {**asked, "require_stable": True}
    answer = desk.ask(OFFSET_FETCH, version, **fields)
    of_group = answer.groups[0] if version >= 8 else answer
    assert version < 2 or of_group.error_code == 0
    found = {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata, each.error_code)
        for topic in of_group.topics
        for each in topic.partitions
    }
    assert found == {("t", 0): (5, "m", 0), ("t", 1): (-1, "", 0), ("nope", 3): (-1, "", 0)}
    if version >= 5:
        assert [each.committed_leader_epoch for each in of_group.topics[0].partitions] == [7, -1]
    if version >= 2:
        asked["topics"] = None
        everything = desk.ask(OFFSET_FETCH, version, **({**fields, "groups": [asked]} if version >= 8 else asked))
        topics = (everything.groups[0] if version >= 8 else everything).topics
        assert [(topic.name, [each.committed_offset for each in topic.partitions]) for topic in topics] == [("t", [5])]


def test_offsets_are_answered_once_however_often_they_are_named(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5, ("t", 1): 6})
    whole = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
    one = {**whole, "topics": [{"name": "t", "partition_indexes": [0] * 100}]}
    answer = desk.ask(OFFSET_FETCH, 9, groups=[one, whole, whole, {**whole, "group_id": "h"}, whole])
    told = [
        (group.group_id, [each.partition_index for topic in group.topics for each in topic.partitions])
        for group in answer.groups
    ]
    assert told == [("g", [0]), ("g", [0, 1]), ("h", [])]


def test_topics_by_their_ids(desk: GroupDesk) -> None:
    stranger = UUID(int=77)
    known = desk.topic_id("t")

    def partition(number: int) -> dict[str, Any]:
        return {"partition_index": number, "committed_offset": 40 + number, "committed_metadata": None}

    committed = desk.ask(
        OFFSET_COMMIT,
        10,
        group_id="g",
        topics=[
            {"topic_id": stranger, "partitions": [partition(0), partition(1)]},
            {"topic_id": known, "partitions": [partition(1), partition(9)]},
            {"topic_id": None, "partitions": [partition(0)]},
        ],
    )
    assert [(topic.topic_id, [each.error_code for each in topic.partitions]) for topic in committed.topics] == [
        (stranger, [UNKNOWN_ID, UNKNOWN_ID]),
        (known, [UNKNOWN_TOPIC, 0]),
        (None, [UNKNOWN_ID]),
    ]
    asked: dict[str, Any] = {
        "group_id": "g",
        "topics": [
            {"topic_id": stranger, "partition_indexes": [0]},
            {"topic_id": known, "partition_indexes": [0, 1]},
        ],
    }
    fetched = desk.ask(OFFSET_FETCH, 10, groups=[asked, {"group_id": "g", "topics": None}])
    first, everything = fetched.groups
    assert [
        (topic.topic_id, [(each.committed_offset, each.error_code) for each in topic.partitions])
        for topic in first.topics
    ] == [(known, [(-1, 0), (41, 0)]), (stranger, [(-1, UNKNOWN_ID)])]
    assert [(topic.topic_id, len(topic.partitions)) for topic in everything.topics] == [(known, 1)]


def test_an_offset_of_a_topic_that_had_the_name_before_is_not_the_new_ones(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5})
    old = desk.topic_id("t")
    known = desk.groups.offsets.of_group("g")["t"][0]
    desk.delete_topic("t")
    assert desk.committed("g") == {}
    desk.with_topics(t=2)
    desk.groups.offsets.put(OffsetKey("g", "t", 0), known)
    assert desk.topic_id("t") != old
    asked = {"group_id": "g", "topics": [{"topic_id": desk.topic_id("t"), "partition_indexes": [0]}]}
    assert desk.ask(OFFSET_FETCH, 10, groups=[asked]).groups[0].topics[0].partitions[0].committed_offset == -1
    by_name = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    assert desk.ask(OFFSET_FETCH, 9, groups=[by_name]).groups[0].topics[0].partitions[0].committed_offset == 5


def test_members_commit_in_their_generation(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")

    def commit(**who: Any) -> int:
        (code,) = desk.commit("g", {("t", 0): 5}, **who).values()
        return code

    assert commit(member=member, generation=1) == 0
    assert commit(member=member, generation=2) == ILLEGAL_GENERATION
    assert commit(member=member, generation=-1) == ILLEGAL_GENERATION
    assert commit(member="nobody", generation=1) == UNKNOWN_MEMBER
    assert commit() == UNKNOWN_MEMBER
    assert commit(member=member, generation=1, group_instance_id="i") == UNKNOWN_MEMBER
    desk.join("g", member)
    assert commit(member=member, generation=2) == REBALANCE
    desk.leave("g", (member, None))
    assert commit(member=member, generation=2) == UNKNOWN_MEMBER
    assert commit() == 0
    assert commit(member="anybody", generation=-1) == 0


def test_a_group_that_is_not_there(desk: GroupDesk) -> None:
    assert desk.commit("none", {("t", 0): 5}, member="m", generation=1, version=8) == {("t", 0): ILLEGAL_GENERATION}
    assert desk.commit("none", {("t", 0): 5}, member="m", generation=1, version=9) == {("t", 0): NOT_FOUND}
    assert desk.committed("none") == {}
    assert not desk.groups.by_id
    assert desk.commit("", {("t", 0): 5}) == {("t", 0): 0}
    assert desk.committed("") == {("t", 0): 5}


def test_a_commit_is_a_sign_of_life(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    for _ in range(3):
        desk.pass_time(9000)
        desk.commit("g", {("t", 0): 5}, member=member, generation=1)
    assert desk.state("g") == "Stable"


def test_texts_that_are_too_long_are_refused_one_by_one(desk: GroupDesk) -> None:
    assert desk.commit("g", {("t", 0): 5}, metadata="x" * 4096) == {("t", 0): 0}
    assert desk.commit("h", {("t", 0): 5}, metadata="x" * 4097) == {("t", 0): TOO_LARGE}
    assert desk.commit("h", {("t", 0): 5}, metadata="\N{EURO SIGN}" * 4096) == {("t", 0): 0}
    assert desk.commit("h", {("t", 0): 5}, metadata="\N{GRINNING FACE}" * 2049) == {("t", 0): TOO_LARGE}
    with desk.restarted() as again:
        known = again.groups.offsets.of_group("h")["t"][0]
        assert known.metadata == "\N{EURO SIGN}" * 4096
        assert again.groups.offsets.of_group("g")["t"][0].metadata == "x" * 4096


def test_nothing_to_commit(desk: GroupDesk) -> None:
    assert desk.commit("g", {}) == {}
    assert not desk.groups.by_id


def test_deleting_offsets(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    desk.commit("g", {("t", 0): 5, ("u", 0): 6}, member=member, generation=1)

    def delete(group: str, **topics: list[int]) -> Any:
        asked = [
            {"name": name, "partitions": [{"partition_index": number} for number in numbers]}
            for name, numbers in topics.items()
        ]
        answer = desk.ask(OFFSET_DELETE, 0, group_id=group, topics=asked)
        codes = {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }
        return answer.error_code or codes

    assert delete("g", t=[0, 7], u=[0], nope=[1]) == {
        ("t", 7): UNKNOWN_TOPIC,
        ("nope", 1): UNKNOWN_TOPIC,
        ("t", 0): SUBSCRIBED,
        ("u", 0): 0,
    }
    assert desk.committed("g") == {("t", 0): 5}
    desk.leave("g", (member, None))
    assert delete("g", t=[0, 1]) == {("t", 0): 0, ("t", 1): 0}
    assert desk.committed("g") == {}
    assert delete("none", t=[0]) == NOT_FOUND
    assert delete("", t=[0]) == 24
    other = desk.member_id("connectors", protocol_type="connect")
    desk.join("connectors", other, protocol_type="connect")
    assert delete("connectors", t=[0]) == NON_EMPTY


def test_offsets_go_with_their_topic(desk: GroupDesk) -> None:
    desk.commit("g", {("t", 0): 5, ("u", 0): 6})
    desk.commit("h", {("t", 1): 7})
    desk.commit_in_transaction("h", {("t", 0): 8}, 50)
    desk.delete_topic("t")
    assert desk.committed("g") == {("u", 0): 6}
    assert desk.committed("h", stable=True) == {}
    desk.groups.complete_transaction(50, desk.groups.log.partition_for("h"), True)
    assert desk.committed("h") == {}
    with desk.restarted() as again:
        assert again.committed("g") == {("u", 0): 6}
        assert again.committed("h") == {}


def test_offsets_of_many_groups_go_some_at_a_time(desk: GroupDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.broker.groups.offsets.commits.GROUPS_PER_TURN", 2)
    groups = ["a", "b", "c", "d", "e"]
    for group in groups:
        desk.commit(group, {("t", 0): 5})
    desk.groups.commits.remove_topic("t", desk.topic_id("t"))
    assert [desk.committed(group) for group in groups] == [{}] * 2 + [{("t", 0): 5}] * 3
    # For a new topic of the name, before its turn has come.
    desk.commit("d", {("t", 0): 1})
    desk.pass_time(0)
    assert [desk.committed(group) for group in groups] == [{}, {}, {}, {("t", 0): 1}, {}]


def test_without_its_log_the_coordinator_knows_nothing(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    desk.commit("h", {("t", 0): 5})
    waiting = desk.join("g", member, protocols=[{"name": "range", "metadata": b"x"}, {"name": "y", "metadata": b""}])
    pending = desk.member_id("g")
    join = desk.join("g", pending)
    desk.delete_topic(CONSUMER_OFFSETS)
    assert waiting.answer.generation_id == 2
    assert join.answer.error_code == 16
    assert desk.join("g", member).answer.error_code == 16
    desk.with_topics()
    assert desk.committed("h") == {}
    assert desk.join("g", member).answer.error_code == 25
    assert len(desk.groups.offsets) == 0
