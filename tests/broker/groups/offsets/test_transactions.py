"""Offsets that are committed within transactions: pending until the marker, also over a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey
from duralog.broker.groups.offsets.table import OffsetTable
from duralog.broker.groups.refusal import GroupRefusal
from tests.support.broker.group_desk import OFFSET_DELETE, GroupDesk

UNKNOWN_ERROR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, UNSTABLE = -1, 22, 25, 88


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[GroupDesk]:
    with GroupDesk(tmp_path / "data") as desk:
        yield desk.with_topics(t=2, u=1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restart", ["none", "before the end", "after the end"])
def test_offsets_of_a_transaction_wait_for_its_end(desk: GroupDesk, tmp_path: Path, commit: bool, restart: str) -> None:
    desk.commit("g", {("t", 0): 1})
    assert desk.commit_in_transaction("g", {("t", 0): 10, ("t", 1): 11}, 50) == {("t", 0): 0, ("t", 1): 0}
    if restart == "before the end":
        desk = desk.crashed(tmp_path / "copy")
    assert desk.committed("g") == {("t", 0): 1}
    assert desk.committed("g", stable=True) == {("t", 0): -UNSTABLE}
    desk.end_transaction("g", 50, commit=commit)
    if restart == "after the end":
        desk = desk.crashed(tmp_path / "copy")
    assert desk.committed("g", stable=True) == ({("t", 0): 10, ("t", 1): 11} if commit else {("t", 0): 1})
    if restart != "none":
        desk.close()


def test_what_was_committed_later_without_a_transaction_stays(desk: GroupDesk, tmp_path: Path) -> None:
    desk.commit_in_transaction("g", {("t", 0): 10, ("t", 1): 11}, 50)
    desk.commit("g", {("t", 0): 20})
    desk.end_transaction("g", 50, commit=True)
    assert desk.committed("g") == {("t", 0): 20, ("t", 1): 11}
    with desk.crashed(tmp_path / "copy") as again:
        assert again.committed("g") == {("t", 0): 20, ("t", 1): 11}


def test_transactions_of_several_producers_and_groups(desk: GroupDesk, tmp_path: Path) -> None:
    groups = ["a", "b", "c", "d"]
    for place, group in enumerate(groups):
        desk.commit_in_transaction(group, {("t", 0): place}, 50)
        desk.commit_in_transaction(group, {("t", 0): 100 + place}, 60)
    for group in groups:
        assert desk.committed(group, stable=True) == {}
    numbers = {desk.groups.log.partition_for(group) for group in groups}
    for number in numbers:
        desk.groups.complete_transaction(50, number, True)
    assert [desk.committed(group) for group in groups] == [{("t", 0): place} for place in range(4)]
    assert [desk.committed(group, stable=True) for group in groups] == [{("t", 0): -UNSTABLE}] * 4
    for number in numbers:
        desk.groups.complete_transaction(60, number, False)
    assert [desk.committed(group, stable=True) for group in groups] == [{("t", 0): place} for place in range(4)]


def test_a_tombstone_takes_pending_offsets_too(desk: GroupDesk, tmp_path: Path) -> None:
    desk.commit_in_transaction("g", {("t", 0): 10, ("u", 0): 11}, 50)
    asked = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    desk.ask(OFFSET_DELETE, 0, group_id="g", topics=asked)
    with desk.crashed(tmp_path / "copy") as again:
        for each in (desk, again):
            each.end_transaction("g", 50, commit=True)
            assert each.committed("g") == {("u", 0): 11}


def test_what_is_aborted_in_many_topics_takes_as_long_as_it_is_much() -> None:
    """One look at each offset, not at all of them for each."""
    table = OffsetTable()
    seen = 0

    class Topic(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal seen
            seen += 1
            return str.__eq__(self, other)

        def __hash__(self) -> int:
            return str.__hash__(self)

    topics = [f"topic-{number}" for number in range(2_000)]
    committed = CommittedOffset(1, -1, "", 0, None, None)
    for topic in topics:
        table.put_pending(0, 50, OffsetKey("g", Topic(topic), 0), committed)
    seen = 0
    table.complete(0, 50, commit=False)
    assert not table.has_pending("g")
    assert [table.groups_of_topic(topic) for topic in topics] == [[]] * len(topics)
    assert seen < 100 * len(topics)


def test_who_may_commit_in_a_transaction(desk: GroupDesk) -> None:
    (member,) = desk.stable("g")
    assert desk.commit_in_transaction("g", {("t", 0): 1}, 50) == {("t", 0): 0}
    assert desk.commit_in_transaction("g", {("t", 0): 1}, 50, member=member, generation=1) == {("t", 0): 0}
    desk.join("g", member)
    assert desk.commit_in_transaction("g", {("t", 0): 1}, 50, member=member, generation=2) == {("t", 0): 0}
    for name, generation, code in ((member, 1, ILLEGAL_GENERATION), ("nobody", 2, UNKNOWN_MEMBER)):
        with pytest.raises(GroupRefusal) as refused:
            desk.commit_in_transaction("g", {("t", 0): 1}, 50, member=name, generation=generation)
        assert refused.value.error_code == code
    with pytest.raises(GroupRefusal) as refused:
        desk.commit_in_transaction("none", {("t", 0): 1}, 50, generation=1)
    assert refused.value.error_code == ILLEGAL_GENERATION


def test_nobody_has_no_transaction(desk: GroupDesk) -> None:
    """In the log the offsets would be committed at once, although no transaction has ended."""
    with pytest.raises(GroupRefusal) as refused:
        desk.commit_in_transaction("g", {("t", 0): 1}, -1)
    assert refused.value.error_code == UNKNOWN_ERROR
    assert (desk.records("g"), desk.committed("g", stable=True)) == ([], {})
