"""Finding, listing, describing and deleting groups, and the small parts that groups are made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.broker.groups.classic.protocol_votes import elect, hash_map_order
from duralog.broker.groups.consumer_protocol import subscribed_topics
from duralog.broker.groups.offsets.records import OffsetKey
from tests.support.broker.group_desk import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    SUBSCRIBED_TO_T,
    GroupDesk,
)

ALL_OPERATIONS = 3400
NOT_ASKED = -(2**31)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2)


@pytest.mark.parametrize("version", range(7))
def test_finding_the_coordinator(desk: GroupDesk, version: int) -> None:
    asked: dict[str, Any] = {"coordinator_keys": ["g", ""]} if version >= 4 else {"key": "g"}
    answer = desk.ask(FIND_COORDINATOR, version, key_type=0, **asked)
    node = desk.broker.node
    if version >= 4:
        assert [each.key for each in answer.coordinators] == ["g", ""]
    for each in answer.coordinators if version >= 4 else [answer]:
        assert (each.error_code, each.node_id, each.host, each.port) == (0, node.node_id, node.host, node.port)
    if 1 <= version <= 3:
        assert answer.error_message == "NONE"
    if version >= 1:
        for key_type in (2, 9):
            refused = desk.ask(FIND_COORDINATOR, version, key_type=key_type, **asked)
            assert version < 4 or len(refused.coordinators) == 2
            for each in refused.coordinators if version >= 4 else [refused]:
                assert (each.error_code, each.node_id, each.host, each.port) == (42, -1, "", -1)


def test_listing(desk: GroupDesk) -> None:
    desk.stable("stable")
    desk.commit("simple", {("t", 0): 1})
    desk.join("completing", desk.member_id("completing"))
    desk.pass_time(0)

    def listed(version: int = 5, **filters: list[str]) -> list[tuple[str, ...]]:
        answer = desk.ask(LIST_GROUPS, version, **filters)
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups]

    stable = ("stable", "consumer", "Stable", "classic")
    simple = ("simple", "", "Empty", "classic")
    completing = ("completing", "consumer", "CompletingRebalance", "classic")
    assert listed() == [stable, simple, completing]
    assert listed(states_filter=["STABLE", "empty"]) == [stable, simple]
    assert listed(states_filter=["CompletingRebalance"], types_filter=["Classic"]) == [completing]
    assert listed(types_filter=["consumer"]) == []
    assert listed(types_filter=["nonsense"]) == []
    assert listed(states_filter=["nonsense"]) == []
    for version in range(5):
        groups = desk.ask(LIST_GROUPS, version).groups
        assert [(each.group_id, each.protocol_type) for each in groups] == [
            each[:2] for each in (stable, simple, completing)
        ]


@pytest.mark.parametrize("version", range(7))
def test_describing(desk: GroupDesk, version: int) -> None:
    (member,) = desk.stable("g")
    answer = desk.ask(DESCRIBE_GROUPS, version, groups=["g", "none"], include_authorized_operations=True)
    known, unknown = answer.groups
    assert (known.error_code, known.group_state, known.protocol_data) == (0, "Stable", "range")
    (described,) = known.members
    assert (described.member_id, described.member_assignment) == (member, b"share 0")
    assert described.member_metadata == SUBSCRIBED_TO_T
    assert (unknown.error_code, unknown.group_state) == (69 if version >= 6 else 0, "Dead")
    if version >= 6:
        assert unknown.error_message == "Group none not found."
        assert unknown.authorized_operations == NOT_ASKED
    if version >= 3:
        assert known.authorized_operations == ALL_OPERATIONS
    desk.join("g", member)
    (described,) = desk.describe("g").members
    assert (described.member_metadata, described.member_assignment) == (b"", b"share 0")


def test_a_group_is_described_once_however_often_it_is_named(desk: GroupDesk) -> None:
    desk.stable("g")
    answer = desk.ask(DESCRIBE_GROUPS, 6, groups=["g", "none", "g", "g"], include_authorized_operations=False)
    assert [each.group_id for each in answer.groups] == ["g", "none"]


def test_deleting(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    desk.commit("g", {("t", 0): 1}, member=member, generation=1)
    pending = desk.member_id("h")

    def delete(*names: str, version: int = 2) -> list[tuple[str, int]]:
        results = desk.ask(DELETE_GROUPS, version, groups_names=list(names)).results
        return [(each.group_id, each.error_code) for each in results]

    assert delete("g", "none", "g", "") == [("g", 68), ("none", 69), ("", 69)]
    desk.leave("g", (member, None))
    assert delete("g", "h", version=0) == [("g", 0), ("h", 0)]
    assert desk.committed("g") == {}
    assert desk.join("h", pending).answer.error_code == 25
    desk.pass_time(20_000)
    assert not desk.groups.by_id


def test_many_offsets_are_deleted_in_batches_that_fit(desk: GroupDesk) -> None:
    """Not even long names make a batch that is larger than `max.message.bytes`."""
    group, topic = "g" * 400, "t" * 249
    desk.commit(group, {("t", 0): 1})
    known = desk.groups.offsets.of_group(group)["t"][0]
    for number in range(5_000):
        desk.groups.offsets.put(OffsetKey(group, topic, number), known)
    desk.groups.commits.delete_group(group)
    assert len(desk.groups.offsets) == 0
    assert desk.groups.by_id == {}
    assert len(desk.records(group)) == 5_003


def test_batches_fit_where_little_does(tmp_path: Path) -> None:
    with GroupDesk(tmp_path / "little", {"message.max.bytes": 1_000}) as desk:
        desk.with_topics(t=1).commit("g", {("t", 0): 1})
        known = desk.groups.offsets.of_group("g")["t"][0]
        for number in range(100):
            desk.groups.offsets.put(OffsetKey("g", "t", number), known)
        desk.groups.commits.delete_group("g")
        assert desk.groups.by_id == {}


def test_java_orders_its_tables_so() -> None:
    """As a Java program printed them."""
    assert hash_map_order(["range", "roundrobin", "sticky", "cooperative-sticky"]) == [
        "sticky",
        "range",
        "roundrobin",
        "cooperative-sticky",
    ]
    assert hash_map_order(["b", "a", "ä", "\N{GRINNING FACE}", "zzzz", "Aa", "BB", "AaAa", "BBBB", "AaBB"]) == [
        *("Aa", "BB", "a", "b", "ä", "\N{GRINNING FACE}", "zzzz", "AaAa", "BBBB", "AaBB")
    ]
    numbers = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 11, 14, 13]
    assert hash_map_order([f"n{number}" for number in range(15)]) == [f"n{number}" for number in numbers]


def test_a_tie_goes_to_the_first_of_the_table() -> None:
    ballots = [["range", "sticky"], ["sticky", "range"]]
    assert elect(ballots, {"range", "sticky"}) == "sticky"
    assert elect(ballots, {"range"}) == "range"
    assert elect([*ballots, ["range"]], {"range", "sticky"}) == "range"


def test_subscriptions_of_every_version_begin_alike() -> None:
    body = b"\0\0\0\2\0\1a\0\2bc" + b"\0\0\0\3xyz"
    for version in range(5):
        assert subscribed_topics(version.to_bytes(2) + body + b"whatever follows") == {"a", "bc"}
    assert subscribed_topics(b"\0\0\0\0\0\0\xff\xff\xff\xff") == frozenset()
    for end in range(2 + len(body)):
        assert subscribed_topics((b"\0\1" + body)[:end]) is None


@given(st.binary(max_size=64))
def test_what_is_no_subscription_is_none(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
