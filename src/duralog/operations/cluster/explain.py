"""Which copy of each partition counts in the directories of a cluster, why, and what the other copies have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duralog.errors import UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.workers import ignore_result
from duralog.scanning.cluster.cluster import Cluster, open_cluster
from duralog.scanning.cluster.explained import ExplainedPartition, explained
from duralog.scanning.cluster.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    paths: Sequence[str]
    """Of log directories: paths, URLs, globs and manifests."""
    choice: Choice = EVERYTHING
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport:
    directories: int
    nodes: int
    partitions: int
    problems: tuple[Problem, ...]
    """Of directories, and of partitions without a copy that can be read."""
    unreadable: int
    """Partitions without a copy that can be read."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "summary",
            "directories": self.directories,
            "nodes": self.nodes,
            "partitions": self.partitions,
            "unreadable": self.unreadable,
        }


def explain(
    request: ClusterRequest, *, on_partition: Callable[[ExplainedPartition], None] = ignore_result
) -> ExplainReport:
    """`on_partition` is called with each partition, by topic and number."""
    with open_cluster(list(request.paths), request.storage_options) as cluster:
        problems = list(cluster.problems)
        count = unreadable = 0
        for found in cluster.load(chosen_partitions(cluster, request.choice)):
            if isinstance(found, Problem):
                problems.append(found)
                unreadable += 1
                continue
            count += 1
            on_partition(explained(found))
        return ExplainReport(
            directories=len(cluster.directories),
            nodes=len(cluster.node_ids),
            partitions=count,
            problems=tuple(problems),
            unreadable=unreadable,
        )


def chosen_partitions(cluster: Cluster, choice: Choice) -> list[TopicPartition]:
    """Raises `UnknownTopic` for a topic or partition of which no directory has a copy."""
    for topic in choice.topics or ():
        cluster.partitions(topic)
    found = [partition for partition in cluster.all_partitions() if choice.includes(partition)]
    if not found and choice.partition is not None:
        whose = "any topic" if choice.topics is None else ", ".join(choice.topics)
        raise UnknownTopic(f"{cluster.path}: there is no partition {choice.partition} of {whose}")
    return found
