"""The clients of a campaign, each in a thread: what they do goes into a history, whatever the broker does meanwhile.

Transactions append to lists, some are aborted; an idempotent producer appends single values, and the latest value of
each key to a compacted topic; a group copies the single values in transactions, with its offsets; a reader follows the
lists. A client that loses its broker tries again until it is there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.torture.history import History, Outcome, Reading, Transaction
from tests.torture.journal import Stall

LISTS, SINGLES, COPIES, LATEST = "lists", "singles", "copies", "latest"
PARTITIONS = {LISTS: 4, SINGLES: 2, COPIES: 2, LATEST: 1}
KEYS = 40
_CALL_SECONDS = 5
_ABORT_EVERY = 6
_MOST_IN_FLIGHT = 50
_PADDING = "." * 150
_PAUSE_SECONDS = 0.005
"""Between transactions: the broker is to be loaded, not the machine."""
logging.getLogger("torture").setLevel(logging.CRITICAL + 1)
_QUIET: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
    "logger": logging.getLogger("torture"),
    "error_cb": lambda _: None,
}


Connection = Mapping[str, str]
"""How a client reaches the broker, in librdkafka's configs."""


def list_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class Progress:
    """What each client has tried and achieved, and the longest time in which nothing was acknowledged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tried = 0
        self.acknowledged: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.calls: dict[str, tuple[str, float]] = {}
        """By client: the latest call, and when it began."""
        self._last = time.monotonic()
        self.longest_stall = Stall(self._last, self._last, {}, "")

    def try_one(self) -> None:
        with self._lock:
            self.tried += 1

    def acknowledge(self, client: str) -> None:
        with self._lock:
            self.acknowledged[client] += 1
            now = time.monotonic()
            if now - self._last > self.longest_stall.seconds:
                self.longest_stall = Stall(self._last, now, dict(self.calls), client)
            self._last = now

    def call(self, client: str, what: str) -> None:
        with self._lock:
            self.calls[client] = (what, time.monotonic())

    def see(self, client: str) -> None:
        with self._lock:
            self.read[client] += 1

    def of(self, client: str) -> int:
        return self.acknowledged[client] + self.read[client]


class Client(threading.Thread):
    """One client. `finish` lets it end what it has begun."""

    def __init__(self, name: str, connection: Connection, progress: Progress, seed: int) -> None:
        super().__init__(name=name)
        self.connection = connection
        self.progress = progress
        self.random = Random(seed)
        self.failure: BaseException | None = None
        self._finishing = threading.Event()

    def finish(self) -> None:
        self._finishing.set()

    @property
    def is_finishing(self) -> bool:
        return self._finishing.is_set()

    def pause(self) -> None:
        self._finishing.wait(_PAUSE_SECONDS)

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def persist(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call again as long as the client library says that it may help."""
        while True:
            self.progress.call(self.name, call.__name__)
            try:
                return call(*arguments)
            except KafkaException as refused:
                error: KafkaError = refused.args[0]
                if error.fatal() or error.txn_requires_abort() or not error.retriable():
                    raise

    def transactional_producer(self) -> Producer:
        """One that has taken over from those before it with the same id."""
        settings = {"transactional.id": self.name, "transaction.timeout.ms": 30_000, "linger.ms": 1}
        while True:
            producer = Producer({**self.connection, **settings, **_QUIET})
            try:
                self.persist(producer.init_transactions, _CALL_SECONDS)
            except KafkaException:
                time.sleep(0.1)
                continue
            return producer


class ListClient(Client):
    """Transactions of a few appends to any of the lists."""

    def __init__(self, name: str, connection: Connection, progress: Progress, seed: int, history: History) -> None:
        super().__init__(name, connection, progress, seed)
        self._history = history
        self._values = 0
        self.aborted = self.unknown = 0

    def work(self) -> None:
        producer = self.transactional_producer()
        while not self.is_finishing:
            transaction = Transaction(self.name, time.monotonic())
            self._history.transactions.append(transaction)
            self.progress.try_one()
            if not self._append(producer, transaction):
                self.unknown += 1
                producer = self.transactional_producer()
            self.pause()

    def _append(self, producer: Producer, transaction: Transaction) -> bool:
        """Whether the producer can be used again."""
        is_commit_asked = False
        try:
            producer.begin_transaction()
            for _ in range(self.random.randint(1, 4)):
                partition = self.random.randrange(PARTITIONS[LISTS])
                self._values += 1
                value = f"{self.name}/{self._values}"
                transaction.appends.append((list_name(LISTS, partition), value))
                producer.produce(LISTS, value + _PADDING, key=value, partition=partition)
            if self.random.randrange(_ABORT_EVERY) == 0:
                producer.flush(self.random.choice((0, 0.02)))
                self.persist(producer.abort_transaction, _CALL_SECONDS)
                transaction.outcome = Outcome.ABORTED
                self.aborted += 1
            else:
                is_commit_asked = True
                self.persist(producer.commit_transaction, _CALL_SECONDS)
                transaction.outcome = Outcome.COMMITTED
                self.progress.acknowledge(self.name)
            transaction.ended = time.monotonic()
        except (KafkaException, BufferError) as refused:
            error = refused.args[0]
            if isinstance(error, KafkaError) and error.txn_requires_abort():
                try:
                    self.persist(producer.abort_transaction, _CALL_SECONDS)
                except KafkaException:
                    return False
                if not is_commit_asked:
                    transaction.outcome, transaction.ended = Outcome.ABORTED, time.monotonic()
                self.aborted += 1
                return True
            return False
        return True


class SingleClient(Client):
    """Single appends of an idempotent producer, and the latest number of each key of the compacted topic."""

    def __init__(self, name: str, connection: Connection, progress: Progress, seed: int, history: History) -> None:
        super().__init__(name, connection, progress, seed)
        self._history = history
        self._numbers = 0
        self.acknowledged_latest: dict[str, int] = {}
        self.latest_count = 0
        """How many records of the compacted topic were acknowledged."""
        self.sent_latest: dict[str, int] = {}

    def work(self) -> None:
        producers = 0
        while not self.is_finishing:
            producers += 1
            # Not ordered from one producer to the next: what the one before has sent may be written late.
            client = f"{self.name}/{producers}"
            settings = {"enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000}
            producer = Producer({**self.connection, **settings, **_QUIET})
            self._produce(producer, client)
            producer.flush(_CALL_SECONDS * 30)

    def _produce(self, producer: Producer, client: str) -> None:
        """Until the producer fails for good, or it is time to finish."""
        failed = threading.Event()
        while not self.is_finishing and not failed.is_set():
            if len(producer) < _MOST_IN_FLIGHT:
                self._produce_one(producer, client, failed)
            producer.poll(_PAUSE_SECONDS)

    def _produce_one(self, producer: Producer, client: str, failed: threading.Event) -> None:
        self._numbers += 1
        number, partition = self._numbers, self.random.randrange(PARTITIONS[SINGLES])
        transaction = Transaction(
            client, time.monotonic(), [(list_name(SINGLES, partition), f"single {number}")], is_single=True
        )
        self._history.transactions.append(transaction)
        self.progress.call(self.name, "produce")
        key = f"key {self.random.randrange(KEYS)}"
        self.sent_latest[key] = number
        self.progress.try_one()

        def single_done(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.set()
                return
            transaction.outcome, transaction.ended = Outcome.COMMITTED, time.monotonic()
            self.progress.acknowledge(self.name)

        def latest_done(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.latest_count += 1
                self.acknowledged_latest[key] = max(self.acknowledged_latest.get(key, 0), number)

        try:
            producer.produce(SINGLES, f"single {number}", partition=partition, on_delivery=single_done)
            producer.produce(LATEST, str(number) + _PADDING, key=key, on_delivery=latest_done)
        except (KafkaException, BufferError):
            failed.set()


class CopyClient(Client):
    """A group that copies the single values, in transactions that hold its offsets."""

    def work(self) -> None:
        producer = self.transactional_producer()
        consumer = Consumer(
            {
                **self.connection,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **_QUIET,
            }
        )
        consumer.subscribe([SINGLES])
        try:
            while not (self.is_finishing and self._is_through(consumer)):
                read = [each for each in consumer.consume(50, timeout=0.1) if each.error() is None]
                if read:
                    self.progress.try_one()
                    producer = self._copy(producer, consumer, read)
        finally:
            consumer.close()

    def _is_through(self, consumer: Consumer) -> bool:
        try:
            assigned = [TopicPartition(SINGLES, number) for number in range(PARTITIONS[SINGLES])]
            committed = self.persist(consumer.committed, assigned, _CALL_SECONDS)
            ends = [self.persist(consumer.get_watermark_offsets, each, _CALL_SECONDS)[1] for each in assigned]
        except KafkaException:
            return False
        return all(each.offset == end or end == 0 for each, end in zip(committed, ends, strict=True))

    def _copy(self, producer: Producer, consumer: Consumer, read: list[Message]) -> Producer:
        try:
            producer.begin_transaction()
            positions: dict[int, int] = {}
            for message in read:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                producer.produce(COPIES, message.value(), partition=partition)
                positions[partition] = offset + 1
            offsets = [TopicPartition(SINGLES, *each) for each in positions.items()]
            group = consumer.consumer_group_metadata()
            self.persist(producer.send_offsets_to_transaction, offsets, group, _CALL_SECONDS)
            self.persist(producer.commit_transaction, _CALL_SECONDS)
            self.progress.acknowledge(self.name)
            return producer
        except (KafkaException, BufferError):
            producer = self._undone(producer)
            self._rewind(consumer)
            return producer

    def _undone(self, producer: Producer) -> Producer:
        try:
            self.persist(producer.abort_transaction, _CALL_SECONDS)
            return producer
        except KafkaException:
            return self.transactional_producer()

    def _rewind(self, consumer: Consumer) -> None:
        """To what is committed: the transaction may have been, although its answer was lost."""
        while True:
            try:
                assigned = consumer.assignment()
                committed = consumer.committed(assigned, _CALL_SECONDS)
                for each in committed:
                    consumer.seek(TopicPartition(SINGLES, each.partition, max(each.offset, 0)))
                return
            except KafkaException:
                time.sleep(0.1)


class ReadClient(Client):
    """Follows the lists from their start, as a reader of committed values. It finishes when it has seen them all.

    REQUIRES: the writers have ended before it finishes.
    """

    def __init__(self, name: str, connection: Connection, progress: Progress, seed: int, history: History) -> None:
        super().__init__(name, connection, progress, seed)
        self._history = history
        self._readings = {
            number: Reading(name, list_name(LISTS, number), is_from_start=True) for number in range(PARTITIONS[LISTS])
        }
        history.readings += self._readings.values()

    def work(self) -> None:
        while not self._is_through():
            consumer = _reader(self.connection, self.name)
            consumer.assign(
                [
                    TopicPartition(LISTS, number, each.seen[-1][0] + 1 if each.seen else OFFSET_BEGINNING)
                    for number, each in self._readings.items()
                ]
            )
            try:
                # Now and then from a new connection, with a new session.
                for _ in range(self.random.randint(20, 100)):
                    for message in consumer.consume(200, timeout=0.1):
                        if message.error() is None:
                            self._see(message)
                    if self._is_through():
                        break
            finally:
                consumer.close()

    def _is_through(self) -> bool:
        """Whether it is to finish and has read as many values of each list as were committed."""
        if not self.is_finishing:
            return False
        committed = Counter(
            name
            for transaction in list(self._history.transactions)
            if transaction.outcome is Outcome.COMMITTED
            for name, _ in transaction.appends
        )
        for reading in self._readings.values():
            reading.least = committed[reading.name]
        return all(len(each.seen) >= each.least for each in self._readings.values())

    def _see(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self._readings[partition].seen.append((offset, value.decode().rstrip(".")))
        self.progress.see(self.name)


def _reader(connection: Connection, name: str) -> Consumer:
    settings = {
        "group.id": f"{name} of its own",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    return Consumer({**connection, **settings, **_QUIET})


def read_all(connection: Connection, topic: str) -> dict[int, list[tuple[int, bytes | None, str]]]:
    """Offset, key and value of all committed records of a topic, by partition."""
    consumer = _reader(connection, "last")
    found: dict[int, list[tuple[int, bytes | None, str]]] = {number: [] for number in range(PARTITIONS[topic])}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found])
    open_ones = set(found)
    deadline = time.monotonic() + 120
    try:
        while open_ones:
            assert time.monotonic() < deadline, f"{topic}: partitions {sorted(open_ones)} have not been read to the end"
            for message in consumer.consume(500, timeout=0.2):
                partition, offset, value, error = (
                    message.partition(),
                    message.offset(),
                    message.value(),
                    message.error(),
                )
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF and partition is not None:
                        open_ones.discard(partition)
                    continue
                assert partition is not None
                assert offset is not None
                assert value is not None
                key = message.key()
                found[partition].append((offset, key if isinstance(key, bytes) else None, value.decode().rstrip(".")))
    finally:
        consumer.close()
    return found
