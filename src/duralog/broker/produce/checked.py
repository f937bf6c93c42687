"""The slow path of a Produce request: Kafka's checks in Kafka's order, transactions, and appends on worker threads.

Appends that would block the loop (`long_appends`) are queued per partition on a worker thread; the response is sent
when they finish.

Kafka's own tools may write to internal topics. Their records are checked first, on a worker thread: one that no
coordinator can load would stop Kafka's coordinators for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from duralog.broker.produce.appends import ProducerAppends
from duralog.broker.produce.long_appends import append_unpacked, takes_long
from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, VALID_ACKS, ProduceRequest
from duralog.broker.produce.response import PartitionResponse, answer
from duralog.broker.produce.rules import (
    CORRUPT,
    REFUSED,
    SentBatch,
    batch_refusal,
    check_internal_records,
    first_batch,
)
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.partition import Partition
from duralog.broker.wire import error_codes
from duralog.broker.wire.request import CLOSE, Answer, DelayedAnswer, RawAnswer, Request, Silence
from duralog.errors import CorruptRecord
from duralog.storage.append.batch_admission import TakesLong
from duralog.storage.append.producer_entry import EPOCH_BUMPING
from duralog.storage.log.partition_log import AppendResult

_ADMIN_CLIENT = "__admin_client"
"""The client id of Kafka's own tools, which may write to internal topics."""
_FIRST_ADDING_TO_TRANSACTIONS = 12
_UNVERIFIED = {
    error_codes.INVALID_TXN_STATE: "Partition was not added to the transaction",
    error_codes.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the transaction",
}
_NO_RECORDS = memoryview(b"")
_NONE_REFUSED: Mapping[bytes, int] = MappingProxyType({})


class SentRecords:
    """A partition's records on their way, and what their first batch says of itself."""

    __slots__ = ("batch", "number", "partition", "records", "topic")

    def __init__(self, topic: bytes, number: int, partition: Partition, records: memoryview, batch: SentBatch) -> None:
        self.topic = topic
        self.number = number
        self.partition = partition
        self.records = records
        self.batch = batch


class CheckedProduce:
    """One request: the responses of its partitions so far, and the number of appends in progress."""

    __slots__ = ("_appends", "_asked", "_later", "_refused", "_request", "_responses", "_running")

    def __init__(
        self,
        appends: ProducerAppends,
        request: Request,
        asked: ProduceRequest,
        refused: Mapping[bytes, int] = _NONE_REFUSED,
    ) -> None:
        """`refused` are topics that the sender may not write to, with the error of each."""
        self._refused = refused
        self._appends = appends
        self._request = request
        self._asked = asked
        self._responses: dict[bytes, dict[int, PartitionResponse]] = {topic: {} for topic in asked.topics}
        self._running = 0
        self._later: DelayedAnswer | None = None

    def run(self) -> Answer:
        self._start()
        return self._answer_or_later()

    def append_long(
        self, long: Iterable[SentRecords], responses: Mapping[bytes, dict[int, PartitionResponse]]
    ) -> Answer:
        """Append what takes long on worker threads. The others have their responses already."""
        self._responses |= responses
        for one in long:
            self._append_on_worker(one)
        return self._answer_or_later()

    def _answer_or_later(self) -> Answer:
        if not self._running:
            return self._answer()
        self._later = DelayedAnswer()
        return self._later

    def _start(self) -> None:
        batches = self._first_batches()
        if isinstance(batches, PartitionResponse):
            self._refuse_all(batches)
            return
        wanted = self._wanted(batches)
        if self._asked.transactional_id is not None:
            wanted = self._in_transaction(wanted)
        if self._asked.acks not in VALID_ACKS:
            for one in wanted:
                self._responses[one.topic][one.number] = PartitionResponse(error_codes.INVALID_REQUIRED_ACKS)
            return
        for one in wanted:
            self._append(one)

    def _answer(self) -> RawAnswer | Silence:
        is_refused = any(one.error_code for numbers in self._responses.values() for one in numbers.values())
        return answer(self._in_order(), self._asked.acks, self._request.version, is_refused=is_refused)

    def _in_order(self) -> dict[bytes, dict[int, PartitionResponse]]:
        """In the order of the request. A topic without partitions is left out."""
        return {
            topic: {number: self._responses[topic][number] for number in numbers}
            for topic, numbers in self._asked.topics.items()
            if numbers
        }

    def _first_batches(self) -> dict[tuple[bytes, int], SentBatch | None] | PartitionResponse:
        """The first batch of each partition, or what the whole request is refused with."""
        batches: dict[tuple[bytes, int], SentBatch | None] = {}
        for topic, numbers in self._asked.topics.items():
            for number, records in numbers.items():
                try:
                    batch = None if records is None else first_batch(records)
                except CorruptRecord as error:
                    return CORRUPT._replace(message=error.reason)
                if batch is not None and batch.is_transactional and self._asked.transactional_id is None:
                    return PartitionResponse(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                batches[topic, number] = batch
        return batches

    def _wanted(self, batches: dict[tuple[bytes, int], SentBatch | None]) -> list[SentRecords]:
        """The partitions that exist and whose records have a right first batch. The others have their response."""
        partitions, version = self._appends.partitions, self._request.version
        wanted: list[SentRecords] = []
        for topic, numbers in self._asked.topics.items():
            responses = self._responses[topic]
            name = self._appends.topic_name(topic, is_id=version >= FIRST_WITH_TOPIC_IDS)
            for number, records in numbers.items():
                if topic in self._refused:
                    responses[number] = PartitionResponse(self._refused[topic])
                    continue
                if name is None:
                    responses[number] = PartitionResponse(error_codes.UNKNOWN_TOPIC_ID)
                    continue
                partition = partitions.get(name, number)
                if partition is None:
                    is_offline = partitions.is_offline(name, number)
                    responses[number] = PartitionResponse(
                        error_codes.KAFKA_STORAGE_ERROR if is_offline else error_codes.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    continue
                batch = batches[topic, number]
                if records is None or batch is None:
                    responses[number] = REFUSED
                    continue
                refusal = batch_refusal(records, batch, version)
                if refusal is not None:
                    responses[number] = refusal
                    continue
                wanted.append(SentRecords(topic, number, partition, records, batch))
        return wanted

    def _in_transaction(self, wanted: list[SentRecords]) -> list[SentRecords]:
        """Those that may be appended as far as transactions go."""
        transactional = [one for one in wanted if one.batch.is_transactional and one.batch.producer_id >= 0]
        if not transactional:
            return wanted
        producers = {(one.batch.producer_id, one.batch.producer_epoch) for one in transactional}
        if len(producers) > 1:
            self._refuse_all(
                PartitionResponse(
                    error_codes.INVALID_PRODUCER_ID_MAPPING,
                    message="Transactional records contained more than one producer ID",
                )
            )
            return []
        ((producer_id, epoch),) = producers
        refused = self._appends.check_transaction(
            self._asked.transactional_id,
            producer_id,
            epoch,
            [(one.partition.topic, one.number) for one in transactional],
            self._request.version,
        )
        if not refused:
            return wanted
        allowed: list[SentRecords] = []
        for one in wanted:
            code = refused.get((one.partition.topic, one.number))
            if code is None or not one.batch.is_transactional:
                allowed.append(one)
            else:
                self._responses[one.topic][one.number] = PartitionResponse(code, message=_UNVERIFIED.get(code))
        return allowed

    def _append(self, one: SentRecords) -> None:
        partition = one.partition
        is_internal = partition.topic in INTERNAL_TOPICS
        if is_internal and self._request.client_id != _ADMIN_CLIENT:
            self._responses[one.topic][one.number] = PartitionResponse(error_codes.INVALID_TOPIC_EXCEPTION)
            return
        if (
            is_internal
            or partition.append_queue
            or takes_long(partition.log, one.records, one.batch.codec_id, one.batch.size_bytes)
        ):
            self._append_on_worker(one)
            return
        try:
            result = partition.append(one.records, transaction_version=self._transaction_version(one), is_quick=True)
        except TakesLong:
            self._append_on_worker(one)
        except Exception as error:
            self._responses[one.topic][one.number] = self._refusal(one, error)
        else:
            self._responses[one.topic][one.number] = self._appends.success(partition, result)

    def _append_on_worker(self, one: SentRecords) -> None:
        """Queue the batch with its partition, to be appended on a worker thread."""
        self._running += 1
        batch, log, transaction_version = bytearray(one.records), one.partition.log, self._transaction_version(one)
        # The buffer that the request was received into must not be kept as long as the batch is queued.
        one.records = _NO_RECORDS
        self._asked.topics[one.topic][one.number] = None
        is_internal = one.partition.topic in INTERNAL_TOPICS

        def append() -> AppendResult:
            if is_internal:
                check_internal_records(log, batch)
            return append_unpacked(log, batch, transaction_version)

        then = partial(self._appended, one)
        one.partition.append_queued(self._appends.background, append, then, memory_bytes=len(batch))

    def _transaction_version(self, one: SentRecords) -> int:
        is_new_kind = self._request.version >= _FIRST_ADDING_TO_TRANSACTIONS and one.batch.is_transactional
        return EPOCH_BUMPING if is_new_kind else 0

    def _appended(self, one: SentRecords, result: AppendResult | None, error: Exception | None) -> None:
        """The worker thread is done. A client that cannot get its answer is closed: it must not wait for ever."""
        assert self._later is not None
        try:
            self._settle(one, result, error)
            if not self._running and not self._later.is_answered:
                self._later.answer(self._answer())
        except Exception:
            if not self._later.is_answered:
                self._later.answer(CLOSE)
            raise

    def _settle(self, one: SentRecords, result: AppendResult | None, error: Exception | None) -> None:
        self._running -= 1
        if result is not None:
            response = self._appends.success(one.partition, result)
        else:
            assert error is not None
            response = self._refusal(one, error)
        self._responses[one.topic][one.number] = response

    def _refusal(self, one: SentRecords, error: Exception) -> PartitionResponse:
        return self._appends.refusal(one.partition, one.batch.size_bytes, error, one.batch.base_offset)

    def _refuse_all(self, response: PartitionResponse) -> None:
        self._responses = {topic: dict.fromkeys(numbers, response) for topic, numbers in self._asked.topics.items()}
