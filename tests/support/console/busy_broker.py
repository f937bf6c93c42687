"""A broker that clients keep busy: one that writes all the time, and a group that reads some of it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import confluent_kafka

from oracle.kafka_server import reserved_ports
from tests.support.interop.served_directory import ServedDirectory

TOPIC = "clicks"
PARTITIONS = 2
GROUP = "counters"
LAG = 25
"""How far behind the group stays, at least."""

_CONFIGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "log.retention.ms": -1,
}
_PAUSE_SECONDS = 0.02
_WAIT_SECONDS = 60


class BusyBroker:
    """`duralog serve` under load. `stop` and `start` are the operator's; the writer retries meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Nobody else gets the port while no broker has it.
        (self._reserved,) = reserved_ports(1)
        self.start()
        self.address = self._serving.bootstrap
        self._leave = threading.Event()
        self._delivered = 0
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.address, "linger.ms": 5, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )
        for number in range(2 * LAG):
            self._send(number)
        assert self._producer.flush(_WAIT_SECONDS) == 0
        self._commit()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)

    def __enter__(self) -> BusyBroker:
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave.set()
        self._writer.join(_WAIT_SECONDS)
        self._serving.__exit__(kind, error, traceback)
        self._reserved.close()

    @property
    def delivered(self) -> int:
        """Records that the broker has acknowledged."""
        return self._delivered

    def send(self, key: bytes, value: bytes, partition: int = 0) -> int:
        """One record more, and its offset."""
        told: list[confluent_kafka.Message] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address, "log_level": 0})
        producer.produce(
            TOPIC, key=key, value=value, partition=partition, on_delivery=lambda _, message: told.append(message)
        )
        assert producer.flush(_WAIT_SECONDS) == 0
        assert told[0].error() is None
        offset = told[0].offset()
        assert offset is not None
        return offset

    def stop(self) -> None:
        self._serving.__exit__(None, None, None)

    def start(self) -> None:
        """Always on the same directory and port."""
        self._serving = ServedDirectory(
            self.directory, configs=_CONFIGS, listen=f"127.0.0.1:{self._reserved.getsockname()[1]}"
        )

    def _write(self) -> None:
        number = 0
        while not self._leave.wait(_PAUSE_SECONDS):
            for _ in range(5):
                self._send(number)
                number += 1
            self._producer.poll(0)
        self._producer.purge()
        self._producer.flush(1)

    def _send(self, number: int) -> None:
        self._producer.produce(
            TOPIC,
            key=b"visitor-%d" % (number % 50),
            value=b'{"click": %d}' % number,
            partition=number % PARTITIONS,
            on_delivery=self._count,
        )

    def _count(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        self._delivered += error is None

    def _commit(self) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": GROUP, "log_level": 0})
        consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        consumer.close()
