"""The server's assignors: what must be true of every assignment, and what is even, sticky or in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from duralog.broker.groups.consumer.assignors import ASSIGNORS, Assignment, Subscriber, assign_range, assign_uniform

T1, T2, T3 = UUID(int=1), UUID(int=2), UUID(int=3)


def sizes(assignments: Mapping[str, Assignment]) -> dict[str, int]:
    return {member: sum(map(len, assignment.values())) for member, assignment in assignments.items()}


def owners(assignments: Mapping[str, Assignment]) -> dict[tuple[UUID, int], str]:
    found = {}
    for member, assignment in assignments.items():
        for topic, numbers in assignment.items():
            assert numbers
            for number in numbers:
                assert (topic, number) not in found
                found[topic, number] = member
    return found


def check_whole(
    members: Sequence[Subscriber], counts: Mapping[UUID, int], assignments: Mapping[str, Assignment]
) -> None:
    wanted = {topic for member in members for topic in member.topics}
    assert set(assignments) == {member.member_id for member in members}
    owned = owners(assignments)
    assert set(owned) == {(topic, number) for topic in wanted for number in range(counts[topic])}
    topics = {member.member_id: member.topics for member in members}
    assert all(topic in topics[member] for (topic, _), member in owned.items())


def moves(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions have another owner that had one before."""
    had, has = owners(before), owners(after)
    return sum(1 for partition, member in had.items() if partition in has and has[partition] != member)


@st.composite
def questions(draw: st.DrawFn, *, same_topics: bool) -> tuple[list[Subscriber], dict[UUID, int]]:
    counts = {UUID(int=number): draw(st.integers(1, 12)) for number in range(1, draw(st.integers(1, 4)) + 1)}
    everything = frozenset(counts)
    subsets = st.frozensets(st.sampled_from(sorted(counts)))
    count = draw(st.integers(1, 6))
    topics = [everything if same_topics else draw(subsets) for _ in range(count)]
    assigned: list[dict[UUID, set[int]]] = [{} for _ in range(count)]
    for topic, partitions in counts.items():
        for number in range(partitions):
            owner = draw(st.integers(-1, count - 1))
            if owner >= 0:
                assigned[owner].setdefault(topic, set()).add(number)
    # Topics that are gone, and topics that a member does not want any more.
    if draw(st.booleans()):
        assigned[0][UUID(int=99)] = {0, 1}
    members = [
        Subscriber(f"m{index}", topics[index], {topic: frozenset(numbers) for topic, numbers in given.items()})
        for index, given in enumerate(assigned)
    ]
    return members, counts


@given(questions(same_topics=True))
def test_uniform_with_equal_wishes_is_even_and_moves_no_more_than_it_must(
    question: tuple[list[Subscriber], dict[UUID, int]],
) -> None:
    members, counts = question
    assignments = assign_uniform(members, counts)
    check_whole(members, counts, assignments)
    total = sum(counts.values())
    assert max(sizes(assignments).values()) - min(sizes(assignments).values()) <= 1
    # Each member keeps as much as an even share lets it keep; of shares that are one larger there are so many.
    quota, extra = divmod(total, len(members))
    had = [sum(len(numbers) for topic, numbers in member.assigned.items() if topic in counts) for member in members]
    larger = min(extra, sum(count > quota for count in had))
    kept = sum(min(count, quota) for count in had) + larger
    before = {m.member_id: {t: n for t, n in m.assigned.items() if t in counts} for m in members}
    assert sum(had) - moves(before, assignments) == kept


@given(questions(same_topics=False))
def test_uniform_with_different_wishes_is_whole_and_cannot_be_made_more_even_by_one_move(
    question: tuple[list[Subscriber], dict[UUID, int]],
) -> None:
    members, counts = question
    assignments = assign_uniform(members, counts)
    check_whole(members, counts, assignments)
    size = sizes(assignments)
    for (topic, _), owner in owners(assignments).items():
        least = min(size[member.member_id] for member in members if topic in member.topics)
        assert size[owner] - least <= 1


@given(questions(same_topics=False))
def test_an_assignment_stays_if_nothing_changes(question: tuple[list[Subscriber], dict[UUID, int]]) -> None:
    members, counts = question
    for assign in ASSIGNORS.values():
        first = assign(members, counts)
        again = [Subscriber(m.member_id, m.topics, first[m.member_id], m.instance_id) for m in members]
        assert assign(again, counts) == first


@given(questions(same_topics=False))
def test_range_gives_runs_in_the_order_of_members(question: tuple[list[Subscriber], dict[UUID, int]]) -> None:
    members, counts = question
    assignments = assign_range(members, counts)
    check_whole(members, counts, assignments)
    for topic in counts:
        runs = [sorted(assignments[member.member_id].get(topic, ())) for member in members if topic in member.topics]
        assert [number for run in runs for number in run] == list(range(counts[topic] if runs else 0))
        lengths = [len(run) for run in runs]
        assert lengths == sorted(lengths, reverse=True)
        assert not lengths or lengths[0] - lengths[-1] <= 1


def test_range_gives_the_same_numbers_of_topics_with_as_many_partitions() -> None:
    members = [Subscriber(name, frozenset({T1, T2})) for name in ("b", "a", "c")]
    assignments = assign_range(members, {T1: 7, T2: 7})
    assert assignments["a"] == {T1: {0, 1, 2}, T2: {0, 1, 2}}
    assert assignments["b"] == {T1: {3, 4}, T2: {3, 4}}
    assert assignments["c"] == {T1: {5, 6}, T2: {5, 6}}


def test_range_takes_static_members_first_by_instance_and_not_by_member_id() -> None:
    members = [
        Subscriber("a", frozenset({T1})),
        Subscriber("x", frozenset({T1}), instance_id="i2"),
        Subscriber("y", frozenset({T1}), instance_id="i1"),
    ]
    assert assign_range(members, {T1: 3}) == {"y": {T1: {0}}, "x": {T1: {1}}, "a": {T1: {2}}}


def test_range_leaves_members_without_partitions_if_there_are_too_few() -> None:
    members = [Subscriber(name, frozenset({T1})) for name in "abc"]
    assert assign_range(members, {T1: 2}) == {"a": {T1: {0}}, "b": {T1: {1}}, "c": {}}


def test_uniform_hands_over_as_members_join_and_leave() -> None:
    topics = frozenset({T1})
    one = assign_uniform([Subscriber("a", topics)], {T1: 6})
    assert one == {"a": {T1: {0, 1, 2, 3, 4, 5}}}
    two = assign_uniform([Subscriber("a", topics, one["a"]), Subscriber("b", topics)], {T1: 6})
    assert two == {"a": {T1: {0, 1, 2}}, "b": {T1: {3, 4, 5}}}
    three = assign_uniform(
        [Subscriber("a", topics, two["a"]), Subscriber("b", topics, two["b"]), Subscriber("c", topics)], {T1: 6}
    )
    assert three == {"a": {T1: {0, 1}}, "b": {T1: {3, 4}}, "c": {T1: {2, 5}}}
    left = assign_uniform([Subscriber("a", topics, three["a"]), Subscriber("c", topics, three["c"])], {T1: 6})
    assert moves({name: three[name] for name in "ac"}, left) == 0
    assert sizes(left) == {"a": 3, "c": 3}


def test_uniform_shares_out_new_partitions_and_forgets_topics_that_are_gone() -> None:
    topics = frozenset({T1})
    members = [Subscriber("a", topics, {T1: frozenset({0}), T2: frozenset({0})}), Subscriber("b", topics)]
    assignments = assign_uniform(members, {T1: 4})
    assert owners(assignments)[T1, 0] == "a"
    assert sizes(assignments) == {"a": 2, "b": 2}


def test_uniform_gives_a_topic_of_one_subscriber_to_it_and_the_rest_to_the_others() -> None:
    members = [Subscriber("a", frozenset({T1, T2})), Subscriber("b", frozenset({T2}))]
    assignments = assign_uniform(members, {T1: 3, T2: 5})
    assert sizes(assignments) == {"a": 4, "b": 4}
    assert assignments["a"][T1] == {0, 1, 2}


def test_a_partition_that_two_members_claim_goes_to_one() -> None:
    both = {T1: frozenset({0, 1})}
    for topics in ({T1}, {T1, T3}):
        members = [Subscriber("a", frozenset({T1}), both), Subscriber("b", frozenset(topics), both)]
        check_whole(members, {T1: 2, T3: 1}, assign_uniform(members, {T1: 2, T3: 1}))


def test_nobody_gets_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign([], {T1: 3}) == {}
        assert assign([Subscriber("a", frozenset())], {}) == {"a": {}}
