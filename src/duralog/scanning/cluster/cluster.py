"""The log directories of a cluster, opened together: topics, the copies of each partition, and which of them counts.

    with open_cluster(["backup/broker-*/data*"]) as cluster:
        for partition in cluster.all_partitions():
            copies = cluster.copies(partition)

Nodes are known by `meta.properties`, topics by the ids in `partition.metadata`. Configs, leaders and replicas come from
the newest cluster metadata in any of the directories; without any, the logs themselves decide (`choice`).

What must always be true: nothing is written, and a directory or a copy that cannot be read is a problem in the list,
which does not stop the others. Directories of two clusters are refused: their topics have nothing in common.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import TracebackType
from typing import Self

from duralog.config import TopicConfig
from duralog.config.plurals import plural
from duralog.errors import DuralogError, InvalidConfig, StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import Choice, Reason, choose, with_later_epochs
from duralog.scanning.cluster.directories import Paths, find_directories
from duralog.scanning.cluster.directory import ClusterDirectory, Copy
from duralog.scanning.cluster.problems import Problem, ProblemKind
from duralog.scanning.cluster.topic_ids import TopicIds
from duralog.scanning.locations import LocatedStore, Location
from duralog.scanning.remote_work import side_by_side
from duralog.storage.metadata.cluster_metadata import ClusterMetadata, PartitionRegistration

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The copies of one partition, those of another topic of the same name left out."""

    partition: TopicPartition
    copies: tuple[Copy, ...]
    """At least one."""
    choice: Choice
    registration: PartitionRegistration | None = None
    """Of the cluster metadata; None if it is older than the logs."""
    is_compacted: bool | None = None
    """By the config of the topic; None if that is not known."""
    problems: tuple[Problem, ...] = field(default=())
    others: tuple[tuple[ClusterDirectory, str], ...] = field(default=(), repr=False)
    """Folders of another topic of this name, and its id."""

    @property
    def chosen(self) -> Copy:
        return self.copies[self.choice.copy]

    @property
    def topic_id(self) -> str | None:
        return next((copy.topic_id for copy in self.copies if copy.topic_id is not None), None)

    @property
    def order(self) -> list[int]:
        """The numbers of the copies, in the order in which they are read: the chosen one, then those with the most."""
        choice = self.choice
        return sorted(range(len(self.copies)), key=lambda number: (number != choice.copy, -choice.agreed[number]))

    @property
    def dense_from(self) -> int | None:
        """The offset from which on a whole copy has every offset; None if that is not known.

        Below it, offsets may be compacted: by the copy's own cleaner, or by that of a leader it was fetched from. If
        no config is known, the cleaners' checkpoints decide.
        """
        if self.is_compacted:
            nodes = {copy.state.node_id for copy in self.copies}
            if self.registration is None or not nodes.issuperset(self.registration.replicas):
                return None
        return max((copy.state.cleaned_to or 0 for copy in self.copies), default=0)


class Cluster:
    """Use it as a context manager. Several threads may ask for copies, of different partitions."""

    def __init__(
        self, directories: Sequence[ClusterDirectory], problems: Iterable[Problem], metadata: ClusterMetadata | None
    ) -> None:
        self.directories = tuple(directories)
        self.problems = list(problems)
        """Of directories. Those of partitions are in `Copies.problems`."""
        self.metadata = metadata
        self.path = ", ".join(directory.url for directory in directories)
        self._holders: dict[TopicPartition, list[ClusterDirectory]] = defaultdict(list)
        for directory in directories:
            for partition in directory.partitions:
                self._holders[partition].append(directory)
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(self._holders):
            self._numbers[topic].append(number)
        self._ids = TopicIds(self._holders, metadata)
        self._copies: dict[TopicPartition, Copies] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for directory in self.directories:
            directory.close()

    @property
    def cluster_id(self) -> str | None:
        """All directories that have one have the same."""
        return next((each.meta.cluster_id for each in self.directories if each.meta.cluster_id is not None), None)

    @property
    def node_ids(self) -> set[int]:
        return {directory.node_id for directory in self.directories if directory.node_id is not None}

    @property
    def is_remote(self) -> bool:
        return any(directory.location.is_remote for directory in self.directories)

    # What `select_partitions` asks for.

    def topics(self) -> list[str]:
        return list(self._numbers)

    def partitions(self, topic: str) -> list[int]:
        if topic not in self._numbers:
            raise UnknownTopic(f"there is no topic {topic} in {self.path}")
        return self._numbers[topic]

    def all_partitions(self) -> list[TopicPartition]:
        """Kafka's internal topics included, `__cluster_metadata` not. Sorted."""
        return sorted(self._holders)

    def missing_partitions(self) -> list[tuple[TopicPartition, PartitionRegistration]]:
        """Partitions of the metadata of which no directory has a copy."""
        if self.metadata is None:
            return []
        return [
            (partition, registration)
            for topic in self.metadata.topics.values()
            for number, registration in topic.partitions.items()
            if (partition := TopicPartition(topic.name, number)) not in self._holders
        ]

    def load(self, partitions: Iterable[TopicPartition]) -> Iterator[Copies | Problem]:
        """The copies of these partitions, or why there is none that can be read; from object stores side by side."""
        wanted = list(partitions)
        self._ids.load({partition.topic for partition in wanted}, is_remote=self.is_remote)
        for directory in self.directories:
            if isinstance(directory.store, LocatedStore):
                directory.store.list_ahead(partition for partition in wanted if partition in directory.partitions)
        return side_by_side(self._copies_or_problem, wanted, is_remote=self.is_remote)

    def copies(self, partition: TopicPartition) -> Copies:
        """Raises `StorageError` if no copy can be read."""
        found = self._copies.get(partition)
        if found is None:
            found = self._copies[partition] = self._find(partition)
        return found

    def topic_config(self, copies: Copies) -> TopicConfig:
        """By the cluster metadata; otherwise by what the directory of the chosen copy has stored."""
        if self.metadata is None or copies.partition.topic not in self.metadata.topics:
            return copies.chosen.log.config
        return TopicConfig().with_stored(self.metadata.topic_configs(copies.partition.topic))

    def _copies_or_problem(self, partition: TopicPartition) -> Copies | Problem:
        try:
            return self.copies(partition)
        except DuralogError as error:
            directory = self._holders[partition][0].url
            return Problem(ProblemKind.NO_GOOD_COPY, directory, str(error), partition)

    def _find(self, partition: TopicPartition) -> Copies:
        problems: list[Problem] = []
        copies: list[Copy] = []
        others: list[tuple[ClusterDirectory, str]] = []
        topic_id = self._ids.of(partition)
        for directory, found_id in self._ids.of_folders(partition).items():
            if found_id is not None and topic_id is not None and found_id != topic_id:
                others.append((directory, found_id))
                continue
            try:
                copies.append(directory.copy(partition, found_id))
            except DuralogError as error:
                problems.append(
                    Problem(ProblemKind.UNREADABLE_COPY, directory.url, f"cannot read this copy: {error}", partition)
                )
        by_time = self._ids.decided_by_time(partition.topic)
        problems += [
            Problem(
                ProblemKind.OTHER_TOPIC,
                directory.url,
                f"this folder belongs to another topic of this name, with the id {found_id}, not {topic_id}:"
                f" it is left out{by_time}",
                partition,
            )
            for directory, found_id in others
        ]
        if not copies:
            raise StorageError(f"{partition}: no copy can be read: {'; '.join(map(str, problems))}")
        registration = self._registration(partition, topic_id)
        states = with_later_epochs(
            [copy.state for copy in copies], [copy.observed_epochs for copy in copies], registration
        )
        copies = [replace(copy, state=state) for copy, state in zip(copies, states, strict=True)]
        choice = choose(states, registration)
        problems += _cut_copies(copies)
        return Copies(
            partition=partition,
            copies=tuple(copies),
            choice=choice,
            registration=None if choice.reason is Reason.METADATA_STALE else registration,
            is_compacted=self._is_compacted(partition.topic, topic_id),
            problems=tuple(problems),
            others=tuple(others),
        )

    def _registration(self, partition: TopicPartition, topic_id: str | None) -> PartitionRegistration | None:
        topic = None if self.metadata is None else self.metadata.topics.get(partition.topic)
        if topic is None or topic_id not in (None, topic.topic_id):
            return None
        return topic.partitions.get(partition.partition)

    def _is_compacted(self, name: str, topic_id: str | None) -> bool | None:
        topic = None if self.metadata is None else self.metadata.topics.get(name)
        if self.metadata is None or topic is None or topic_id not in (None, topic.topic_id):
            return None
        policy = self.metadata.topic_configs(name).get("cleanup.policy")
        if policy is None:
            return None if any(self._is_set_for_brokers()) else False
        return "compact" in policy

    def _is_set_for_brokers(self) -> Iterator[bool]:
        assert self.metadata is not None
        for node in self.node_ids:
            yield "log.cleanup.policy" in self.metadata.broker_configs(node)


def open_cluster(paths: Paths, storage_options: Mapping[str, str] | None = None) -> Cluster:
    """Open the directories that are named by paths, globs or manifests (`directories`)."""
    locations, problems = find_directories(paths, storage_options)
    opened: list[ClusterDirectory] = []
    errors: list[DuralogError] = []
    for found in side_by_side(_open, locations, is_remote=any(location.is_remote for location in locations)):
        if isinstance(found, ClusterDirectory):
            opened.append(found)
        else:
            location, error = found
            errors.append(error)
            problems.append(
                Problem(ProblemKind.UNREADABLE_DIRECTORY, location.url, f"cannot open this directory: {error}")
            )
    try:
        if not opened:
            raise errors[0]
        _refuse_several_clusters(opened)
        metadata, of_metadata = _newest_metadata(opened)
        of_directories = [problem for directory in opened for problem in directory.problems]
        of_owners = [*_without_owner(opened), *_same_directories(opened)]
        cluster = Cluster(opened, [*problems, *of_directories, *of_metadata, *of_owners], metadata)
        cluster.problems += _missing_nodes(cluster)
    except BaseException:
        for directory in opened:
            directory.close()
        raise
    return cluster


def _open(location: Location) -> ClusterDirectory | tuple[Location, DuralogError]:
    try:
        return ClusterDirectory(location)
    except DuralogError as error:
        return location, error


def _refuse_several_clusters(directories: Sequence[ClusterDirectory]) -> None:
    by_cluster: dict[str, list[str]] = defaultdict(list)
    for directory in directories:
        if directory.meta.cluster_id is not None:
            by_cluster[directory.meta.cluster_id].append(directory.url)
    if len(by_cluster) > 1:
        listed = "; ".join(
            f"cluster {cluster_id}: {', '.join(urls[:_MOST_NAMED])}{' ...' if len(urls) > _MOST_NAMED else ''}"
            for cluster_id, urls in by_cluster.items()
        )
        raise InvalidConfig(f"the directories belong to {len(by_cluster)} clusters: give those of one. {listed}")


def _newest_metadata(directories: Sequence[ClusterDirectory]) -> tuple[ClusterMetadata | None, list[Problem]]:
    problems: list[Problem] = []
    newest: ClusterMetadata | None = None
    for directory in directories:
        try:
            found = directory.read_metadata()
        except DuralogError as error:
            text = f"cannot read the cluster metadata in this directory: {error}"
            problems.append(Problem(ProblemKind.METADATA_UNREADABLE, directory.url, text))
            continue
        if found is not None and (newest is None or _age(found) > _age(newest)):
            newest = found
    return newest, problems


def _age(metadata: ClusterMetadata) -> tuple[int, int]:
    return metadata.writing_epoch, metadata.next_offset


def _without_owner(directories: Sequence[ClusterDirectory]) -> Iterator[Problem]:
    """If none has an owner, they are folders of partitions that were collected: that is not a problem."""
    if all(directory.node_id is None for directory in directories):
        return
    for directory in directories:
        if directory.node_id is None and not directory.problems:
            text = "it has no meta.properties: its node is not known, nor whether it belongs to this cluster"
            yield Problem(ProblemKind.OWNER_MISSING, directory.url, f"{text}. Restore the file from a backup")


def _same_directories(directories: Sequence[ClusterDirectory]) -> Iterator[Problem]:
    for first, second in combinations(directories, 2):
        if first.node_id is None or first.node_id != second.node_id:
            continue
        shared = len(first.partitions & second.partitions)
        if first.meta.directory_id is not None and first.meta.directory_id == second.meta.directory_id:
            text = (
                f"this and {first.url} are copies of the same directory of node {first.node_id}"
                f" (directory.id {first.meta.directory_id}): both count as copies; give only the newer one"
            )
            yield Problem(ProblemKind.SAME_DIRECTORY, second.url, text)
        elif shared:
            text = (
                f"this and {first.url} belong to node {first.node_id}, and both have {plural(shared, 'partition')}:"
                " they count as copies; check that one is not an older backup"
            )
            yield Problem(ProblemKind.TWICE_ON_NODE, second.url, text)


def _missing_nodes(cluster: Cluster) -> Iterator[Problem]:
    if cluster.metadata is None:
        return
    missing: Counter[int] = Counter()
    for topic in cluster.metadata.topics.values():
        for registration in topic.partitions.values():
            missing.update(set(registration.replicas) - cluster.node_ids)
    without_copy: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, registration in sorted(cluster.missing_partitions(), key=lambda found: found[0]):
        for node in registration.replicas:
            without_copy[node].append(partition)
    for node, count in sorted(missing.items()):
        text = f"node {node}, which has replicas of {plural(count, 'partition')}, is missing: give its log directories"
        if lost := without_copy[node]:
            text += f"; without them, {plural(len(lost), 'partition')} cannot be read, first {lost[0]}"
        yield Problem(ProblemKind.NODE_MISSING, cluster.path, text)


def _cut_copies(copies: Sequence[Copy]) -> Iterator[Problem]:
    advice = "files are missing or cut; copy the folder again if its source still exists"
    for copy in copies:
        state = copy.state
        if state.high_watermark is not None and state.end_offset < state.high_watermark:
            text = (
                f"this copy ends at offset {state.end_offset}, before its own high watermark of {state.high_watermark}"
            )
            yield Problem(ProblemKind.CUT, copy.url, f"{text}: {advice}", copy.partition)
        if state.log_start_offset < state.start_offset:
            text = f"this copy starts at offset {state.start_offset}, after its first leader epoch: that starts at"
            yield Problem(ProblemKind.CUT, copy.url, f"{text} {state.log_start_offset}: {advice}", copy.partition)
