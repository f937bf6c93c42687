"""Consumer groups without a broker around them: a clock that stands still, a log in memory, topics that are made up.

What is appended goes through the record formats, so that a group is what its bytes say. `restart` reads the log again
as the broker does: the last record of each key, in the order of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from duralog.broker.groups.classic.rebalance import ClassicRebalance
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.groups import ConsumerGroups
from duralog.broker.groups.consumer.replay import replay
from duralog.broker.groups.group import Group
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.handlers.groups import consumer_group_describe, consumer_group_heartbeat
from duralog.broker.net.log_lines import LogLines
from duralog.broker.net.timers import Timers
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import TopicView
from duralog.broker.wire.error_codes import GROUP_ID_NOT_FOUND, NOT_COORDINATOR
from duralog.broker.wire.messages import decode_request, decode_response, encode_request, encode_response
from duralog.broker.wire.request import Api, Fields, Request
from duralog.config import BrokerConfig
from duralog.format.internal.coordinator_records import (
    CoordinatorRecord,
    decode_coordinator_record,
    encode_coordinator_record,
)
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES

START_MS = 1_700_000_000_000


@dataclass(frozen=True)
class MadeUpTopic:
    name: str
    topic_id: UUID
    partitions: tuple[int, ...]


class MadeUpTopics:
    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, MadeUpTopic] = {}
        self._changed: list[Callable[[TopicView], None]] = []
        self._deleted: list[Callable[[TopicView], None]] = []

    def by_name(self, name: str) -> MadeUpTopic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> MadeUpTopic | None:
        return next((topic for topic in self._by_name.values() if topic.topic_id == topic_id), None)

    def all(self) -> Iterable[MadeUpTopic]:
        return self._by_name.values()

    def on_changed(self, tell: Callable[[TopicView], None]) -> None:
        self._changed.append(tell)

    def on_deleted(self, tell: Callable[[TopicView], None]) -> None:
        self._deleted.append(tell)

    def put(self, name: str, partitions: int) -> UUID:
        self.version += 1
        known = self._by_name.get(name)
        topic_id = UUID(int=self.version) if known is None else known.topic_id
        topic = self._by_name[name] = MadeUpTopic(name, topic_id, tuple(range(partitions)))
        for tell in self._changed:
            tell(cast(TopicView, topic))
        return topic_id

    def delete(self, name: str) -> None:
        self.version += 1
        topic = self._by_name.pop(name)
        for tell in self._deleted:
            tell(cast(TopicView, topic))


class LogInMemory:
    """In the place of the coordinator and of `__consumer_offsets`."""

    def __init__(self, runtime: Runtime, topics: MadeUpTopics, records: list[tuple[bytes, bytes | None]]) -> None:
        self.runtime = runtime
        self.topics = topics
        self._records = records
        self.by_id: dict[str, Group] = {}
        self.is_failing = False
        self.is_ready = True
        self.consumer_groups = ConsumerGroups(cast(LoggedGroups, self), cast(ClassicRebalance, None))

    @property
    def log(self) -> LogInMemory:
        return self

    def check_ready(self, _group_id: str) -> None:
        if not self.is_ready:
            raise GroupRefusal(NOT_COORDINATOR)

    def group(self, group_id: str) -> Group:
        if group_id not in self.by_id:
            raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.by_id[group_id]

    def append(self, _group_id: str, records: list[CoordinatorRecord], *, replay: bool = True) -> None:
        assert records
        if self.is_failing:
            raise GroupRefusal(NOT_COORDINATOR)
        encoded = [encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) for record in records]
        self._records += encoded
        for key, value in encoded if replay else ():
            self._replay(key, value)

    def load(self) -> None:
        last = {key: number for number, (key, _) in enumerate(self._records)}
        for number in sorted(last.values()):
            self._replay(*self._records[number])
        self.consumer_groups.loaded()

    def _replay(self, key: bytes, value: bytes | None) -> None:
        record = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, key, value)
        if record.type_id == 2:
            if record.value is None:
                self.by_id.pop(cast(Any, record.key)["group"], None)
            return
        replay(self.by_id, record)


class Bench:
    def __init__(self, topics: dict[str, int] | None = None, **configs: object) -> None:
        self.now_ms = START_MS
        self.topics = MadeUpTopics()
        for name, partitions in (topics or {}).items():
            self.topics.put(name, partitions)
        self.timers = Timers(lambda: self.now_ms)
        self.background: list[tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]] = []
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.config = BrokerConfig.of({"group.consumer.assignment.interval.ms": 0, **named})
        self.log: list[tuple[bytes, bytes | None]] = []
        self.features = {"group.version": 1}
        self.group_configs: dict[str, dict[str, str]] = {}
        self._start()

    def _start(self) -> None:
        bench = self

        class _Log:
            @property
            def end_offset(self) -> int:
                return bench.topics.version + 1

        runtime = SimpleNamespace(
            clock=lambda: self.now_ms,
            timers=self.timers,
            config=self.config,
            node=SimpleNamespace(rack=None),
            store=SimpleNamespace(
                features=self.features,
                partition=lambda *_: _Log(),
                configs_of=lambda _, group: self.group_configs.get(group, {}),
            ),
            background=SimpleNamespace(run=lambda work, then: self.background.append((work, then))),
            log_lines=LogLines(logging.getLogger("bench"), lambda: self.now_ms),
        )
        self.coordinator = LogInMemory(cast(Runtime, runtime), self.topics, self.log)
        self.parts = SimpleNamespace(runtime=runtime, topics=self.topics, groups=self.coordinator, authorizer=None)
        self.coordinator.load()

    def restart(self) -> None:
        self.timers = Timers(lambda: self.now_ms)
        self.background.clear()
        self.topics._changed.clear()
        self.topics._deleted.clear()
        self._start()

    def pass_time(self, ms: int) -> None:
        """Let the time go on, one timer after the other."""
        until = self.now_ms + ms
        while True:
            wait_ms = self.timers.seconds_to_next(1e9) * 1000
            if self.now_ms + wait_ms > until:
                break
            self.now_ms += round(wait_ms)
            self.timers.run_due(lambda work: work())
        self.now_ms = until

    def run_background(self) -> None:
        while self.background:
            work, then = self.background.pop(0)
            then(work(), None)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.coordinator.by_id[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # Requests, as a client sees them: encoded and decoded on the way

    def heartbeat(
        self, member_id: str, epoch: int, *, version: int = 1, group_id: str = "g", client_id: str = "c", **more: Any
    ) -> Any:
        fields = {"group_id": group_id, "member_id": member_id, "member_epoch": epoch, "topic_partitions": None, **more}
        return self._ask(consumer_group_heartbeat.API, version, fields, client_id)

    def join(self, member_id: str, *topics: str, **more: Any) -> Any:
        fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": list(topics)}
        return self.heartbeat(member_id, 0, **{**fields, **more})

    def describe(self, *group_ids: str, version: int = 1, operations: bool = False) -> Any:
        fields = {"group_ids": list(group_ids), "include_authorized_operations": operations}
        return self._ask(consumer_group_describe.API, version, fields, "c").groups

    def _ask(self, api: Api, version: int, fields: Fields, client_id: str) -> Any:
        body = memoryview(encode_request(api.key, version, fields))
        message = decode_request(api.key, version, body)
        answer = api.bound_to(self.parts)(Request(api.key, version, 1, client_id, message, body))
        assert isinstance(answer, dict)
        return decode_response(api.key, version, memoryview(encode_response(api.key, version, answer)))


def owned(*topics: tuple[UUID, Iterable[int]]) -> list[dict[str, Any]]:
    """Partitions as a heartbeat reports them."""
    return [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in topics]


def given(answer: Any) -> dict[UUID, set[int]] | None:
    """What a heartbeat's answer assigns; None if it says nothing of that."""
    if answer.assignment is None:
        return None
    return {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
