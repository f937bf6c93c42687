"""A broker with a schema registry, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net import http_server
from duralog.broker.net.listening import Address
from tests.support.broker.registry_client import RegistryClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patched, Broker(None, schema_registry=Address("127.0.0.1", 0)) as broker:
        # A test on a busy machine may be slow.
        patched.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 60.0)
        yield broker.start()


@pytest.fixture
def client(broker: Broker) -> RegistryClient:
    return RegistryClient(broker)
