"""Members that are silent, members that do not give up partitions, and a broker that starts again."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.wire.error_codes import UNKNOWN_MEMBER_ID
from tests.support.broker.consumer_group_bench import Bench, given, owned


@pytest.fixture
def bench() -> Bench:
    return Bench({"t": 4})


def topic(bench: Bench) -> Any:
    found = bench.topics.by_name("t")
    assert found is not None
    return found.topic_id


def test_a_silent_member_is_out_after_its_session(bench: Bench) -> None:
    bench.join("a", "t")
    bench.pass_time(44_999)
    assert bench.heartbeat("a", 2).error_code == 0
    bench.pass_time(44_999)
    assert "a" in bench.group().members
    bench.pass_time(1)
    assert bench.group().is_empty
    assert bench.group().epoch == 3
    assert bench.heartbeat("a", 2).error_code == UNKNOWN_MEMBER_ID
    assert len(bench.timers) == 0


def test_a_member_that_does_not_give_up_partitions_in_time_is_out(bench: Bench) -> None:
    bench.join("a", "t", rebalance_timeout_ms=20_000)
    bench.join("b", "t")
    bench.heartbeat("a", 2)
    for _ in range(4):
        bench.pass_time(4_999)
        assert bench.heartbeat("a", 2, topic_partitions=owned((topic(bench), range(4)))).error_code == 0
        bench.heartbeat("b", 3)
    bench.pass_time(5)
    assert set(bench.group().members) == {"b"}
    assert given(bench.heartbeat("b", 3)) == {topic(bench): {0, 1, 2, 3}}


def test_one_that_does_in_time_stays(bench: Bench) -> None:
    bench.join("a", "t", rebalance_timeout_ms=20_000)
    bench.join("b", "t")
    bench.heartbeat("a", 2)
    bench.pass_time(19_999)
    bench.heartbeat("a", 2, topic_partitions=owned((topic(bench), [0, 1])))
    bench.pass_time(20_000)
    assert set(bench.group().members) == {"a", "b"}


def test_a_member_that_left_has_no_timers(bench: Bench) -> None:
    bench.join("a", "t")
    bench.join("b", "t")
    bench.heartbeat("a", 2)
    assert len(bench.timers) == 3
    bench.heartbeat("a", -1)
    assert len(bench.timers) == 1
    bench.heartbeat("b", -1)
    assert len(bench.timers) == 0


def test_a_member_that_has_no_time_is_not_put_out_again_and_again_while_the_log_refuses(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.join("a", "t", rebalance_timeout_ms=0)
    bench.join("b", "t")
    bench.heartbeat("a", 2)
    bench.coordinator.is_failing = True
    for _ in range(3):
        assert bench.timers.seconds_to_next(1) == 0
        bench.timers.run_due(lambda work: work())
        assert bench.timers.seconds_to_next(1) == 1
        bench.now_ms += 1000
    assert caplog.messages == ["group g: member a could not be removed: error code 16"]
    bench.coordinator.is_failing = False
    bench.pass_time(0)
    assert set(bench.group().members) == {"b"}


def test_a_member_that_could_not_be_put_out_is_tried_again(bench: Bench) -> None:
    bench.join("a", "t")
    bench.coordinator.is_failing = True
    bench.pass_time(45_000)
    assert "a" in bench.group().members
    bench.coordinator.is_failing = False
    bench.pass_time(45_000)
    assert bench.group().is_empty


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    return {
        name: getattr(group, name)
        for name in (
            "epoch",
            "metadata_hash",
            "target_epoch",
            "target_made_at_ms",
            "targets",
            "members",
            "static_members",
            "resolved_regexes",
            "topic_names",
            "state",
        )
    }


def test_a_restart_changes_nothing(bench: Bench) -> None:
    bench.join("a", "t", rack_id="r", server_assignor="range", rebalance_timeout_ms=7000)
    bench.join("b", "t", subscribed_topic_regex="t.*", instance_id="i", client_id="")
    bench.run_background()
    bench.heartbeat("a", 2)
    before = state_of(bench.group())
    assert before["state"] != "Stable"
    bench.restart()
    assert state_of(bench.group()) == before
    assert bench.heartbeat("a", 2, topic_partitions=owned((topic(bench), [0, 1]))).error_code == 0


def test_after_a_restart_each_member_has_its_time_again(bench: Bench) -> None:
    bench.join("a", "t", rebalance_timeout_ms=10_000)
    bench.join("b", "t")
    bench.heartbeat("a", 2)
    bench.pass_time(9_000)
    bench.restart()
    bench.pass_time(9_999)
    assert set(bench.group().members) == {"a", "b"}
    bench.pass_time(1)
    assert set(bench.group().members) == {"b"}
    bench.pass_time(35_000)
    assert bench.group().is_empty


def test_a_topic_that_changed_while_the_broker_was_down_is_noticed(bench: Bench) -> None:
    bench.join("a", "t")
    bench.topics._changed.clear()
    bench.topics.put("t", 5)
    bench.restart()
    assert given(bench.heartbeat("a", 2)) == {topic(bench): {0, 1, 2, 3, 4}}


def test_a_restart_alone_raises_no_epoch(bench: Bench) -> None:
    bench.join("a", "t")
    written = len(bench.log)
    bench.restart()
    assert bench.heartbeat("a", 2).member_epoch == 2
    assert len(bench.log) == written


def test_a_group_that_was_deleted_is_gone_after_a_restart(bench: Bench) -> None:
    bench.join("a", "t", subscribed_topic_regex="t")
    bench.run_background()
    bench.heartbeat("a", -1)
    group = bench.group()
    group.check_delete()
    bench.coordinator.append("g", group.tombstones())
    assert bench.coordinator.by_id == {}
    bench.restart()
    assert bench.coordinator.by_id == {}
    assert bench.join("b", "t").member_epoch == 2


def test_a_group_can_be_deleted_member_and_all_by_its_tombstones(bench: Bench) -> None:
    """As when it is turned into a classic one."""
    bench.join("a", "t")
    bench.coordinator.append("g", bench.group().tombstones())
    assert bench.coordinator.by_id == {}
    assert len(bench.timers) == 0


def test_a_group_may_have_its_own_times(bench: Bench) -> None:
    bench.group_configs["g"] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.assignment.interval.ms": "3000",
    }
    assert bench.join("a", "t").heartbeat_interval == 7000
    assert bench.join("other", "t", group_id="h").heartbeat_interval == 5000
    bench.join("b", "t")
    assert bench.group().target_epoch == 2
    bench.pass_time(3000)
    bench.heartbeat("b", 2)
    assert bench.group().target_epoch == 3
    bench.pass_time(46_999)
    assert bench.group("h").is_empty
    assert set(bench.group().members) == {"a", "b"}
    bench.pass_time(1)
    assert set(bench.group().members) == {"b"}
