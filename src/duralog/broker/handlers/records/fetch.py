"""Fetch (1), versions 4 to 18: slices of logs, sent unchanged.

Sessions (from version 7) are `duralog.broker.fetch.sessions`, waiting is `duralog.broker.fetch.purgatory`, what is read
and refused is `duralog.broker.fetch.reading`. The rack of a client is ignored: there is one replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.fetch.purgatory import Fetch, Fetches
from duralog.broker.fetch.reading import FetchLimits
from duralog.broker.fetch.response import FIRST_WITH_TOPIC_IDS, encode, throttled
from duralog.broker.fetch.sessions import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION, Key
from duralog.broker.fetch.wanted import Wanted
from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.runtime import Runtime
from duralog.broker.topics.leadership import NO_EPOCH
from duralog.broker.topics.partition import NO_TOPIC_ID
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.log.isolation import Isolation
from duralog.storage.metadata.acls import CLUSTER_NAME, Operation, ResourceType

_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_LEADER_EPOCHS = 9
_FIRST_WITH_SEEN_EPOCHS = 12
_FIRST_WITH_REPLICA_STATE = 15
_READ, _TOPIC = int(Operation.READ), int(ResourceType.TOPIC)
_ISOLATIONS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)


def handle(
    runtime: Runtime,
    partitions: Partitions,
    fetches: Fetches,
    authorizer: Authorizer | None,
    quotas: ClientQuotas,
    request: Request,
) -> Answer:
    message, version = request.message, request.version
    if not 0 <= message.isolation_level < len(_ISOLATIONS):
        return refuse(request, error_codes.UNKNOWN_SERVER_ERROR, None)
    max_bytes = min(message.max_bytes, runtime.config.fetch_max_bytes)
    quota = quotas.of_fetch(request)
    if quota is not None:
        max_bytes = min(max_bytes, quota.most_bytes)
    is_replica = _is_replica(message, version)
    may_read = None if authorizer is None else _reader(authorizer, request, is_replica=is_replica)
    limits = FetchLimits(max_bytes, _ISOLATIONS[message.isolation_level], is_replica, may_read)
    asked = _asked(partitions, message, version)
    session = None
    wants_session = False
    if version >= _FIRST_WITH_SESSIONS:
        session_id, epoch = message.session_id, message.session_epoch
        if epoch in (FIRST_EPOCH, FINAL_EPOCH):
            fetches.sessions.close(session_id)
            wants_session = epoch == FIRST_EPOCH
        else:
            uses_topic_ids = version >= FIRST_WITH_TOPIC_IDS
            found = fetches.sessions.take_turn(session_id, epoch, uses_topic_ids=uses_topic_ids)
            if isinstance(found, int):
                return encode((), version, session_id=NO_SESSION, node_id=runtime.node.node_id, error_code=found)
            found.update(asked.values(), _forgotten(message, version))
            if found.wanted:
                if not fetches.sessions.use(found):
                    code = error_codes.FETCH_SESSION_ID_NOT_FOUND
                    return encode((), version, session_id=NO_SESSION, node_id=runtime.node.node_id, error_code=code)
                session = found
            else:
                fetches.sessions.close(session_id)
    return fetches.fetch(
        Fetch(
            version,
            # A copy: another request of the session must not change what this one waits for.
            asked.values() if session is None else tuple(session.wanted.values()),
            limits,
            min_bytes=min(message.min_bytes, max_bytes),
            max_wait_ms=message.max_wait,
            session=session,
            wants_session=wants_session,
            quota=quota,
        )
    )


def _reader(authorizer: Authorizer, request: Request, *, is_replica: bool) -> Callable[[str], bool]:
    """READ of each topic; of a follower CLUSTER_ACTION."""
    if is_replica:
        may_all = authorizer.allows(request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return lambda _: may_all
    allows = authorizer.allows
    return lambda name: allows(request, _READ, _TOPIC, name)


def _asked(partitions: Partitions, message: Any, version: int) -> dict[Key, Wanted]:
    """The partitions of the request in its order; if one is named twice, the last one counts."""
    asked: dict[Key, Wanted] = {}
    for topic in message.topics:
        name: str | None
        topic_id: bytes | None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id = NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes
            name = partitions.topic_name(topic_id)
        else:
            topic_id, name = None, topic.topic
        for one in topic.partitions:
            wanted = Wanted(
                name,
                topic_id,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch if version >= _FIRST_WITH_LEADER_EPOCHS else NO_EPOCH,
                one.last_fetched_epoch if version >= _FIRST_WITH_SEEN_EPOCHS else NO_EPOCH,
            )
            asked[wanted.key] = wanted
    return asked


def _forgotten(message: Any, version: int) -> list[Key]:
    keys: list[Key] = []
    for topic in message.forgotten_topics_data:
        if version >= FIRST_WITH_TOPIC_IDS:
            name: str | bytes = NO_TOPIC_ID if topic.topic_id is None else topic.topic_id.bytes
        else:
            name = topic.topic
        keys += [(name, number) for number in topic.partitions]
    return keys


def _is_replica(message: Any, version: int) -> bool:
    if version >= _FIRST_WITH_REPLICA_STATE:
        return bool(message.replica_state.replica_id >= 0)
    return bool(message.replica_id >= 0)


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    """Clients that know topic ids understand one error for all; older ones look at each partition."""
    del message
    topics = () if request.version >= FIRST_WITH_TOPIC_IDS else request.message.topics
    return {
        "error_code": error_code,
        "session_id": optional(request.message, "session_id", NO_SESSION),
        "responses": [
            {
                "topic": topic.topic,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "error_code": error_code,
                        "high_watermark": -1,
                        "aborted_transactions": [],
                        "records": b"",
                    }
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ],
    }


API = Api(1, "Fetch", 4, 18, handle, refuse, throttled=throttled)
