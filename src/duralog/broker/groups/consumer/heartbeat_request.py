"""A ConsumerGroupHeartbeat request, checked as far as that is possible without the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import INVALID_REQUEST, UNSUPPORTED_ASSIGNOR
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Request

_FIRST_VERSION_WITH_ID_OF_THE_CLIENT: Final = 1
_NO_TOPIC: Final = UUID(int=0)
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """None, or -1 for the timeout, means unchanged."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member sent all fields, as it does after an error: then it expects a full answer."""
        is_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and is_subscription and self.owned is not None


def read_heartbeat(request: Request, assignors: Sequence[str]) -> HeartbeatRequest:
    """Raises `GroupRefusal` with the first fault, in Kafka's order."""
    message = request.message
    epoch: int = message.member_epoch
    regex: str | None = optional(message, "subscribed_topic_regex")
    names = message.subscribed_topic_names
    if request.version >= _FIRST_VERSION_WITH_ID_OF_THE_CLIENT or epoch > 0 or epoch == LEAVING_EPOCH:
        _refuse_blank(message.member_id, "MemberId")
    _refuse_blank(message.group_id, "GroupId")
    _refuse_blank(message.instance_id, "InstanceId")
    _refuse_blank(message.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        if message.rebalance_timeout == -1:
            raise GroupRefusal(INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if message.topic_partitions is None or message.topic_partitions:
            raise GroupRefusal(INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if names is None and regex is None:
            raise GroupRefusal(
                INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif epoch == STATIC_LEAVING_EPOCH:
        if message.instance_id is None:
            raise GroupRefusal(INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise GroupRefusal(INVALID_REQUEST, "MemberEpoch is invalid.")
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise GroupRefusal(
            UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    return HeartbeatRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=epoch,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout,
        topic_names=None if names is None else frozenset(names),
        topic_regex=regex,
        server_assignor=message.server_assignor,
        owned=None if message.topic_partitions is None else _owned(message.topic_partitions),
    )


def _owned(topics: Sequence[Any]) -> Assignment:
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = topic.topic_id or _NO_TOPIC
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip(_JAVA_BLANKS):
        raise GroupRefusal(INVALID_REQUEST, f"{name} can't be empty.")
