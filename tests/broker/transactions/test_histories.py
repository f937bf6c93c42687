"""Whatever producers, time and crashes do: what was committed is seen once, and nothing else is.

Histories are made by chance: producers of two transactional ids start, write to partitions, commit, abort, are replaced
and go on as if nothing had happened; transactions take too long; the broker stops, or is killed, and starts again.
The model knows what each producer was told.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duralog.broker.wire.error_codes import CONCURRENT_TRANSACTIONS, NONE
from duralog.errors import ProducerFenced
from duralog.format import record_batch
from duralog.format.record import Record
from tests.support.broker.desk_broker import DeskBroker

IDS = ("a", "b")
PARTITIONS = 2
TIMEOUT_MS = 60_000
LATEST = 4
"""So many of the last producers may do something."""
SMALL = {"log.index.size.max.bytes": 4_096}


@dataclass
class Client:
    """A producer as it sees itself. It may have been replaced long ago."""

    transactional_id: str
    version: int
    producer_id: int
    epoch: int
    sequences: dict[int, int] = field(default_factory=dict)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    """What it has written since its last transaction ended."""
    is_current: bool = True
    """Whether it may go on: nobody has replaced it, and its transaction did not take too long."""
    is_replaced: bool = False
    committed_last: bool | None = None
    """How its last transaction ended, if it has ended one."""

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="duralog-histories-"))
        self.starts = 0
        self.clients: list[Client] = []
        self.given: set[tuple[int, int]] = set()
        self.committed: list[set[bytes]] = [set() for _ in range(PARTITIONS)]
        self.values = 0

    @initialize()
    def open(self) -> None:
        self.broker = DeskBroker(self.folder / "0", SMALL)
        self.broker.make_topics(orders=PARTITIONS)

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.time_passes()
            for number in range(PARTITIONS):
                log = self.broker.store.partition("orders", number)
                assert log.last_stable_offset == log.end_offset
                seen = [record.value for record in log.read(0, isolation="read_committed")]
                assert len(seen) == len(set(seen))
                assert set(seen) == self.committed[number]
            self.broker.close()
        shutil.rmtree(self.folder)

    @invariant()
    def only_what_was_committed_is_seen(self) -> None:
        if hasattr(self, "broker"):
            for number in range(PARTITIONS):
                log = self.broker.store.partition("orders", number)
                assert {record.value for record in log.read(0, isolation="read_committed")} <= self.committed[number]

    # Producers

    @rule(transactional_id=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def starts_producer(self, transactional_id: str, version: int) -> None:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": TIMEOUT_MS}
        answer = self.broker.ask(22, 5, **fields)
        if answer.error_code == CONCURRENT_TRANSACTIONS:
            answer = self.broker.ask(22, 5, **fields)
        assert answer.error_code == NONE
        given = (answer.producer_id, answer.producer_epoch)
        assert given not in self.given
        self.given.add(given)
        for client in self.clients:
            if client.transactional_id == transactional_id:
                client.is_current = False
                client.is_replaced = True
                client.pending.clear()
        self.clients.append(Client(transactional_id, version, *given))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), number=st.integers(0, PARTITIONS - 1))
    def writes(self, data: st.DataObject, number: int) -> None:
        self._write(data.draw(st.sampled_from(self.clients[-LATEST:])), number)

    def _write(self, client: Client, number: int) -> None:
        if client.version < 2 and not self._add(client, number):
            return
        refused = self.broker.transactions.check_produce(
            client.transactional_id,
            client.producer_id,
            client.epoch,
            [("orders", number)],
            12 if client.version == 2 else 11,
        )
        assert bool(refused) is not client.is_current
        self.values += 1
        value = b"%d" % self.values
        sequence = client.sequences.get(number, 0)
        batch = record_batch.encode(
            [Record(key=b"k", value=value, timestamp_ms=self.broker.now_ms)],
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        if refused:
            # Not even a broker that forgot to ask would take it where its successor has been.
            entries = self.broker.store.partition("orders", number).producers()
            if any(e.producer_id == client.producer_id and e.producer_epoch > client.epoch for e in entries):
                with pytest.raises(ProducerFenced):
                    self.broker.append("orders", number, bytearray(batch))
            return
        self.broker.append("orders", number, bytearray(batch), transaction_version=client.version)
        client.sequences[number] = sequence + 1
        client.pending.append((number, value))

    def _add(self, client: Client, number: int) -> bool:
        fields = {f"v3_and_below_{name}": value for name, value in client.who.items()}
        topics = [{"name": "orders", "partitions": [number]}]
        answer = self.broker.ask(24, 3, **fields, v3_and_below_topics=topics)
        error = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        assert (error == NONE) is client.is_current
        return bool(error == NONE)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), commit=st.booleans(), repeated=st.booleans())
    def ends(self, data: st.DataObject, commit: bool, repeated: bool) -> None:
        self._end(data.draw(st.sampled_from(self.clients[-LATEST:])), commit=commit, repeated=repeated)

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        numbers=st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=3),
        commit=st.booleans(),
        repeated=st.booleans(),
    )
    def writes_and_ends(self, data: st.DataObject, numbers: list[int], commit: bool, repeated: bool) -> None:
        client = data.draw(st.sampled_from(self.clients[-LATEST:]))
        for number in numbers:
            self._write(client, number)
        self._end(client, commit=commit, repeated=repeated)

    def _end(self, client: Client, *, commit: bool, repeated: bool) -> None:
        version = 5 if client.version == 2 else 4
        # One of version 2 that aborts what took too long gets what it wants, and goes on.
        may_abort = client.version == 2 and not client.is_replaced and not commit
        if not client.is_current and not may_abort:
            answer = self.broker.ask(26, version, **client.who, committed=commit)
            successor = self._seen_as_repeated(client, commit=commit)
            assert (answer.error_code == NONE) is (successor is not None)
            if successor is not None:
                assert (answer.producer_id, answer.producer_epoch) == (successor.producer_id, successor.epoch)
            return
        if client.is_current and not client.pending:
            return
        answer = self.broker.ask(26, version, **client.who, committed=commit)
        assert answer.error_code == NONE
        client.is_current = True
        if repeated:
            again = self.broker.ask(26, version, **client.who, committed=commit)
            assert again == answer
        client.committed_last = commit
        if commit:
            for number, value in client.pending:
                self.committed[number].add(value)
        client.pending.clear()
        if client.version == 2:
            client.producer_id, client.epoch = answer.producer_id, answer.producer_epoch
            assert (client.producer_id, client.epoch) not in self.given
            self.given.add((client.producer_id, client.epoch))
            client.sequences.clear()

    def _seen_as_repeated(self, client: Client, *, commit: bool) -> Client | None:
        """Its successor, if the end looks like that of its successor, sent again.

        An end of version 2 moves to the next epoch, so that one with the epoch before is a repeated one. One of version
        0 does not, but Kafka's check is the same: what the replaced producer asks for has happened, and nothing does.
        """
        for other in self.clients:
            if (
                client.version == 2
                and (other.version, other.transactional_id) == (0, client.transactional_id)
                and (other.producer_id, other.epoch) == (client.producer_id, client.epoch + 1)
                and other.is_current
                and not other.pending
                and other.committed_last is commit
            ):
                return other
        return None

    # Time and crashes

    @rule()
    def time_passes(self) -> None:
        """Whatever is open took too long."""
        ongoing = set(self.broker.transactions.ongoing)
        self.broker.run_timers(TIMEOUT_MS + 1)
        self.broker.run_timers(10_000)
        assert not self.broker.transactions.ongoing
        for client in self.clients:
            if client.transactional_id in ongoing and client.is_current:
                client.is_current = False
                client.pending.clear()

    @rule()
    def stops_and_starts(self) -> None:
        self.broker.close()
        self.broker = DeskBroker(self.folder / str(self.starts), SMALL, now_ms=self.broker.now_ms)
        self.broker.run_timers()

    @rule()
    def is_killed_and_starts(self) -> None:
        killed, self.starts = self.broker, self.starts + 1
        shutil.copytree(self.folder / str(self.starts - 1), self.folder / str(self.starts))
        killed.close()
        self.broker = DeskBroker(self.folder / str(self.starts), SMALL, now_ms=killed.now_ms)
        self.broker.run_timers()


@pytest.mark.usefixtures("without_waiting_for_the_disk")
@pytest.mark.parametrize("part", [8, pytest.param(2, marks=pytest.mark.slow)])
def test_histories(part: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=settings().max_examples // part,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
