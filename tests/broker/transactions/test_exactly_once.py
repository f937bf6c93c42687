"""Read, process, write, again and again, while `duralog serve` is killed: every record comes out once.

A loop copies records from one topic to another; a transaction holds the copies and the offsets of what was read. At a
step of the loop that chance picks, the broker gets SIGKILL and starts again on its directory. In the end, readers of
committed data find every record once: none lost, none twice.

`DURALOG_KILLS` says how often it is killed, for a longer run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import duralog
from oracle.kafka_jars import KafkaMissingError, class_path
from oracle.kafka_server import reserved_ports

KILLS = int(os.environ.get("DURALOG_KILLS", "4"))
PARTITIONS = 2
RECORDS_PER_KILL = 60
MOST_IN_A_TRANSACTION = 10
ABORT_EVERY = 6
SOURCE, TARGET = "readings", "results"
WAIT_SECONDS = 60
PATIENCE = 600
"""Polls of a tenth of a second that bring nothing, one after the other, until the test gives up."""
QUICKLY: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    # When the only broker goes, librdkafka 2.16 otherwise starts over, and may wait for connections of before.
    "metadata.recovery.strategy": "none",
    "log_level": 2,
}
CONFIGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "log.index.size.max.bytes": 65_536,
}


class Served:
    """`duralog serve` in a process of its own, always on the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Nobody else gets the port while no broker has it.
        (self._reserved,) = reserved_ports(1)
        self.address = f"127.0.0.1:{self._reserved.getsockname()[1]}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "duralog", "serve", "--data", str(self.directory), "--listen", self.address]
        for name, value in CONFIGS.items():
            command += ["--override", f"{name}={value}"]
        with (self.directory.parent / "stderr").open("a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready" in ready, (self.directory.parent / "stderr").read_text()[-4_000:]
        return process

    def kill_and_start(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._reap()
        self._process = self._start()

    def stop(self) -> None:
        self._process.terminate()
        assert self._reap() == 0

    def end(self) -> None:
        """If it still runs, end it somehow."""
        if self._process.poll() is None:
            self._process.kill()
            self._reap()
        self._reserved.close()

    def _reap(self) -> int:
        code = self._process.wait(WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class Killer:
    """Kills the broker at random steps of the loop, some of them in the middle of the step."""

    def __init__(self, served: Served, seed: int) -> None:
        self._served = served
        self._random = random.Random(seed)
        self._under_way: threading.Thread | None = None
        self._next = self._random.randrange(3, 12)
        self.kills = 0

    def at(self, _step: str) -> None:
        """A step of the loop is about to be made."""
        if self.kills == KILLS:
            self.wait()
            return
        self._next -= 1
        if self._next > 0:
            return
        self._next = self._random.randrange(3, 18)
        self.kills += 1
        self.wait()
        delay_seconds = self._random.choice((0, 0.001, 0.003, 0.01))
        self._under_way = threading.Thread(target=self._kill, args=(delay_seconds,))
        self._under_way.start()
        if self._random.random() < 0.5:
            # The step finds no broker, or a new one; otherwise it is killed in the middle of the step.
            self.wait()

    def _kill(self, delay_seconds: float) -> None:
        threading.Event().wait(delay_seconds)
        self._served.kill_and_start()

    def wait(self) -> None:
        if self._under_way is not None:
            self._under_way.join()
            self._under_way = None


class Copier:
    """The loop: one transaction after the other, until everything is copied."""

    def __init__(self, address: str, killer: Killer, wanted: int) -> None:
        self._address = address
        self._at = killer.at
        self._wanted = wanted
        self.producers = 0
        self._copied: dict[int, int] = {}
        """By partition, up to which offset."""
        self.transactions = 0
        self.aborted = 0
        self._producer = self._new_producer()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 45_000,
                **QUICKLY,
            }
        )
        self._consumer.subscribe([SOURCE])

    def _new_producer(self) -> Producer:
        self.producers += 1
        producer = Producer({"bootstrap.servers": self._address, "transactional.id": "copier", **QUICKLY})
        _persist(lambda: producer.init_transactions(WAIT_SECONDS))
        return producer

    def run(self) -> None:
        idle = 0
        while not self._is_done():
            messages = self._consumer.consume(MOST_IN_A_TRANSACTION, timeout=0.1)
            read = [message for message in messages if message.error() is None]
            idle = 0 if read else idle + 1
            assert idle < PATIENCE, "nothing more comes"
            if read:
                self._copy(read)
        self._consumer.close()

    def _is_done(self) -> bool:
        return sum(self._copied.values()) == self._wanted

    def _copy(self, messages: list[Message]) -> None:
        try:
            self._at("begin")
            self._producer.begin_transaction()
            read_up_to: dict[int, int] = {}
            for message in messages:
                partition, offset = _place(message)
                self._producer.produce(TARGET, message.value(), partition=partition)
                read_up_to[partition] = offset + 1
            self._at("produced")
            self._producer.flush(0.05)
            self._at("offsets")
            positions = [TopicPartition(SOURCE, *each) for each in read_up_to.items()]
            metadata = self._consumer.consumer_group_metadata()
            _persist(lambda: self._producer.send_offsets_to_transaction(positions, metadata, WAIT_SECONDS))
            self._at("end")
            self.transactions += 1
            if self.transactions % ABORT_EVERY == 0:
                self._undo(None)
            else:
                _persist(lambda: self._producer.commit_transaction(WAIT_SECONDS))
                self._copied |= read_up_to
        except KafkaException as refused:
            self._undo(refused.args[0])

    def _undo(self, error: KafkaError | None) -> None:
        """Abort, and read again from what is committed."""
        self.aborted += 1
        try:
            if error is not None and error.fatal():
                self._producer = self._new_producer()
            else:
                _persist(lambda: self._producer.abort_transaction(WAIT_SECONDS))
        except KafkaException:
            self._producer = self._new_producer()
        assigned = self._consumer.assignment()
        committed = _persist(lambda: self._consumer.committed(assigned, WAIT_SECONDS))
        for partition in committed:
            # It may be that the transaction was committed, and that only the answer was lost.
            self._copied[partition.partition] = max(partition.offset, 0)
            self._consumer.seek(TopicPartition(SOURCE, partition.partition, max(partition.offset, 0)))


def _place(message: Message) -> tuple[int, int]:
    """Of a message that was read: its partition and its offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _persist(ask: Callable[[], Any]) -> Any:
    """Ask again as long as the client says that it may help."""
    for _ in range(PATIENCE):
        try:
            return ask()
        except KafkaException as refused:
            error = refused.args[0]
            if error.fatal() or error.txn_requires_abort() or not error.retriable():
                raise
    raise AssertionError("the broker does not come back")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "data")
    try:
        yield served
    finally:
        served.end()


def fill(address: str) -> int:
    """The records to copy, each with a value of its own. Returns how many they are."""
    admin = AdminClient({"bootstrap.servers": address, **QUICKLY})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)])
    for future in made.values():
        future.result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, **QUICKLY})
    count = RECORDS_PER_KILL * max(KILLS, 1)
    for number in range(count):
        producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0
    return count


def check_results(served: Served, count: int) -> None:
    """Every record is there once, and no transaction is left open."""
    served.stop()
    with duralog.open(served.directory, read_only=True) as store:
        logs = [store.partition(TARGET, number) for number in range(PARTITIONS)]
        assert [log.last_stable_offset for log in logs] == [log.end_offset for log in logs]
        found: Counter[bytes | None] = Counter(
            record.value for log in logs for record in log.read(0, isolation="read_committed")
        )
    wanted: Counter[bytes | None] = Counter(str(number).encode() for number in range(count))
    assert found - wanted == Counter(), "more than once"
    assert wanted - found == Counter(), "lost"


def test_every_record_comes_out_once(served: Served) -> None:
    count = fill(served.address)
    killer = Killer(served, seed=7)
    copier = Copier(served.address, killer, count)
    copier.run()
    killer.wait()
    assert killer.kills == KILLS
    assert copier.aborted
    check_results(served, count)


@pytest.mark.interop
def test_every_record_comes_out_once_of_kafkas_own_copier(served: Served) -> None:
    """Of its system tests. It has transactions of version 2, and aborts some as it likes."""
    count = fill(served.address)
    killer = Killer(served, seed=8)
    for partition in range(PARTITIONS):
        for _ in range(2 * KILLS + 2):
            if run_copier(served, partition, killer):
                break
        else:
            raise AssertionError("the copier does not come to its end")
    killer.wait()
    assert killer.kills == KILLS
    check_results(served, count)


def run_copier(served: Served, partition: int, killer: Killer) -> bool:
    """Copy a partition while the broker is killed. Returns whether all is copied: it may give up."""
    try:
        path = class_path()
    except KafkaMissingError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka must run in CI: {reason}")
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path]
    command += ["org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", served.address]
    command += ["--input-topic", SOURCE, "--input-partition", str(partition), "--output-topic", TARGET]
    command += ["--consumer-group", f"java-{partition}", "--transactional-id", f"java-{partition}"]
    command += ["--transaction-size", "2", "--enable-random-aborts"]
    log = served.directory / f"{TARGET}-{partition}" / "00000000000000000000.log"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copier:
        seen = log.stat().st_size
        while copier.poll() is None:
            threading.Event().wait(0.002)
            # It does not tell its steps: that it has written more is one.
            if log.stat().st_size > seen:
                killer.at("written")
                seen = log.stat().st_size
        return copier.returncode == 0
