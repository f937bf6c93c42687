"""Why a copy of a partition counts, and what the other copies have: for people and for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.directory import Copy
from duralog.scanning.cluster.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCopy:
    node_id: int | None
    directory: str
    is_chosen: bool
    is_leader: bool | None
    """By the cluster metadata; None if it does not have the partition."""
    is_in_sync: bool | None
    start_offset: int
    end_offset: int
    same_to: int
    """Up to this offset, the copy has the same batches as the chosen one."""
    leader_epoch: int
    high_watermark: int | None
    size_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        """Beginning with the node and the directory."""
        node = "" if self.node_id is None else f"node {self.node_id}, "
        words = {"leader": self.is_leader, "in sync": self.is_in_sync}
        roles = "".join(f", {word}" for word, applies in words.items() if applies)
        return (
            f"{node}{self.directory}: offsets {self.start_offset} to {self.end_offset}, the same to {self.same_to},"
            f" leader epoch {self.leader_epoch}{roles}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPartition:
    partition: TopicPartition
    topic_id: str | None
    reason: str
    start_offset: int
    high_watermark: int
    high_watermark_source: str
    end_offset: int
    copies: tuple[ExplainedCopy, ...]
    missing_nodes: tuple[int, ...]
    """Nodes that have a replica by the metadata, and no copy in the directories."""
    problems: tuple[Problem, ...]

    @property
    def chosen(self) -> ExplainedCopy:
        return next(copy for copy in self.copies if copy.is_chosen)

    def __str__(self) -> str:
        """A line for the chosen copy, and one for each of the others."""
        lines = [
            f"{self.partition}: offsets {self.start_offset} to {self.high_watermark} from {self.chosen.directory}:"
            f" {self.reason}"
        ]
        lines += [f"  also {copy}" for copy in self.copies if not copy.is_chosen]
        lines += [f"  missing: node {node}" for node in self.missing_nodes]
        return "\n".join([*lines, *(f"  {problem.directory}: {problem.text}" for problem in self.problems)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "topic_id": self.topic_id,
            "node_id": self.chosen.node_id,
            "directory": self.chosen.directory,
            "reason": self.reason,
            "start_offset": self.start_offset,
            "high_watermark": self.high_watermark,
            "high_watermark_source": self.high_watermark_source,
            "end_offset": self.end_offset,
            "copies": [copy.to_dict() for copy in self.copies],
            "missing_nodes": list(self.missing_nodes),
            "problems": [problem.to_dict() for problem in self.problems],
        }


def explained(found: Copies) -> ExplainedPartition:
    choice = found.choice
    return ExplainedPartition(
        partition=found.partition,
        topic_id=found.topic_id,
        reason=choice.reason.value,
        start_offset=choice.start_offset,
        high_watermark=choice.high_watermark,
        high_watermark_source=choice.watermark_source.value,
        end_offset=choice.end_offset,
        copies=tuple(_explained_copies(found)),
        missing_nodes=missing_nodes(found),
        problems=found.problems,
    )


def missing_nodes(found: Copies) -> tuple[int, ...]:
    if found.registration is None:
        return ()
    return tuple(sorted(set(found.registration.replicas) - {copy.state.node_id for copy in found.copies}))


def _explained_copies(found: Copies) -> Iterator[ExplainedCopy]:
    registration = found.registration

    def by_metadata(copy: Copy, nodes: Sequence[int]) -> bool | None:
        return None if registration is None else copy.state.node_id in nodes

    for number, copy in enumerate(found.copies):
        state = copy.state
        yield ExplainedCopy(
            node_id=state.node_id,
            directory=copy.url,
            is_chosen=number == found.choice.copy,
            is_leader=by_metadata(copy, () if registration is None else (registration.leader,)),
            is_in_sync=by_metadata(copy, () if registration is None else registration.isr),
            start_offset=state.start_offset,
            end_offset=state.end_offset,
            same_to=found.choice.agreed[number],
            leader_epoch=state.last_epoch,
            high_watermark=state.high_watermark,
            size_bytes=copy.size_bytes,
        )
