"""Static members of consumer groups: a place that waits for the next member of the same instance."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.wire.error_codes import FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, UNRELEASED_INSTANCE_ID
from tests.support.broker.consumer_group_bench import Bench, given, owned


@pytest.fixture
def bench() -> Bench:
    bench = Bench({"t": 4})
    bench.join("a", "t", instance_id="one")
    bench.join("b", "t", instance_id="two")
    bench.heartbeat("a", 2, instance_id="one", topic_partitions=owned((topic(bench), [0, 1])))
    assert given(bench.heartbeat("b", 3, instance_id="two")) == {topic(bench): {2, 3}}
    return bench


def topic(bench: Bench) -> Any:
    found = bench.topics.by_name("t")
    assert found is not None
    return found.topic_id


def test_the_place_of_a_static_member_waits_for_it(bench: Bench) -> None:
    away = bench.heartbeat("a", -2, instance_id="one")
    assert (away.error_code, away.member_id, away.member_epoch) == (0, "a", -2)
    assert bench.group().epoch == 3
    assert given(bench.heartbeat("b", 3, instance_id="two")) is None

    back = bench.join("c", "t", instance_id="one")
    assert (back.error_code, back.member_id, back.member_epoch) == (0, "c", 3)
    assert given(back) == {topic(bench): {0, 1}}
    assert set(bench.group().members) == {"b", "c"}
    assert (bench.group().epoch, bench.group().state) == (3, "Stable")
    assert bench.group().static_members == {"one": "c", "two": "b"}


def test_a_static_member_that_comes_back_with_other_topics_raises_the_epoch(bench: Bench) -> None:
    bench.topics.put("u", 2)
    bench.heartbeat("a", -2, instance_id="one")
    back = bench.join("c", "t", "u", instance_id="one")
    assert back.error_code == 0
    assert bench.group().epoch == 4
    assert topic(bench) in (given(back) or {})


def test_its_place_is_its_own_while_it_is_there(bench: Bench) -> None:
    refused = bench.join("c", "t", instance_id="one")
    assert refused.error_code == UNRELEASED_INSTANCE_ID
    assert refused.error_message == (
        "Static member c with instance id one cannot join the group because the instance id is owned by a member."
    )


def test_the_old_member_is_fenced(bench: Bench) -> None:
    bench.heartbeat("a", -2, instance_id="one")
    bench.join("c", "t", instance_id="one")
    for epoch in (3, -1, -2):
        fenced = bench.heartbeat("a", epoch, instance_id="one")
        assert fenced.error_code == FENCED_INSTANCE_ID
        assert fenced.error_message == "Static member a with instance id one was fenced by member c."


def test_an_unknown_instance(bench: Bench) -> None:
    for epoch in (3, -1, -2):
        unknown = bench.heartbeat("a", epoch, instance_id="three")
        assert (unknown.error_code, unknown.error_message) == (UNKNOWN_MEMBER_ID, "Instance id three is unknown.")


def test_a_static_member_that_leaves_permanently_gives_up_its_place(bench: Bench) -> None:
    left = bench.heartbeat("a", -1, instance_id="one")
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert set(bench.group().members) == {"b"}
    got = bench.heartbeat("b", 3, instance_id="two")
    assert (got.member_epoch, given(got)) == (4, {topic(bench): {0, 1, 2, 3}})
    joined = bench.join("c", "t", instance_id="one")
    assert (joined.member_epoch, given(joined)) == (5, {})


def test_a_static_member_that_stays_away_loses_its_place(bench: Bench) -> None:
    bench.heartbeat("a", -2, instance_id="one")
    bench.pass_time(40_000)
    bench.heartbeat("b", 3, instance_id="two")
    bench.pass_time(5_000)
    assert set(bench.group().members) == {"b"}
    assert given(bench.heartbeat("b", 3, instance_id="two")) == {topic(bench): {0, 1, 2, 3}}


def test_a_static_member_may_come_back_under_the_id_that_it_had(bench: Bench) -> None:
    bench.heartbeat("a", -2, instance_id="one")
    back = bench.join("a", "t", instance_id="one")
    assert (back.error_code, back.member_epoch, given(back)) == (0, 3, {topic(bench): {0, 1}})
    assert set(bench.group().members) == {"a", "b"}


def test_a_restart_remembers_who_is_away(bench: Bench) -> None:
    bench.heartbeat("a", -2, instance_id="one")
    bench.restart()
    back = bench.join("c", "t", instance_id="one")
    assert (back.member_epoch, given(back)) == (3, {topic(bench): {0, 1}})


def test_an_old_commit_of_the_one_before_counts_for_its_partitions(bench: Bench) -> None:
    bench.heartbeat("a", -2, instance_id="one")
    bench.join("c", "t", instance_id="one")
    check = bench.group().check_commit("c", "one", 0, transactional=False, version=9)
    assert check is not None
    check("t", topic(bench), 0)
