"""A broker with permissions: each module has its own, as the fixture `secured`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.broker.wire.principal import Principal
from tests.support.broker.raw_client import RawClient


@pytest.fixture
def audit_file(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def connected(secured: Broker) -> Iterator[Callable[[str], RawClient]]:
    clients: list[RawClient] = []

    def connect(name: str) -> RawClient:
        client = RawClient("127.0.0.1", secured.address.port)
        clients.append(client)
        client.ask(18, 0)
        secured.server.connections[-1].principal = Principal(name)
        return client

    yield connect
    for client in clients:
        client.close()
