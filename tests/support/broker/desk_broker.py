"""A broker without a loop and without sockets: work for worker threads runs at once, and the clock stands still.

`Groups` stands for the group coordinator: it writes down what it is asked, and puts offsets into their partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from duralog.broker.groups.offsets.commits import Committer, TopicCommit
from duralog.broker.handlers.transactions.add_offsets_to_txn import API as ADD_OFFSETS_TO_TXN
from duralog.broker.handlers.transactions.add_partitions_to_txn import API as ADD_PARTITIONS_TO_TXN
from duralog.broker.handlers.transactions.describe_transactions import API as DESCRIBE_TRANSACTIONS
from duralog.broker.handlers.transactions.end_txn import API as END_TXN
from duralog.broker.handlers.transactions.init_producer_id import API as INIT_PRODUCER_ID
from duralog.broker.handlers.transactions.list_transactions import API as LIST_TRANSACTIONS
from duralog.broker.handlers.transactions.txn_offset_commit import API as TXN_OFFSET_COMMIT
from duralog.broker.handlers.transactions.write_txn_markers import API as WRITE_TXN_MARKERS
from duralog.broker.net.background import Background
from duralog.broker.net.log_lines import LogLines, logger
from duralog.broker.net.timers import Timers
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.producer_ids import ProducerIds
from duralog.broker.topics.topics import Topics
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.wire import messages
from duralog.broker.wire.request import DelayedAnswer, Node, Request
from duralog.config import BrokerConfig
from duralog.format.java_hash import coordinator_partition
from duralog.format.record import Record
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

START_MS = 1_700_000_000_000
APIS = {
    api.key: api
    for api in (
        INIT_PRODUCER_ID,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        WRITE_TXN_MARKERS,
        TXN_OFFSET_COMMIT,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
    )
}


class Groups:
    def __init__(self, broker: DeskBroker) -> None:
        self._broker = broker
        self.completed: list[tuple[int, int, bool]] = []

    def partition_for(self, group_id: str) -> int:
        return coordinator_partition(group_id, self._broker.config.offsets_topic_num_partitions)

    @property
    def log(self) -> Groups:
        return self

    @property
    def commits(self) -> Groups:
        return self

    def commit_in_transaction(
        self, committer: Committer, topics: Sequence[TopicCommit], producer_id: int, producer_epoch: int
    ) -> dict[tuple[str, int], int]:
        records = [
            Record(key=f"{name}-{commit.partition}".encode(), value=str(commit.offset).encode())
            for name, _id, commits in topics
            for commit in commits
        ]
        number = self.partition_for(committer.group_id)
        self._broker.partitions.append_records(
            CONSUMER_OFFSETS, number, records, producer_id=producer_id, producer_epoch=producer_epoch
        )
        return {(name, commit.partition): 0 for name, _id, commits in topics for commit in commits}

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.completed.append((producer_id, partition, commit))


class DeskBroker:
    """Opens a directory, as `duralog serve` would. `crash` leaves it as a kill would."""

    def __init__(self, path: Path, configs: Mapping[str, object] | None = None, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        few = {
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "log.cleaner.enable": False,
        }
        self.config = BrokerConfig.of({**few, **(configs or {})})
        self._scheduler = Scheduler(threads=0)
        self.store = Store(str(path), config=self.config, clock=self.clock, scheduler=self._scheduler)
        self.timers = Timers(lambda: self.now_ms)
        self.queued: list[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = []
        self.runs_in_background_at_once = True
        self.runtime = Runtime(
            self.store,
            Node(1, "localhost", 9092, "", None),
            self.clock,
            self.timers,
            lambda work: work(),
            cast(Background, self),
            LogLines(logger, self.clock),
        )
        self.topics = Topics(self.runtime)
        self.partitions = Partitions(self.runtime, self.topics)
        self.producer_ids = ProducerIds(self.runtime, self.topics)
        self.groups = Groups(self)
        self.transactions = TransactionCoordinator(
            self.runtime, self.topics, self.partitions, self.producer_ids, self.groups.complete_transaction
        )
        self.transactions.load()

    def clock(self) -> int:
        return self.now_ms

    def append(self, topic: str, number: int, batch: bytearray, *, transaction_version: int = 0) -> None:
        """As a producer's batch."""
        partition = self.partitions.get(topic, number)
        assert partition is not None
        partition.append(batch, transaction_version=transaction_version)

    # In the place of `Background`

    def reserve(self, memory_bytes: int) -> None:
        pass

    def run(
        self,
        work: Callable[[], Any],
        then: Callable[[Any, Any], None],
        answers: DelayedAnswer | None = None,
        *,
        reserved_bytes: int | None = None,
    ) -> None:
        del answers, reserved_bytes
        self.queued.append((work, then))
        if self.runs_in_background_at_once:
            self.run_background()

    def run_background(self) -> None:
        while self.queued:
            work, then = self.queued.pop(0)
            try:
                result = work()
            except Exception as error:
                then(None, error)
            else:
                then(result, None)

    def run_timers(self, after_ms: int = 0) -> None:
        """Let time pass, and do all that is due, also what is due at once because of that."""
        self.now_ms += after_ms
        done: list[None] = [None]
        while done:
            done.clear()

            def run(work: Callable[[], None]) -> None:
                work()
                done.append(None)

            self.timers.run_due(run)

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Answer a request, by way of its bytes and those of the answer."""
        later = self.begin(api_key, version, **fields)
        assert later.is_answered
        return self.answered(api_key, version, later)

    def begin(self, api_key: int, version: int, **fields: Any) -> DelayedAnswer:
        api = APIS[api_key]
        assert api.min_version <= version <= api.max_version
        body = messages.encode_request(api_key, version, fields)
        message = messages.decode_request(api_key, version, body)
        request = Request(api_key, version, 0, "test", message, memoryview(body))
        answer = api.bound_to(self)(request)
        if isinstance(answer, DelayedAnswer):
            answer.deliver_to(lambda _: None, lambda code, text: api.refuse(request, code, text))
            return answer
        later = DelayedAnswer()
        later.answer(answer)
        return later

    def answered(self, api_key: int, version: int, later: DelayedAnswer) -> Any:
        fields = later._answer
        assert isinstance(fields, Mapping)
        return messages.decode_response(api_key, version, messages.encode_response(api_key, version, fields))

    def make_topics(self, **partitions: int) -> None:
        for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            self.topics.ensure_internal(name, _made)
        for name, count in partitions.items():
            self.topics.create(name, count, {}, _made)

    def close(self) -> None:
        self.store.close()


def _made(*told: Any) -> None:
    for result in told:
        if isinstance(result, BaseException):
            raise result
