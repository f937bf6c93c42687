"""Subscriptions by regular expression: what is refused, when topics are looked up, and what a group gets for it."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.broker.groups.consumer.regex_refresh import check_regex, matching_topics
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import INVALID_REGULAR_EXPRESSION, NOT_COORDINATOR
from tests.support.broker.consumer_group_bench import Bench, given, owned


@pytest.fixture
def bench() -> Bench:
    return Bench({"logs-a": 2, "logs-b": 2, "other": 1})


def topic(bench: Bench, name: str) -> Any:
    found = bench.topics.by_name(name)
    assert found is not None
    return found.topic_id


def join(bench: Bench, member_id: str, regex: str, **more: Any) -> Any:
    return bench.join(member_id, subscribed_topic_regex=regex, **{"subscribed_topic_names": None, **more})


def test_a_pattern_matches_nothing_until_it_is_resolved(bench: Bench) -> None:
    joined = join(bench, "a", "logs-.*")
    assert (joined.error_code, joined.member_epoch, given(joined)) == (0, 1, {})
    assert bench.group().epoch == 1
    bench.run_background()
    assert (bench.group().epoch, bench.group().state) == (2, "Assigning")
    got = bench.heartbeat("a", 1)
    assert (got.member_epoch, given(got)) == (2, {topic(bench, "logs-a"): {0, 1}, topic(bench, "logs-b"): {0, 1}})


def test_the_second_member_of_a_known_pattern_does_not_wait(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    joined = join(bench, "b", "logs-.*")
    assert joined.member_epoch == 3
    assert sum(map(len, (given(joined) or {}).values())) == 2
    assert not bench.background


def test_names_and_a_pattern_together(bench: Bench) -> None:
    joined = join(bench, "a", "logs-a", subscribed_topic_names=["other"])
    assert given(joined) == {topic(bench, "other"): {0}}
    bench.run_background()
    assert given(bench.heartbeat("a", joined.member_epoch)) == {
        topic(bench, "other"): {0},
        topic(bench, "logs-a"): {0, 1},
    }


def test_a_new_topic_is_found_at_a_heartbeat_but_not_sooner_than_ten_seconds_later(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    bench.heartbeat("a", 1)
    new = bench.topics.put("logs-c", 1)
    bench.pass_time(10_000)
    bench.heartbeat("a", 2)
    assert not bench.background
    bench.pass_time(1)
    bench.heartbeat("a", 2)
    bench.heartbeat("a", 2)
    assert len(bench.background) == 1
    bench.run_background()
    assert new in (given(bench.heartbeat("a", 2)) or {})
    bench.pass_time(20_000)
    bench.heartbeat("a", 3)
    assert not bench.background


def test_a_clock_that_is_set_back_does_not_hide_new_topics(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    bench.heartbeat("a", 1)
    new = bench.topics.put("logs-c", 1)
    bench.now_ms -= 24 * 3600 * 1000
    bench.heartbeat("a", 2)
    bench.run_background()
    assert new in (given(bench.heartbeat("a", 2)) or {})


def test_patterns_are_looked_up_again_after_the_interval(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    for _ in range(20):
        bench.pass_time(30_000)
        bench.heartbeat("a", bench.group().members["a"].epoch)
    assert not bench.background
    bench.pass_time(1)
    bench.heartbeat("a", 2)
    assert len(bench.background) == 1
    bench.run_background()
    assert bench.group().epoch == 2
    assert bench.group().resolved_regexes["logs-.*"].timestamp_ms == bench.now_ms


def test_a_deleted_topic_is_taken_away_at_once(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    bench.heartbeat("a", 1)
    bench.topics.delete("logs-a")
    asked_back = bench.heartbeat("a", 2)
    assert given(asked_back) == {topic(bench, "logs-b"): {0, 1}}


def test_an_unused_pattern_is_forgotten(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    join(bench, "b", "logs-.*")
    bench.run_background()
    bench.pass_time(20_000)
    bench.heartbeat("a", 1, subscribed_topic_regex="other")
    assert set(bench.group().resolved_regexes) == {"logs-.*"}
    bench.run_background()
    assert set(bench.group().resolved_regexes) == {"logs-.*", "other"}
    bench.heartbeat("b", -1)
    assert set(bench.group().resolved_regexes) == {"other"}
    changed = bench.heartbeat("a", bench.group().members["a"].epoch, subscribed_topic_regex="")
    assert bench.group().resolved_regexes == {}
    assert changed.error_code == 0
    bench.restart()
    assert bench.group().resolved_regexes == {}


def test_a_member_that_changes_its_pattern_gives_up_its_topics_first(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    bench.heartbeat("a", 1)
    bench.pass_time(20_000)
    changed = bench.heartbeat("a", 2, subscribed_topic_regex="other")
    assert (changed.member_epoch, given(changed)) == (2, {})
    bench.run_background()
    got = bench.heartbeat("a", 2, topic_partitions=[])
    assert given(got) == {topic(bench, "other"): {0}}


def test_the_result_comes_when_the_group_is_gone(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.heartbeat("a", -1)
    bench.coordinator.append("g", bench.group().tombstones())
    written = len(bench.log)
    bench.run_background()
    assert (bench.coordinator.by_id, len(bench.log)) == ({}, written)


def test_a_result_that_cannot_be_written_is_looked_up_again(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.coordinator.is_failing = True
    bench.run_background()
    assert bench.group().resolved_regexes == {}
    bench.coordinator.is_failing = False
    bench.heartbeat("a", 1)
    bench.run_background()
    assert set(bench.group().resolved_regexes) == {"logs-.*"}


def test_a_lookup_that_failed_is_done_again(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    _, then = bench.background.pop()
    then(None, OSError("no more threads"))
    bench.heartbeat("a", 1)
    assert len(bench.background) == 1


def test_a_pattern_that_is_none(bench: Bench) -> None:
    refused = join(bench, "a", "[a")
    assert refused.error_code == INVALID_REGULAR_EXPRESSION
    assert refused.error_message == "SubscribedTopicRegex `[a` is not a valid regular expression: missing closing ]."
    assert bench.coordinator.by_id == {}
    assert not bench.background


# What Kafka 4.3.1 says, asked of its RE2 for Java.
@pytest.mark.parametrize(
    ("pattern", "description"),
    [
        ("[a", "missing closing ]"),
        ("(a", "missing closing )"),
        ("a)", "regexp/syntax: internal error"),
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("a{1001}", "invalid repeat count"),
        ("\\", "trailing backslash at end of expression"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("*a", "missing argument to repetition operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        ("(?P<n", "invalid named capture"),
    ],
)
def test_what_is_wrong_with_a_pattern(pattern: str, description: str) -> None:
    with pytest.raises(GroupRefusal) as refusal:
        check_regex(pattern)
    assert refusal.value.message == (
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}."
    )


def test_patterns_match_whole_names() -> None:
    found = matching_topics(["a|b", "a.*", "(?i)A", "", "[", r"\Qa.b\E"], ["a", "b", "ab", "a.b"])
    assert found == {
        "a|b": {"a", "b"},
        "a.*": {"a", "ab", "a.b"},
        "(?i)A": {"a"},
        "": set(),
        "[": set(),
        r"\Qa.b\E": {"a.b"},
    }


def test_no_pattern_takes_long() -> None:
    """The time is in proportion to the name, whatever the pattern: one that tries all ways would take years."""
    for pattern in ("(a*)*(a*)*(a*)*b", "(" * 900 + "a*" + ")" * 900 + "b", "(a?){900}a{900}"):
        assert matching_topics([pattern], ["a" * 249] * 5) == {pattern: set()}


@pytest.mark.parametrize("pattern", ["x" * 32_769, r"\pL" * 65, r"\P{Lu}" * 65, r"[\pL]{500}"])
def test_a_pattern_that_costs_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(GroupRefusal, match="is not a valid regular expression: pattern too large"):
        check_regex(pattern)


def test_a_pattern_may_name_thousands_of_topics() -> None:
    names = [f"topic-{number:04}" for number in range(2500)]
    pattern = "|".join(names)
    check_regex(pattern)
    assert len(matching_topics([pattern], [*names, "topic-9999"])[pattern]) == 2500


def test_nothing_is_looked_up_if_the_member_could_not_be_written(bench: Bench) -> None:
    bench.coordinator.is_failing = True
    assert join(bench, "a", "logs-.*").error_code == NOT_COORDINATOR
    assert not bench.background


def test_owned_partitions_of_a_pattern_are_handed_over(bench: Bench) -> None:
    join(bench, "a", "logs-.*")
    bench.run_background()
    got = given(bench.heartbeat("a", 1))
    assert got is not None
    join(bench, "b", "logs-.*")
    kept = given(bench.heartbeat("a", 2))
    assert kept is not None
    assert sum(map(len, kept.values())) == 2
    bench.heartbeat("a", 2, topic_partitions=owned(*kept.items()))
    taken = given(bench.heartbeat("b", 3))
    assert taken is not None
    assert sum(map(len, taken.values())) == 2
