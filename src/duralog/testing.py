"""A real broker for tests: in this process, on a free port, in a temporary directory that is removed at the end.

With pytest, either `from duralog.testing import kafka_broker` in a `conftest.py` or `-p duralog.testing`, and then:

    def test_orders(kafka_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})

A schema registry, for serializers that need one, is the fixture `schema_registry`: its address.

    def test_typed_orders(kafka_broker, schema_registry):
        client = SchemaRegistryClient({"url": schema_registry})

Without pytest, or with other configs, under Kafka's names:

    with running_broker({"num.partitions": 3}) as broker, broker.schema_registry() as url:
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)

Groups form at once instead of after three seconds, and the internal topics have one partition each; everything else is
as in `duralog serve`. The broker runs in a thread, so a test that keeps Python busy slows it down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address, WebAddress
from duralog.config import BrokerConfig

if TYPE_CHECKING:
    from duralog.storage.store import Store

__all__ = ["TestBroker", "kafka_broker", "running_broker", "schema_registry"]

_QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@dataclass(frozen=True, slots=True)
class TestBroker:
    """A running broker."""

    __test__ = False
    """Not a test, despite its name."""

    host: str
    port: int
    store: Store
    """The store of the broker. A test may read it, create topics in it and append to them: clients see these.

    Such an append does not wake a waiting fetch, which sees it after `fetch.max.wait.ms`. Delete topics through a
    client, not here: the broker would still show them.
    """
    _broker: Broker

    @property
    def bootstrap_servers(self) -> str:
        """For the config of clients."""
        return f"{self.host}:{self.port}"

    @contextmanager
    def schema_registry(self) -> Iterator[str]:
        """The address of a schema registry during the block. Its schemas are in the broker's topic `_schemas`."""
        server = self._broker.serve_schema_registry(WebAddress(Address(self.host, 0)))
        try:
            yield f"http://{server.address}"
        finally:
            server.close()


@contextmanager
def running_broker(config: Mapping[str, object] | None = None, data: str | None = None) -> Iterator[TestBroker]:
    """A broker during the block. With `data`, it serves that directory and keeps it."""
    with Broker(data, config=BrokerConfig.of({**_QUICK, **(config or {})})) as broker:
        broker.start()
        yield TestBroker(broker.node.host, broker.node.port, broker.store, broker)


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def kafka_broker() -> Iterator[TestBroker]:
        """A separate broker for each test, for real Kafka clients."""
        with running_broker() as broker:
            yield broker

    @pytest.fixture
    def schema_registry(kafka_broker: TestBroker) -> Iterator[str]:
        """The address of a schema registry that keeps its schemas in `kafka_broker`."""
        with kafka_broker.schema_registry() as url:
            yield url
