"""A broker on a directory whose loop and clocks the test moves: members and committers ask it by way of real bytes.

Every request and every answer goes through the codec of its version. A JoinGroup or SyncGroup that waits is a
`Waiting`; `pass_time` lets timers ring in their order. `crashed` opens what a kill at this moment would leave.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from duralog.broker.broker import Broker
from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.offsets.commits import Committer, TopicCommit
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.wire import messages
from duralog.broker.wire.request import DelayedAnswer, Request
from duralog.config import BrokerConfig
from duralog.format.internal.internal_topics import describe_record

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47

START_MS = 1_700_000_000_000
_STEP_MS = 100
_FEW = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.enable": False,
}

SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""A consumer's subscription, version 0: the topic `t`, no user data."""


class Waiting:
    """A request that was sent. Its answer comes now or later, once."""

    def __init__(self, api_key: int, version: int) -> None:
        self._api_key = api_key
        self._version = version
        self._answer: Any = None

    def deliver(self, fields: Any) -> None:
        assert self._answer is None, "one answer to a request"
        body = messages.encode_response(self._api_key, self._version, fields)
        self._answer = messages.decode_response(self._api_key, self._version, body)

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    @property
    def answer(self) -> Any:
        assert self._answer is not None, "the request still waits"
        return self._answer


class GroupDesk:
    def __init__(self, path: Path, configs: Mapping[str, object] | None = None, now_ms: int = START_MS) -> None:
        self.path = path
        self.configs = {**_FEW, **(configs or {})}
        self.now_ms = now_ms
        self.broker = Broker(
            str(path),
            config=BrokerConfig.of(self.configs),
            clock=lambda: self.now_ms,
            timer_clock=lambda: float(self.now_ms),
        ).open()
        self.groups = self.broker.groups

    def __enter__(self) -> GroupDesk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.broker.close()

    def restarted(self) -> GroupDesk:
        """A clean stop, and a start."""
        self.close()
        return GroupDesk(self.path, self.configs, self.now_ms)

    def crashed(self, to: Path) -> GroupDesk:
        """A start on what is on the disk now. This broker lives on, on its own directory."""
        shutil.copytree(self.path, to)
        return GroupDesk(to, self.configs, self.now_ms)

    # Topics

    def with_topics(self, **partitions: int) -> GroupDesk:
        """Make topics, and the one of the groups."""
        made: list[object] = []
        for name, count in partitions.items():
            self.broker.topics.create(name, count, {}, made.append)
        self.broker.topics.ensure_internal(CONSUMER_OFFSETS, made.append)
        while len(made) <= len(partitions):
            self.broker.run_pending()
        assert not [each for each in made if isinstance(each, Exception)]
        return self

    def topic_id(self, name: str) -> UUID:
        view = self.broker.topics.by_name(name)
        assert view is not None
        return view.topic_id

    def delete_topic(self, name: str) -> None:
        told: list[object] = []
        self.broker.topics.delete(name, told.append)
        while not told:
            self.broker.run_pending()
        assert not isinstance(told[0], Exception)

    def classic_group(self, group: str) -> ClassicGroup:
        found = self.groups.by_id[group]
        assert isinstance(found, ClassicGroup)
        return found

    # Requests

    def begin(self, api_key: int, version: int, client_id: str | None = "client", **fields: Any) -> Waiting:
        api = self.broker.apis[api_key]
        assert api.min_version <= version <= api.max_version
        body = messages.encode_request(api_key, version, fields)
        request = Request(
            api_key=api_key,
            version=version,
            correlation_id=1,
            client_id=client_id,
            message=messages.decode_request(api_key, version, body),
            body=memoryview(body),
            client_host="10.0.0.7",
        )
        waiting = Waiting(api_key, version)
        answer = api.bound_to(self.broker)(request)
        if isinstance(answer, DelayedAnswer):
            answer.deliver_to(waiting.deliver, lambda code, text: api.refuse(request, code, text))
        else:
            waiting.deliver(answer)
        return waiting

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        return self.begin(api_key, version, **fields).answer

    def pass_time(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while True:
            self.broker.run_pending()
            while self.broker.loop.timers.seconds_to_next(longest=1) == 0:
                self.broker.run_pending()
            if self.now_ms >= end_ms:
                return
            self.now_ms = min(self.now_ms + _STEP_MS, end_ms)

    # Members

    def join(self, group: str, member: str = "", *, version: int = 9, **changes: Any) -> Waiting:
        fields: dict[str, Any] = {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 60_000,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIBED_TO_T}],
            "reason": None,
            **changes,
        }
        return self.begin(JOIN, version, client_id=fields.pop("client_id", "client"), **fields)

    def member_id(self, group: str, **changes: Any) -> str:
        """The id that a new dynamic member has to join with."""
        answer = self.join(group, **changes).answer
        assert answer.error_code == 79
        member_id: str = answer.member_id
        return member_id

    def sync(self, group: str, member: str, generation: int, *, version: int = 5, **changes: Any) -> Waiting:
        assignments = changes.pop("assignments", {})
        fields: dict[str, Any] = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": name, "assignment": given} for name, given in assignments.items()],
            **changes,
        }
        return self.begin(SYNC, version, **fields)

    def heartbeat(self, group: str, member: str, generation: int, instance: str | None = None) -> int:
        fields = {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}
        code: int = self.ask(HEARTBEAT, 4, **fields).error_code
        return code

    def leave(self, group: str, *members: tuple[str, str | None]) -> list[int]:
        """The error codes for these, each with its instance id."""
        identities = [
            {"member_id": member, "group_instance_id": instance, "reason": "test"} for member, instance in members
        ]
        answer = self.ask(LEAVE, 5, group_id=group, members=identities)
        assert answer.error_code == 0
        return [member.error_code for member in answer.members]

    def stable(self, group: str, count: int = 1, **changes: Any) -> list[str]:
        """A stable group with this many members; the first one leads. Returns their ids."""
        members = [self.member_id(group, **changes) for _ in range(count)]
        joins = [self.join(group, member, **changes) for member in members]
        self.pass_time(0)
        generation = joins[0].answer.generation_id
        assert joins[0].answer.leader == members[0]
        shares = {member: f"share {place}".encode() for place, member in enumerate(members)}
        syncs = [self.sync(group, member, generation) for member in members[1:]]
        syncs.append(self.sync(group, members[0], generation, assignments=shares))
        assert {sync.answer.error_code for sync in syncs} == {0}
        return members

    def describe(self, group: str, version: int = 6) -> Any:
        return self.ask(DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=False).groups[0]

    def state(self, group: str) -> str:
        state: str = self.describe(group, 5).group_state
        return state

    # Offsets

    def commit(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member: str = "",
        generation: int = -1,
        version: int = 9,
        **changes: Any,
    ) -> dict[tuple[str, int], int]:
        """Commit, and return the error codes."""
        metadata = changes.pop("metadata", "")
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": 7,
                        "committed_metadata": metadata,
                    }
                ],
            }
            for (topic, partition), offset in offsets.items()
        ]
        answer = self.ask(
            OFFSET_COMMIT,
            version,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=topics,
            **changes,
        )
        return {
            (topic.name, partition.partition_index): partition.error_code
            for topic in answer.topics
            for partition in topic.partitions
        }

    def committed(self, group: str, *, stable: bool = False) -> dict[tuple[str, int], int]:
        """All that the group has; a negative number is an error, as what was committed is not."""
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        answer = self.ask(OFFSET_FETCH, 9, groups=[asked], require_stable=stable).groups[0]
        assert answer.error_code == 0
        return {
            (topic.name, partition.partition_index): -partition.error_code or partition.committed_offset
            for topic in answer.topics
            for partition in topic.partitions
        }

    def commit_in_transaction(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        producer_id: int,
        *,
        member: str = "",
        generation: int = -1,
    ) -> dict[tuple[str, int], int]:
        """As the handler of TxnOffsetCommit does when it has checked the transaction."""
        topics = [
            TopicCommit(topic, self.topic_id(topic), [PartitionCommit(partition, offset, -1, None)])
            for (topic, partition), offset in offsets.items()
        ]
        return self.groups.commits.commit_in_transaction(
            Committer(group, member, None, generation, version=3), topics, producer_id, producer_epoch=0
        )

    def end_transaction(self, group: str, producer_id: int, *, commit: bool) -> None:
        """The marker in the group's partition, and what follows from it."""
        number = self.groups.log.partition_for(group)
        self.broker.partitions.end_transaction(
            CONSUMER_OFFSETS,
            number,
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=0,
        )
        self.groups.complete_transaction(producer_id, number, commit)

    # The log

    def records(self, group: str | None = None) -> list[dict[str, Any]]:
        """What is in the log, of one group or of all."""
        found = []
        for number in self.broker.store.partitions(CONSUMER_OFFSETS):
            for record in self.broker.store.partition(CONSUMER_OFFSETS, number).read(0):
                described = describe_record(CONSUMER_OFFSETS, record.key, record.value)
                assert described is not None
                if group in (None, described["key"].get("group", described["key"].get("group_id"))):
                    found.append(described)
        return found

    def partition_of(self, group: str) -> Any:
        return self.broker.store.partition(CONSUMER_OFFSETS, self.groups.log.partition_for(group))
