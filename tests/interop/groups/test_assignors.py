"""duralog's assignors and those of Kafka's group coordinator, with the same questions.

Where members want different topics, Kafka's own result depends on the order of a hash map of topic ids: there the two
are compared by how even they are and by how much moves. Everywhere else partition by partition.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from duralog.broker.groups.consumer.assignors import ASSIGNORS, Assignment, Subscriber
from duralog.format.uuids import uuid_text
from oracle.kafka_process import KafkaProcess

pytestmark = pytest.mark.interop

_CASES = 300


class Question:
    def __init__(self, assignor: str, members: list[Subscriber], counts: dict[UUID, int]) -> None:
        self.assignor = assignor
        self.members = members
        self.counts = counts

    def for_kafka(self) -> dict[str, Any]:
        return {
            "assignor": self.assignor,
            "topics": {uuid_text(topic.bytes): count for topic, count in self.counts.items()},
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.instance_id,
                    "topics": [uuid_text(topic.bytes) for topic in sorted(member.topics)],
                    "assigned": {uuid_text(topic.bytes): sorted(numbers) for topic, numbers in member.assigned.items()},
                }
                for member in self.members
            ],
        }

    def answer(self) -> dict[str, Assignment]:
        return ASSIGNORS[self.assignor](self.members, self.counts)


def ask(kafka: KafkaProcess, questions: list[Question]) -> list[dict[str, dict[str, list[int]]]]:
    answers: list[dict[str, dict[str, list[int]]]] = kafka.ask(
        command="assign", cases=[question.for_kafka() for question in questions]
    )["assignments"]
    return answers


def as_text(assignments: Mapping[str, Assignment]) -> dict[str, dict[str, list[int]]]:
    return {
        member: {uuid_text(topic.bytes): sorted(numbers) for topic, numbers in assignment.items()}
        for member, assignment in assignments.items()
    }


def sizes(answer: Mapping[str, Mapping[str, list[int]]]) -> list[int]:
    return sorted(sum(map(len, topics.values())) for topics in answer.values())


def kept(question: Question, answer: Mapping[str, Mapping[str, list[int]]]) -> int:
    return sum(
        len(numbers & set(answer[member.member_id].get(uuid_text(topic.bytes), ())))
        for member in question.members
        for topic, numbers in member.assigned.items()
    )


def questions(assignor: str, seed: int, *, topics: int, same: bool) -> list[Question]:
    dice = random.Random(seed)
    made = []
    for _ in range(_CASES):
        counts = {UUID(int=dice.getrandbits(128)): dice.randint(1, 12) for _ in range(dice.randint(1, topics))}
        ids = sorted(counts)
        members: list[Subscriber] = []
        taken: set[tuple[UUID, int]] = set()
        for number in range(dice.randint(1, 6)):
            wanted = frozenset(ids) if same else frozenset(dice.sample(ids, dice.randint(1, len(ids))))
            owned: dict[UUID, set[int]] = {}
            for topic in sorted(wanted):
                for partition in range(counts[topic]):
                    if (topic, partition) not in taken and dice.random() < 0.4:
                        taken.add((topic, partition))
                        owned.setdefault(topic, set()).add(partition)
            members.append(
                Subscriber(
                    f"member-{dice.randint(0, 99):02}-{number}",
                    wanted,
                    {topic: frozenset(numbers) for topic, numbers in owned.items()},
                    instance_id=f"instance-{dice.randint(0, 9)}-{number}" if dice.random() < 0.3 else None,
                )
            )
        made.append(Question(assignor, members, counts))
    return made


@pytest.mark.parametrize("same", [True, False])
def test_range_is_the_same(kafka: KafkaProcess, same: bool) -> None:
    asked = questions("range", 1, topics=4, same=same)
    for question, answer in zip(asked, ask(kafka, asked), strict=True):
        assert as_text(question.answer()) == answer


def test_uniform_of_one_topic_is_the_same(kafka: KafkaProcess) -> None:
    asked = questions("uniform", 2, topics=1, same=True)
    for question, answer in zip(asked, ask(kafka, asked), strict=True):
        assert as_text(question.answer()) == answer


def test_uniform_of_several_topics_is_as_even_and_as_sticky(kafka: KafkaProcess) -> None:
    asked = questions("uniform", 3, topics=4, same=True)
    for question, answer in zip(asked, ask(kafka, asked), strict=True):
        mine = as_text(question.answer())
        assert sizes(mine) == sizes(answer)
        assert kept(question, mine) == kept(question, answer)


def test_uniform_of_different_wishes_is_as_even_and_as_sticky(kafka: KafkaProcess) -> None:
    """Over all cases: in the single one, there is more than one way in which no move makes it more even."""
    asked = questions("uniform", 4, topics=4, same=False)
    mine_uneven = theirs_uneven = mine_kept = theirs_kept = 0
    for question, answer in zip(asked, ask(kafka, asked), strict=True):
        mine = as_text(question.answer())
        mine_uneven += sum(size * size for size in sizes(mine))
        theirs_uneven += sum(size * size for size in sizes(answer))
        mine_kept += kept(question, mine)
        theirs_kept += kept(question, answer)
    assert mine_uneven <= theirs_uneven
    assert mine_kept >= theirs_kept * 0.99
