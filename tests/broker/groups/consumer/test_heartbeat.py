"""Consumer groups by their heartbeats: joining, sharing out, handing over, leaving."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.wire.error_codes import (
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    INVALID_REQUEST,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_ASSIGNOR,
    UNSUPPORTED_VERSION,
)
from tests.support.broker.consumer_group_bench import Bench, given, owned


@pytest.fixture
def bench() -> Bench:
    return Bench({"t": 6})


def topic_id(bench: Bench, name: str = "t") -> Any:
    topic = bench.topics.by_name(name)
    assert topic is not None
    return topic.topic_id


def test_the_first_member_gets_everything(bench: Bench) -> None:
    answer = bench.join("a", "t")
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval) == ("a", 2, 5000)
    assert given(answer) == {topic_id(bench): {0, 1, 2, 3, 4, 5}}
    assert bench.group().state == "Stable"
    again = bench.heartbeat("a", 2)
    assert (again.error_code, again.member_epoch, given(again)) == (0, 2, None)


def test_a_heartbeat_without_news_writes_nothing(bench: Bench) -> None:
    bench.join("a", "t")
    before = len(bench.log)
    bench.heartbeat("a", 2, topic_partitions=owned((topic_id(bench), range(6))))
    assert len(bench.log) == before


def test_a_full_heartbeat_hears_everything(bench: Bench) -> None:
    bench.join("a", "t")
    full = bench.heartbeat(
        "a",
        2,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=owned((topic_id(bench), [0])),
    )
    assert given(full) == {topic_id(bench): {0, 1, 2, 3, 4, 5}}


def test_partitions_are_handed_over_only_after_they_were_given_up(bench: Bench) -> None:
    topic = topic_id(bench)
    bench.join("a", "t")
    joined = bench.join("b", "t")
    assert (joined.member_epoch, given(joined)) == (3, {})
    assert bench.group().state == "Reconciling"

    asked_back = bench.heartbeat("a", 2)
    assert (asked_back.member_epoch, given(asked_back)) == (2, {topic: {0, 1, 2}})
    still = bench.heartbeat("b", 3)
    assert (still.member_epoch, given(still)) == (3, None)
    busy = bench.heartbeat("a", 2, topic_partitions=owned((topic, range(6))))
    assert (busy.member_epoch, given(busy)) == (2, None)

    gave_up = bench.heartbeat("a", 2, topic_partitions=owned((topic, range(3))))
    assert (gave_up.member_epoch, given(gave_up)) == (3, None)
    got = bench.heartbeat("b", 3)
    assert (got.member_epoch, given(got)) == (3, {topic: {3, 4, 5}})
    assert bench.group().state == "Stable"


def test_a_member_without_an_assignment_moves_on_at_once(bench: Bench) -> None:
    topic = topic_id(bench)
    bench.join("a", "t")
    bench.join("b", "t")
    bench.join("c", "t")
    moved = bench.heartbeat("a", 2, topic_partitions=owned((topic, [0, 1])))
    assert (moved.member_epoch, given(moved)) == (4, {topic: {0, 1}})


def test_a_member_leaves_and_the_others_take_over(bench: Bench) -> None:
    topic = topic_id(bench)
    bench.join("a", "t")
    bench.join("b", "t")
    bench.heartbeat("a", 2, topic_partitions=owned((topic, range(3))))
    assert given(bench.heartbeat("b", 3)) == {topic: {3, 4, 5}}
    left = bench.heartbeat("a", -1)
    assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval) == (0, "a", -1, 0)
    assert bench.group().state == "Assigning"
    got = bench.heartbeat("b", 3)
    assert (got.member_epoch, given(got)) == (4, {topic: {0, 1, 2, 3, 4, 5}})
    bench.heartbeat("b", -1)
    assert bench.group().state == "Empty"
    assert (bench.group().epoch, bench.group().is_empty) == (5, True)
    assert bench.heartbeat("b", 4).error_code == UNKNOWN_MEMBER_ID


def test_a_lost_answer_does_no_harm(bench: Bench) -> None:
    topic = topic_id(bench)
    bench.join("a", "t")
    bench.join("b", "t")
    bench.heartbeat("a", 2, topic_partitions=owned((topic, range(3))))
    # The member did not hear that it is in epoch 3 now.
    again = bench.heartbeat("a", 2, topic_partitions=owned((topic, range(3))))
    assert (again.error_code, again.member_epoch) == (0, 3)
    fenced = bench.heartbeat("a", 2, topic_partitions=owned((topic, range(4))))
    assert fenced.error_code == FENCED_MEMBER_EPOCH
    assert fenced.error_message == (
        "The consumer group member has a smaller member epoch (2) than the one known by the group coordinator (3)."
        " The member must abandon all its partitions and rejoin."
    )
    assert bench.heartbeat("a", 2).error_code == FENCED_MEMBER_EPOCH
    assert bench.heartbeat("a", 4).error_message == (
        "The consumer group member has a greater member epoch (4) than the one known by the group coordinator (3)."
        " The member must abandon all its partitions and rejoin."
    )


def test_a_member_may_join_again_under_its_id_and_keeps_what_it_owned(bench: Bench) -> None:
    bench.join("a", "t")
    again = bench.join("a", "t")
    assert (again.error_code, again.member_epoch) == (0, 2)
    assert given(again) == {topic_id(bench): {0, 1, 2, 3, 4, 5}}


def test_version_0_leaves_the_id_to_the_server(bench: Bench) -> None:
    answer = bench.join("", "t", version=0)
    assert answer.error_code == 0
    assert len(answer.member_id) == 22
    assert bench.heartbeat(answer.member_id, 2, version=0).error_code == 0


def test_a_subscription_change_takes_effect_at_once(bench: Bench) -> None:
    other = bench.topics.put("u", 2)
    topic = topic_id(bench)
    bench.join("a", "t", "u")
    assert bench.heartbeat("a", 2, topic_partitions=owned((topic, range(6)), (other, range(2)))).error_code == 0
    changed = bench.heartbeat("a", 2, subscribed_topic_names=["u"])
    assert (changed.member_epoch, given(changed)) == (2, {other: {0, 1}})
    done = bench.heartbeat("a", 2, topic_partitions=owned((other, range(2))))
    assert (done.member_epoch, given(done)) == (3, None)


def test_a_member_without_topics_is_a_member_all_the_same(bench: Bench) -> None:
    answer = bench.join("a")
    assert (answer.error_code, answer.member_epoch, given(answer)) == (0, 1, {})
    assert bench.group().state == "Stable"


def test_topics_that_do_not_exist_yet_are_shared_out_when_they_do() -> None:
    bench = Bench()
    assert given(bench.join("a", "new")) == {}
    new = bench.topics.put("new", 2)
    got = bench.heartbeat("a", 2)
    assert (got.member_epoch, given(got)) == (3, {new: {0, 1}})
    bench.topics.put("new", 3)
    assert given(bench.heartbeat("a", 3)) == {new: {0, 1, 2}}
    bench.topics.put("other", 3)
    assert bench.heartbeat("a", 4).member_epoch == 4


def test_a_deleted_topic_is_taken_away_and_one_of_its_name_is_another(bench: Bench) -> None:
    old = topic_id(bench)
    bench.join("a", "t")
    bench.topics.delete("t")
    asked_back = bench.heartbeat("a", 2)
    assert (asked_back.member_epoch, given(asked_back)) == (2, {})
    new = bench.topics.put("t", 1)
    assert new != old
    got = bench.heartbeat("a", 2, topic_partitions=[])
    assert (got.member_epoch, given(got)) == (4, {new: {0}})


def test_the_assignor_is_that_of_most_members() -> None:
    bench = Bench({"t": 4})
    assert bench.join("a", "t", server_assignor="range").error_code == 0
    assert [group.assignor_name for group in bench.describe("g")] == ["range"]
    bench.join("b", "t", server_assignor="uniform")
    assert [group.assignor_name for group in bench.describe("g")] == ["uniform"]
    bench.join("c", "t", server_assignor="range")
    assert [group.assignor_name for group in bench.describe("g")] == ["range"]


def test_assignments_wait_for_each_other() -> None:
    bench = Bench({"t": 6}, group_consumer_assignment_interval_ms=1000)
    topic = topic_id(bench)
    bench.join("a", "t")
    joined = bench.join("b", "t")
    assert (joined.member_epoch, given(joined)) == (2, {})
    assert (bench.group().epoch, bench.group().target_epoch, bench.group().state) == (3, 2, "Assigning")
    bench.pass_time(999)
    assert given(bench.heartbeat("a", 2)) is None
    bench.pass_time(1)
    assert given(bench.heartbeat("a", 2)) == {topic: {0, 1, 2}}
    assert bench.group().target_epoch == 3


def test_assignments_do_not_wait_for_a_clock_that_was_set_back() -> None:
    bench = Bench({"t": 6}, group_consumer_assignment_interval_ms=1000)
    bench.join("a", "t")
    bench.now_ms -= 24 * 3600 * 1000
    assert bench.join("b", "t").member_epoch == bench.group().target_epoch == 3


def test_a_group_has_a_greatest_size() -> None:
    bench = Bench({"t": 2}, group_consumer_max_size=2)
    bench.join("a", "t")
    bench.join("b", "t")
    refused = bench.join("c", "t")
    assert refused.error_code == GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The consumer group has reached its maximum capacity of 2 members."
    assert bench.join("b", "t").error_code == 0


def test_members_that_are_not_known(bench: Bench) -> None:
    assert bench.heartbeat("a", 1).error_code == GROUP_ID_NOT_FOUND
    assert bench.heartbeat("a", 1).error_message == "Consumer group g not found."
    assert bench.heartbeat("a", -1).error_message == "Group g not found."
    bench.join("a", "t")
    unknown = bench.heartbeat("b", 1)
    assert (unknown.error_code, unknown.error_message) == (UNKNOWN_MEMBER_ID, "Member b is not a member of group g.")
    assert bench.heartbeat("b", -1).error_code == UNKNOWN_MEMBER_ID


def test_nothing_happens_if_it_cannot_be_written(bench: Bench) -> None:
    bench.coordinator.is_failing = True
    assert bench.join("a", "t").error_code == NOT_COORDINATOR
    assert bench.coordinator.by_id == {}
    bench.coordinator.is_failing = False
    assert bench.join("a", "t").member_epoch == 2
    bench.coordinator.is_failing = True
    bench.topics.put("t", 7)
    assert bench.heartbeat("a", 2).error_code == NOT_COORDINATOR
    bench.coordinator.is_failing = False
    assert given(bench.heartbeat("a", 2)) == {topic_id(bench): set(range(7))}


def test_before_the_log_exists_no_client_is_admitted(bench: Bench) -> None:
    bench.coordinator.is_ready = False
    assert bench.join("a", "t").error_code == NOT_COORDINATOR
    assert [group.error_code for group in bench.describe("g")] == [NOT_COORDINATOR]


JOINING = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": []}


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "fields", "message"),
    [
        ("", 0, 1, JOINING, "MemberId can't be empty."),
        (" ", 0, 1, JOINING, "MemberId can't be empty."),
        ("", 1, 0, {}, "MemberId can't be empty."),
        ("", -1, 0, {}, "MemberId can't be empty."),
        ("", 0, 1, {**JOINING, "group_id": ""}, "MemberId can't be empty."),
        ("a", 0, 1, {**JOINING, "group_id": ""}, "GroupId can't be empty."),
        ("a", 0, 1, {**JOINING, "group_id": " \t"}, "GroupId can't be empty."),
        ("a", 0, 1, {**JOINING, "instance_id": ""}, "InstanceId can't be empty."),
        ("a", 0, 1, {**JOINING, "rack_id": ""}, "RackId can't be empty."),
        ("a", 0, 1, {**JOINING, "rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ("a", 0, 1, {**JOINING, "topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            "a",
            0,
            1,
            {**JOINING, "topic_partitions": [{"topic_id": None, "partitions": []}]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            "a",
            0,
            1,
            {**JOINING, "subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("a", -2, 1, {}, "InstanceId can't be null."),
        ("a", -3, 1, {}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_make_no_sense(
    bench: Bench, member_id: str, epoch: int, version: int, fields: dict[str, Any], message: str
) -> None:
    refused = bench.heartbeat(member_id, epoch, version=version, **fields)
    assert (refused.error_code, refused.error_message) == (INVALID_REQUEST, message)
    assert (refused.member_id, refused.member_epoch, given(refused)) == (None, 0, None)


def test_an_assignor_that_there_is_not(bench: Bench) -> None:
    refused = bench.join("a", "t", server_assignor="sticky")
    assert refused.error_code == UNSUPPORTED_ASSIGNOR
    assert refused.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    assert bench.coordinator.by_id == {}


def test_a_cluster_without_the_feature_has_no_such_groups(bench: Bench) -> None:
    bench.features["group.version"] = 0
    refused = bench.join("a", "t")
    assert (refused.error_code, refused.error_message) == (UNSUPPORTED_VERSION, None)
    assert [(group.group_id, group.error_code) for group in bench.describe("g", "h")] == [
        ("g", UNSUPPORTED_VERSION),
        ("h", UNSUPPORTED_VERSION),
    ]


@pytest.mark.parametrize(
    ("configured", "default", "refused"),
    [
        ("range", "range", "uniform"),
        ("org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform", "range", "sticky"),
        ("com.example.Mine", "uniform", "sticky"),
    ],
)
def test_the_assignors_that_the_broker_offers(configured: str, default: str, refused: str) -> None:
    bench = Bench({"t": 2}, group_consumer_assignors=configured)
    assert bench.join("a", "t").error_code == 0
    assert [group.assignor_name for group in bench.describe("g")] == [default]
    assert bench.join("b", "t", server_assignor=refused).error_code == UNSUPPORTED_ASSIGNOR
