"""Whatever happens to a consumer group: no partition has two owners, and once nothing happens any more, each has one.

Members behave as clients do: they report what they own, revoke what they are asked to, and start again when they are
fenced. Answers get lost, members fall silent, topics come, grow and go, the broker starts again from its log, and now
and then the log cannot be written.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from duralog.broker.wire.error_codes import FENCED_MEMBER_EPOCH, NOT_COORDINATOR, UNKNOWN_MEMBER_ID
from tests.support.broker.consumer_group_bench import Bench, given, owned

NAMES = st.sampled_from("abc")
TOPICS = st.sampled_from(["t", "u", "v"])
SUBSCRIPTIONS = st.frozensets(TOPICS)
PATTERNS = st.sampled_from(["", "t|u", ".*", "v"])


class Member:
    """A client: what it knows of itself."""

    def __init__(self, topics: frozenset[str], pattern: str, assignor: str | None) -> None:
        self.topics = topics
        self.pattern = pattern
        self.assignor = assignor
        self.epoch = 0
        self.owned: dict[UUID, set[int]] = {}
        self.heard_ms = 0

    def start_anew(self) -> None:
        self.epoch = 0
        self.owned = {}


class Groups(RuleBasedStateMachine):
    @initialize(
        wishes=st.lists(st.tuples(SUBSCRIPTIONS, PATTERNS), min_size=3, max_size=3),
        assignment_interval_ms=st.sampled_from([0, 1000]),
    )
    def start(self, wishes: list[tuple[frozenset[str], str]], assignment_interval_ms: int) -> None:
        self.bench = Bench({"t": 4, "u": 3}, group_consumer_assignment_interval_ms=assignment_interval_ms)
        self.members: dict[str, Member] = {}
        for name, (topics, pattern) in zip("abc", wishes, strict=True):
            self.come(name, topics, pattern, None)
            self.bench.run_background()

    # Members

    @rule(name=NAMES, topics=SUBSCRIPTIONS, pattern=PATTERNS, assignor=st.sampled_from([None, "range", "uniform"]))
    def come(self, name: str, topics: frozenset[str], pattern: str, assignor: str | None) -> None:
        if name not in self.members:
            self.members[name] = Member(topics, pattern, assignor)
        self.beat(name)

    @rule(names=st.lists(NAMES, min_size=1, max_size=6), is_lost=st.booleans())
    def speak(self, names: list[str], is_lost: bool) -> None:
        for number, name in enumerate(names):
            if name in self.members:
                self.beat(name, is_lost=is_lost and number == 0)
                self.no_partition_has_two_owners()

    @rule(name=NAMES, topics=SUBSCRIPTIONS, pattern=PATTERNS)
    def want_something_else(self, name: str, topics: frozenset[str], pattern: str) -> None:
        member = self.members.get(name)
        if member is not None:
            member.topics, member.pattern = topics, pattern
            self.beat(name)

    @rule(name=NAMES, says_so=st.booleans())
    def go(self, name: str, says_so: bool) -> None:
        member = self.members.pop(name, None)
        if member is not None and member.epoch > 0 and says_so:
            self.bench.heartbeat(name, -1)

    def beat(self, name: str, *, is_lost: bool = False) -> None:
        member = self.members[name]
        more: dict[str, Any] = {} if member.assignor is None else {"server_assignor": member.assignor}
        answer = self.bench.heartbeat(
            name,
            member.epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.pattern,
            topic_partitions=owned(*member.owned.items()),
            **more,
        )
        if answer.error_code in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
            member.start_anew()
        elif answer.error_code != NOT_COORDINATOR:
            assert answer.error_code == 0, answer
            member.heard_ms = self.bench.now_ms
            if is_lost and member.epoch > 0:
                return
            member.epoch = answer.member_epoch
            assigned = given(answer)
            assert assigned is not None
            member.owned = assigned

    # The world

    @rule(ms=st.sampled_from([1, 900, 11_000, 29_000]))
    def time_goes_on(self, ms: int) -> None:
        self.bench.pass_time(ms)
        for member in self.members.values():
            # A client that was not heard for so long knows that it is out.
            if self.bench.now_ms - member.heard_ms >= 30_000:
                member.start_anew()

    @rule()
    def patterns_are_looked_up(self) -> None:
        self.bench.run_background()

    @rule(name=TOPICS, partitions=st.integers(1, 6))
    def a_topic_grows_or_comes(self, name: str, partitions: int) -> None:
        known = self.bench.topics.by_name(name)
        self.bench.topics.put(name, max(partitions, 0 if known is None else len(known.partitions)))

    @rule(name=TOPICS)
    def a_topic_goes(self, name: str) -> None:
        if self.bench.topics.by_name(name) is not None:
            self.bench.topics.delete(name)

    @rule()
    def the_broker_starts_again(self) -> None:
        self.bench.restart()

    @rule(name=NAMES)
    def a_write_fails(self, name: str) -> None:
        self.bench.coordinator.is_failing = True
        if name in self.members:
            self.beat(name)
        self.bench.coordinator.is_failing = False

    # What must be true

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        seen: dict[tuple[UUID, int], str] = {}
        for name, member in getattr(self, "members", {}).items():
            for topic, numbers in member.owned.items():
                for number in numbers:
                    assert (topic, number) not in seen, f"{name} and {seen[topic, number]} own {topic}-{number}"
                    seen[topic, number] = name

    def teardown(self) -> None:
        """If nothing happens any more, every subscribed partition has an owner that knows it."""
        if not getattr(self, "members", None):
            return
        bench = self.bench
        for _ in range(14):
            bench.pass_time(5_000)
            bench.run_background()
            for name in self.members:
                self.beat(name)
                self.no_partition_has_two_owners()
        group = bench.group()
        assert set(group.members) == set(self.members)
        assert group.state == "Stable"
        wanted: set[tuple[UUID, int]] = set()
        for name, member in self.members.items():
            known = group.members[name]
            assert member.epoch == known.epoch == group.epoch == group.target_epoch
            assert {topic: set(numbers) for topic, numbers in known.assigned.items()} == member.owned
            for topic in bench.topics.all():
                if topic.name in member.topics or (member.pattern and _matches(member.pattern, topic.name)):
                    wanted |= {(topic.topic_id, number) for number in topic.partitions}
        held = {
            (topic, number)
            for member in self.members.values()
            for topic, numbers in member.owned.items()
            for number in numbers
        }
        assert held == wanted


def _matches(pattern: str, name: str) -> bool:
    return pattern == ".*" or name in pattern.split("|")


TestGroups = Groups.TestCase
TestGroups.settings = settings(stateful_step_count=30)
