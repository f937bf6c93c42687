"""A broker for each test that wants one, and clients that say exactly what the test says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from duralog.broker.broker import Broker
from duralog.config import BrokerConfig
from tests.support.broker.raw_client import RawClient

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""Nothing waits for what a test does not have, and internal topics have few partitions."""


@pytest.fixture
def broker_config() -> dict[str, object]:
    """Configs of the test's broker, for a test module to replace."""
    return {}


@pytest.fixture
def broker(broker_config: dict[str, object]) -> Iterator[Broker]:
    """A broker of the test's own, which serves in a thread."""
    with Broker(None, config=BrokerConfig.of({**QUICK, **broker_config})) as broker:
        yield broker.start()


@pytest.fixture
def idle_broker(broker_config: dict[str, object]) -> Iterator[Broker]:
    """A broker whose loop does not run: the test calls handlers itself, and `run_pending` for what they leave."""
    with Broker(None, config=BrokerConfig.of({**QUICK, **broker_config})) as broker:
        yield broker


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[[], RawClient]]:
    """Makes clients of the test's broker."""
    clients: list[RawClient] = []

    def connect() -> RawClient:
        clients.append(RawClient("127.0.0.1", broker.address.port))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[[], RawClient]) -> RawClient:
    return connect()


@pytest.fixture
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what a kill leaves: it loses nothing that was written. A loss of power is another matter."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
