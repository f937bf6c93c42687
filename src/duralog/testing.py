"""A real broker for a test: in this process, on a free port, in a temporary directory, gone at the end.

With pytest, either `from duralog.testing import kafka_broker` in a `conftest.py` or `-p duralog.testing`, and then:

    def test_orders(kafka_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})

Without pytest, or with configs of its own, under Kafka's names:

    with running_broker({"num.partitions": 3}) as broker:
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)

Groups form at once instead of after three seconds, and the internal topics have one partition each; everything else is
as `duralog serve` has it. The broker runs in a thread, so a test that keeps Python busy slows it down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duralog.broker.broker import Broker
from duralog.config import BrokerConfig

if TYPE_CHECKING:
    from duralog.storage.store import Store

__all__ = ["TestBroker", "kafka_broker", "running_broker"]

_QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@dataclass(frozen=True, slots=True)
class TestBroker:
    """A broker that runs."""

    __test__ = False
    """It is no test, whatever its name begins with."""

    host: str
    port: int
    store: Store
    """What the broker serves. A test may look at it, make topics in it and append to them: clients find those.

    A fetch that waits is not woken by such an append, and sees it when `fetch.max.wait.ms` is over. A topic is
    deleted by a client, not here: the broker would go on showing it.
    """

    @property
    def bootstrap_servers(self) -> str:
        """What clients are configured with."""
        return f"{self.host}:{self.port}"


@contextmanager
def running_broker(config: Mapping[str, object] | None = None, data: str | None = None) -> Iterator[TestBroker]:
    """A broker for the time of the block. With `data`, it serves that directory, and leaves it behind."""
    with Broker(data, config=BrokerConfig.of({**_QUICK, **(config or {})})) as broker:
        broker.start()
        yield TestBroker(broker.node.host, broker.node.port, broker.store)


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def kafka_broker() -> Iterator[TestBroker]:
        """A broker of this test's own, which real Kafka clients can use."""
        with running_broker() as broker:
            yield broker
