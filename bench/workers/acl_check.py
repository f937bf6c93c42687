"""Small Produce requests to a broker with many access control lists, or without any: DIRECTORY ACLS REQUESTS PASSES."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.workers.broker_wire import TOPIC, Connection, batch_of, produce_request
from bench.workers.passes import timed
from duralog.broker.broker import Broker
from duralog.config import BrokerConfig
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from duralog.storage.store import Store

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_AT_ONCE = 100


def acls(count: int) -> list[Acl]:
    """One that lets the client write, and others: for other users, of other topics, every tenth by a prefix."""
    allowed = Permission.ALLOW
    made = [Acl(ResourceType.TOPIC, TOPIC, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, allowed)]
    for number in range(count - 1):
        pattern = PatternType.LITERAL if number % 10 else PatternType.PREFIXED
        user = f"User:user-{number % 500}"
        made.append(Acl(ResourceType.TOPIC, f"topic-{number}", pattern, user, "*", Operation.WRITE, allowed))
    return made


def produce(connection: Connection, requests: int) -> Callable[[], int]:
    request = produce_request(batch_of(100)[0], 0) * _AT_ONCE

    def work() -> int:
        for _ in range(requests // _AT_ONCE):
            connection.send(request)
            for _ in range(_AT_ONCE):
                connection.receive_answer()
        return requests

    return work


def measure(directory: str, count: int, requests: int, passes: int) -> None:
    config = BrokerConfig.of({"authorizer.class.name": _AUTHORIZER} if count else {})
    with Store(directory) as store:
        store.create_topic(TOPIC)
        store.create_acls(acls(count) if count else [])
    with Broker(directory, config=config) as broker:
        broker.start()
        with Connection((broker.address.host, broker.address.port)) as connection:
            timed(produce(connection, requests), passes, each=True)
        expected = (1 + passes) * (requests // _AT_ONCE) * _AT_ONCE
        if (appended := broker.store.partition(TOPIC, 0).end_offset) != expected:
            raise SystemExit(f"{appended:,} of {expected:,} records were appended")
        broker.stop()


if __name__ == "__main__":
    measure(sys.argv[1], *map(int, sys.argv[2:]))
