"""Checks of offset commits and fetches of a consumer group, and its description."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from tests.support.broker.consumer_group_bench import Bench, owned


@pytest.fixture
def bench() -> Bench:
    """One member that is asked to give up half of its partitions, and one that waits for them."""
    bench = Bench({"t": 4})
    bench.join("a", "t", rack_id="r1", client_id="first")
    bench.join("b", "t", instance_id="i")
    bench.heartbeat("a", 2, client_id="first")
    return bench


def topic(bench: Bench) -> UUID:
    found = bench.topics.by_name("t")
    assert found is not None
    return found.topic_id


def refusal_of(call: Any, *arguments: Any, **named: Any) -> tuple[int, str | None]:
    with pytest.raises(GroupRefusal) as refused:
        call(*arguments, **named)
    return refused.value.error_code, refused.value.message


def test_a_commit_in_the_members_epoch_is_let_through(bench: Bench) -> None:
    assert bench.group().check_commit("a", None, 2, transactional=False, version=9) is None
    assert bench.group().check_commit("a", None, 2, transactional=True, version=3) is None


def test_a_commit_of_an_older_epoch_counts_if_no_other_member_can_have_read(bench: Bench) -> None:
    group = bench.group()
    bench.heartbeat("a", 2, topic_partitions=owned((topic(bench), [0, 1])))
    bench.heartbeat("b", 3)
    check = group.check_commit("a", None, 2, transactional=False, version=9)
    assert check is not None
    check("t", topic(bench), 0)
    assert refusal_of(check, "t", topic(bench), 2) == (
        STALE_MEMBER_EPOCH,
        "Partition t-2 is not assigned or pending revocation for member.",
    )
    assert refusal_of(check, "t", None, 0)[0] == STALE_MEMBER_EPOCH
    too_old = group.check_commit("a", None, 1, transactional=False, version=9)
    assert too_old is not None
    assert refusal_of(too_old, "t", topic(bench), 0) == (
        STALE_MEMBER_EPOCH,
        "Received member epoch 1 is older than assignment epoch 2 for partition t-0.",
    )


def test_partitions_that_are_asked_back_may_still_be_committed(bench: Bench) -> None:
    bench.topics.put("t", 5)
    bench.heartbeat("b", 3)
    check = bench.group().check_commit("a", None, 2, transactional=False, version=9)
    assert check is None


def test_commits_that_are_refused(bench: Bench) -> None:
    commit = bench.group().check_commit
    assert refusal_of(commit, "a", None, 3, transactional=False, version=9) == (
        STALE_MEMBER_EPOCH,
        "Received member epoch 3 is newer than current member epoch 2.",
    )
    assert refusal_of(commit, "x", None, 2, transactional=False, version=9) == (
        UNKNOWN_MEMBER_ID,
        "Member x is not a member of group g.",
    )
    assert refusal_of(commit, "", None, -1, transactional=False, version=9)[0] == UNKNOWN_MEMBER_ID
    assert refusal_of(commit, "a", None, 2, transactional=False, version=8) == (
        UNSUPPORTED_VERSION,
        "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
    )


def test_an_empty_group_takes_commits_without_a_member(bench: Bench) -> None:
    bench.heartbeat("a", -1)
    bench.heartbeat("b", -1)
    assert bench.group().check_commit("", None, -1, transactional=False, version=2) is None
    assert refusal_of(bench.group().check_commit, "a", None, 0, transactional=False, version=9)[0] == UNKNOWN_MEMBER_ID


def test_a_transaction_need_not_say_who_it_is(bench: Bench) -> None:
    assert bench.group().check_commit("", None, -1, transactional=True, version=3) is None
    assert refusal_of(bench.group().check_commit, "", "i", -1, transactional=True, version=3)[0] == UNKNOWN_MEMBER_ID


def test_fetches(bench: Bench) -> None:
    fetch = bench.group().check_fetch
    fetch(None, -1)
    fetch("a", 2)
    assert refusal_of(fetch, "a", 1) == (
        STALE_MEMBER_EPOCH,
        "The received member epoch 1 does not match the expected member epoch 2.",
    )
    assert refusal_of(fetch, "x", 2) == (UNKNOWN_MEMBER_ID, "Member x is not a member of group g.")
    assert refusal_of(fetch, "", -1)[0] == UNKNOWN_MEMBER_ID


def test_deleting(bench: Bench) -> None:
    bench.group().check_offset_delete()
    assert bench.group().is_subscribed_to("t")
    assert not bench.group().is_subscribed_to("u")
    assert refusal_of(bench.group().check_delete)[0] == NON_EMPTY_GROUP
    assert bench.group().expiry_base(17) == 17


def test_a_description_is_complete(bench: Bench) -> None:
    (described,) = bench.describe("g", operations=True)
    assert (described.error_code, described.error_message, described.group_id) == (0, None, "g")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert (described.assignor_name, described.authorized_operations) == ("uniform", 3400)
    first, second = described.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", None, "r1", 2)
    assert (first.client_id, first.client_host) == ("first", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex, first.member_type) == (("t",), "", 1)
    # What it is asked to give up it still owns.
    assert [(t.topic_id, t.topic_name, t.partitions) for t in first.assignment.topic_partitions] == [
        (topic(bench), "t", (0, 1, 2, 3))
    ]
    assert [(t.topic_id, t.topic_name, t.partitions) for t in first.target_assignment.topic_partitions] == [
        (topic(bench), "t", (0, 1))
    ]
    assert (second.member_id, second.instance_id, second.member_epoch) == ("b", "i", 3)
    assert second.assignment.topic_partitions == ()
    assert [t.partitions for t in second.target_assignment.topic_partitions] == [(2, 3)]


def test_operations_only_if_asked_for_and_no_kinds_of_members_in_version_0(bench: Bench) -> None:
    (described,) = bench.describe("g", version=0)
    assert described.authorized_operations == -(2**31)
    assert not hasattr(described.members[0], "member_type")


def test_groups_that_cannot_be_described(bench: Bench) -> None:
    # Each once, however often it is named.
    unknown, empty = bench.describe("nobody", "", "nobody", operations=True)
    assert (unknown.group_id, unknown.error_code) == ("nobody", GROUP_ID_NOT_FOUND)
    assert unknown.error_message == "Group nobody not found."
    assert (unknown.group_state, unknown.members, unknown.authorized_operations) == ("", (), -(2**31))
    assert (empty.group_id, empty.error_code, empty.error_message) == ("", INVALID_GROUP_ID, None)


def test_partitions_of_deleted_topics_are_not_described(bench: Bench) -> None:
    bench.topics.delete("t")
    (described,) = bench.describe("g")
    assert [member.assignment.topic_partitions for member in described.members] == [(), ()]


def test_an_empty_group_is_described(bench: Bench) -> None:
    bench.heartbeat("a", -1)
    bench.heartbeat("b", -1)
    (described,) = bench.describe("g")
    assert (described.group_state, described.members, described.group_epoch) == ("Empty", (), 5)
