"""A broker that is polled: its topics, where their partitions begin and end, their sizes, their configs, and groups.

If the broker stops answering, its last facts stay, marked offline, with a note; the next refresh after it is back
updates them. A partition without a leader does not affect the others. Facts that change rarely are fetched rarely:
configs, and the sizes of a broker that does not report them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from duralog.client.connection import admin_client, admin_module, error_text, errors_of, kafka_client
from duralog.client.groups import BrokerGroups, GroupView
from duralog.client.log_dirs import log_dir_sizes
from duralog.errors import DuralogError

Place = tuple[str, int]

_ANSWER_SECONDS = 5.0
_SLOW_REFRESHES = 10
"""Configs are fetched once in this many refreshes, and when there is a new topic."""
_GROUP_REFRESHES = 2
_DEFAULT_SOURCE = 5
_POLICY = "cleanup.policy"


class BrokerPartition(NamedTuple):
    leader: int | None
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """A broker at one refresh."""

    cluster_id: str | None = None
    node_id: int | None = None
    partitions: Mapping[Place, BrokerPartition] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each topic, those that are not the defaults."""
    policies: Mapping[str, str] = field(default_factory=dict)
    sizes_note: str | None = None


class BrokerWatch:
    """`refresh` is for one thread at a time. It raises `DuralogError` if the broker does not answer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = kafka_client()
        self._admin: Any = None
        self._refreshes = 0
        self._configs: dict[str, dict[str, str]] = {}
        self._policies: dict[str, str] = {}
        self._sizes: Mapping[Place, int] = {}
        self._sizes_note: str | None = None
        self._connecting = threading.Lock()

    def admin(self) -> Any:
        with self._connecting:
            if self._admin is None:
                self._admin = admin_client(self.address)
            return self._admin

    def refresh(self) -> BrokerView:
        self._refreshes += 1
        try:
            with errors_of(self.address):
                return self._read()
        except DuralogError:
            # The next refresh starts with a new connection: this one may wait forever.
            with self._connecting:
                self._admin = None
            raise

    def _read(self) -> BrokerView:
        admin = self.admin()
        metadata = admin.list_topics(timeout=_ANSWER_SECONDS)
        leaders: dict[Place, int | None] = {}
        for name, topic in metadata.topics.items():
            for number, partition in topic.partitions.items():
                leaders[name, number] = partition.leader if partition.leader >= 0 else None
        topics = sorted(metadata.topics)
        is_due = self._refreshes % _SLOW_REFRESHES == 1
        if is_due or set(topics) != set(self._configs):
            self._read_configs(admin, topics)
        if is_due or self._sizes_note is None:
            self._read_sizes(metadata.brokers.values(), leaders)
        served = [place for place, leader in leaders.items() if leader is not None]
        starts, ends = self.offsets(served, latest=False), self.offsets(served, latest=True)
        controller = metadata.controller_id
        return BrokerView(
            cluster_id=metadata.cluster_id,
            node_id=controller if controller >= 0 else None,
            partitions={
                place: _partition(leader, starts.get(place), ends.get(place), self._sizes.get(place))
                for place, leader in sorted(leaders.items())
            },
            configs=dict(self._configs),
            policies=dict(self._policies),
            sizes_note=self._sizes_note,
        )

    def offsets(
        self, places: Iterable[Place], *, latest: bool, is_committed: bool = False
    ) -> dict[Place, int | DuralogError]:
        """The end or start offsets of partitions, or why an offset is not known."""
        types = admin_module()
        spec = types.OffsetSpec.latest() if latest else types.OffsetSpec.earliest()
        found: dict[Place, int | DuralogError] = {}
        for place, answer in self._answers(places, spec, is_committed=is_committed).items():
            try:
                found[place.topic, place.partition] = int(answer.result().offset)
            except self._client.KafkaException as error:
                found[place.topic, place.partition] = DuralogError(error_text(error.args[0]))
        return found

    def latest_timestamp_ms(self, place: Place) -> int | None:
        found = self._answers([place], admin_module().OffsetSpec.max_timestamp(), is_committed=False)
        for answer in found.values():
            with errors_of(self.address):
                timestamp_ms = int(answer.result().timestamp)
                return timestamp_ms if timestamp_ms >= 0 else None
        return None

    def _answers(self, places: Iterable[Place], spec: Any, *, is_committed: bool) -> dict[Any, Any]:
        asked = {self._client.TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        levels = self._client.IsolationLevel
        level = levels.READ_COMMITTED if is_committed else levels.READ_UNCOMMITTED
        answers: dict[Any, Any] = self.admin().list_offsets(
            asked, isolation_level=level, request_timeout=_ANSWER_SECONDS
        )
        return answers

    def _read_configs(self, admin: Any, topics: list[str]) -> None:
        types = admin_module()
        resources = {types.ConfigResource(types.ResourceType.TOPIC, name): name for name in topics}
        self._configs = {name: {} for name in topics}
        self._policies = {}
        if not resources:
            return
        for resource, answer in admin.describe_configs([*resources], request_timeout=_ANSWER_SECONDS).items():
            name = resources[resource]
            try:
                entries = answer.result()
            except self._client.KafkaException:
                continue  # It was deleted meanwhile, or may not be read.
            self._configs[name] = {
                entry.name: entry.value or ""
                for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
                if entry.source != _DEFAULT_SOURCE
            }
            if _POLICY in entries:
                self._policies[name] = entries[_POLICY].value or ""

    def _read_sizes(self, brokers: Iterable[Any], leaders: Mapping[Place, int | None]) -> None:
        sizes: dict[Place, int] = {}
        self._sizes_note = None
        for broker in brokers:
            try:
                found = log_dir_sizes(broker.host, broker.port)
            except DuralogError as error:
                self._sizes_note = f"The sizes of the logs are not known: {error}"
                continue
            # Of several replicas the leader's counts.
            sizes |= {place: size for place, size in found.items() if leaders.get(place) == broker.id}
        self._sizes = sizes


def _partition(
    leader: int | None, start: int | DuralogError | None, end: int | DuralogError | None, size_bytes: int | None
) -> BrokerPartition:
    if leader is None:
        return BrokerPartition(None, None, None, size_bytes, "no broker leads it at the moment")
    for found in (start, end):
        if not isinstance(found, int):
            return BrokerPartition(
                leader, None, None, size_bytes, "its leader does not answer" if found is None else str(found)
            )
    assert isinstance(start, int)
    assert isinstance(end, int)
    return BrokerPartition(leader, start, max(end, start), size_bytes, None)


class BrokerGroupWatch:
    """The groups of a broker, as of its last answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._groups: BrokerGroups | None = None
        self._refreshes = 0
        self.views: tuple[GroupView, ...] = ()
        self.trouble: str | None = f"{address} has not been asked yet"
        """Why they are unknown or outdated; None if they are current."""

    def forget_connection(self) -> None:
        """Drop the connection to a broker that does not answer: waiting for it would take longer than a new
        connection.
        """
        self._groups = None

    def step(self) -> bool:
        """Returns whether the broker was asked and has answered."""
        self._refreshes += 1
        if self.trouble is None and self._refreshes % _GROUP_REFRESHES == 0:
            return False
        try:
            with errors_of(self._address):
                if self._groups is None:
                    self._groups = BrokerGroups(self._address)
                self.views, self.trouble = tuple(self._groups.views()), None
                return True
        except DuralogError as error:
            self._groups = None
            self.trouble = str(error)
            return False
