"""Produce (0), versions 3 to 13: records of producers into logs.

Versions 0 to 2 are advertised and refused, as Kafka does: older clients take their absence for a lack of compression.
A batch is checked, stamped where it was received and written once. What would keep the loop busy (`long_appends`) runs
beside it, in the partition's own line; the answer waits for it.

With one replica, acks=all is acks=1. With acks=0 nobody is answered, and an error ends the connection.

Kafka's own tools may write to internal topics. Their records are checked first, on a worker thread: one that no
coordinator can load would stop Kafka's coordinators for good.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from duralog.broker.net.log_lines import error_text
from duralog.broker.produce import request as produce_request
from duralog.broker.produce import response as produce_response
from duralog.broker.produce.long_appends import KEPT_AS_SENT, NEVER_FLUSHED, takes_long
from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, ProduceRequest
from duralog.broker.produce.response import Outcome
from duralog.broker.produce.rules import (
    ATTRIBUTES_END,
    CORRUPT,
    REFUSED,
    Frame,
    append_refusal,
    check_internal_records,
    first_frame,
    frame_refusal,
    is_ordinary,
)
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.partitions import Partition
from duralog.broker.wire import error_codes
from duralog.broker.wire.request import CLOSE, NO_ANSWER, Answer, Api, Fields, Later, RawAnswer, Request
from duralog.errors import CorruptRecord, DuralogError, StorageError
from duralog.format.layout import CODEC_MASK
from duralog.storage.append.batch_admission import TakesLong
from duralog.storage.log.partition_log import AppendResult

if TYPE_CHECKING:
    from duralog.broker.broker import Broker

_ADMIN_CLIENT = "__admin_client"
"""The client id of Kafka's own tools: it may write to internal topics."""
_VALID_ACKS = (-1, 0, 1)
_FIRST_ADDING_TO_TRANSACTIONS = 12
_EPOCH_BUMPING_TRANSACTIONS = 2
_UNVERIFIED = {
    error_codes.INVALID_TXN_STATE: "Partition was not added to the transaction",
    error_codes.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the transaction",
}
_NO_RECORDS = memoryview(b"")
_as_outcome: Callable[[tuple[object, ...]], Outcome] = partial(tuple.__new__, Outcome)
"""As `Outcome._make`, in half the time."""


def handle(broker: Broker, request: Request) -> Answer:
    asked = produce_request.parse(request.body, request.version)
    ordinary = _ordinary(broker, request, asked)
    if ordinary is not None:
        return _append_ordinary(broker, request, asked, ordinary)
    work = _Work(broker, request, asked)
    work.run()
    if not work.running:
        return work.answer()
    work.later = Later()
    return work.later


_Ordinary = list[tuple[bytes, int, Partition, memoryview]]


def _ordinary(broker: Broker, request: Request, asked: ProduceRequest) -> _Ordinary | None:
    """Where the records go, if all there is to do is to append them; None if anything asks for a closer look.

    That is nearly every request: known partitions, one batch for each, no transaction, nothing to compress anew.
    """
    _, acks, topics = asked
    if acks not in _VALID_ACKS:
        return None
    partitions, version = broker.partitions, request.version
    found: _Ordinary = []
    for topic, numbers in topics.items():
        if version >= FIRST_WITH_TOPIC_IDS:
            name = partitions.topic_name(topic)
        else:
            name = topic.decode("utf-8", "replace")
        if name is None or name in INTERNAL_TOPICS:
            return None
        for number, records in numbers.items():
            partition = partitions.get(name, number)
            if partition is None or records is None or partition.in_line or not is_ordinary(records, version):
                return None
            config = partition.log.config
            if (
                records[ATTRIBUTES_END] & CODEC_MASK
                or config.flush_messages != NEVER_FLUSHED
                or config.compression_type not in KEPT_AS_SENT
            ):
                frame = first_frame(records)
                if frame is None or takes_long(partition.log, records, frame):
                    return None
            found.append((topic, number, partition, records))
    return found


def _append_ordinary(broker: Broker, request: Request, asked: ProduceRequest, ordinary: _Ordinary) -> Answer:
    outcomes: dict[bytes, dict[int, Outcome]] = {}
    is_refused = False
    long: list[_Wanted] = []
    for topic, number, partition, records in ordinary:
        try:
            base_offset, _, append_time_ms, _ = partition.append(records, is_quick=True)
            outcome = _as_outcome((0, base_offset, append_time_ms, partition.log.view.start_offset, (), None))
        except Exception as error:
            if isinstance(error, TakesLong) and (frame := first_frame(records)) is not None:
                long.append(_Wanted(topic, number, partition, records, frame))
                continue
            # Whatever it is: the other partitions of the request are written.
            outcome = _refusal(broker, partition, len(records), error)
            is_refused = True
        of_topic = outcomes.get(topic)
        if of_topic is None:
            outcomes[topic] = {number: outcome}
        else:
            of_topic[number] = outcome
    if long:
        work = _Work(broker, request, asked)
        work.outcomes |= outcomes
        for one in long:
            work.append_beside(one)
        work.later = Later()
        return work.later
    if asked.acks == 0:
        return CLOSE if is_refused else NO_ANSWER
    return RawAnswer([produce_response.encode(outcomes, request.version)])


def _refusal(broker: Broker, partition: Partition, size_bytes: int, error: Exception, base_offset: int = 0) -> Outcome:
    if not isinstance(error, DuralogError):
        broker.log_lines.fail("append", f"append to {partition.topic}-{partition.number}: {error_text(error)}")
    if broker.partitions.get(partition.topic, partition.number) is not partition:
        # Its topic was deleted meanwhile: that its log is closed is not the disk's fault.
        return Outcome(error_codes.UNKNOWN_TOPIC_OR_PARTITION)
    if isinstance(error, StorageError):
        broker.log_lines.tell_disk(error)
    return append_refusal(error, partition.log, size_bytes, base_offset)


class _Wanted:
    """A partition's records on their way."""

    __slots__ = ("frame", "number", "partition", "records", "topic")

    def __init__(self, topic: bytes, number: int, partition: Partition, records: memoryview, frame: Frame) -> None:
        self.topic = topic
        self.number = number
        self.partition = partition
        self.records = records
        self.frame = frame


class _Work:
    """One request: what became of each partition so far, and what is still running."""

    __slots__ = ("asked", "broker", "later", "outcomes", "request", "running")

    def __init__(self, broker: Broker, request: Request, asked: ProduceRequest) -> None:
        self.broker = broker
        self.request = request
        self.asked = asked
        self.outcomes: dict[bytes, dict[int, Outcome]] = {topic: {} for topic in asked.topics}
        self.running = 0
        self.later: Later | None = None

    def run(self) -> None:
        frames = self._frames()
        if isinstance(frames, Outcome):
            self._refuse_all(frames)
            return
        wanted = self._wanted(frames)
        if self.asked.transactional_id is not None:
            wanted = self._in_transaction(wanted)
        if self.asked.acks not in _VALID_ACKS:
            for one in wanted:
                self.outcomes[one.topic][one.number] = Outcome(error_codes.INVALID_REQUIRED_ACKS)
            return
        for one in wanted:
            self._append(one)

    def answer(self) -> Answer:
        if self.asked.acks == 0:
            is_refused = any(one.error_code for numbers in self.outcomes.values() for one in numbers.values())
            return CLOSE if is_refused else NO_ANSWER
        return RawAnswer([produce_response.encode(self._in_order(), self.request.version)])

    def _in_order(self) -> dict[bytes, dict[int, Outcome]]:
        """As the request has them. A topic without partitions is left out."""
        return {
            topic: {number: self.outcomes[topic][number] for number in numbers}
            for topic, numbers in self.asked.topics.items()
            if numbers
        }

    def _frames(self) -> dict[tuple[bytes, int], Frame | None] | Outcome:
        """The first batch of each partition, or what the whole request is refused with."""
        frames: dict[tuple[bytes, int], Frame | None] = {}
        for topic, numbers in self.asked.topics.items():
            for number, records in numbers.items():
                try:
                    frame = None if records is None else first_frame(records)
                except CorruptRecord as error:
                    return CORRUPT._replace(message=error.reason)
                if frame is not None and frame.is_transactional and self.asked.transactional_id is None:
                    return Outcome(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                frames[topic, number] = frame
        return frames

    def _wanted(self, frames: dict[tuple[bytes, int], Frame | None]) -> list[_Wanted]:
        """The partitions that exist and whose records have the right frame. The others have their outcome."""
        partitions, version = self.broker.partitions, self.request.version
        wanted: list[_Wanted] = []
        for topic, numbers in self.asked.topics.items():
            outcomes = self.outcomes[topic]
            if version >= FIRST_WITH_TOPIC_IDS:
                name = partitions.topic_name(topic)
            else:
                name = topic.decode("utf-8", "replace")
            for number, records in numbers.items():
                if name is None:
                    outcomes[number] = Outcome(error_codes.UNKNOWN_TOPIC_ID)
                    continue
                partition = partitions.get(name, number)
                if partition is None:
                    is_offline = partitions.is_offline(name, number)
                    outcomes[number] = Outcome(
                        error_codes.KAFKA_STORAGE_ERROR if is_offline else error_codes.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    continue
                frame = frames[topic, number]
                if records is None or frame is None:
                    outcomes[number] = REFUSED
                    continue
                refusal = frame_refusal(records, frame, version)
                if refusal is not None:
                    outcomes[number] = refusal
                    continue
                wanted.append(_Wanted(topic, number, partition, records, frame))
        return wanted

    def _in_transaction(self, wanted: list[_Wanted]) -> list[_Wanted]:
        """Those that may be appended as far as transactions go."""
        transactional = [one for one in wanted if one.frame.is_transactional and one.frame.producer_id >= 0]
        if not transactional:
            return wanted
        producers = {(one.frame.producer_id, one.frame.producer_epoch) for one in transactional}
        if len(producers) > 1:
            self._refuse_all(
                Outcome(
                    error_codes.INVALID_PRODUCER_ID_MAPPING,
                    message="Transactional records contained more than one producer ID",
                )
            )
            return []
        ((producer_id, epoch),) = producers
        refused = self.broker.transactions.check_produce(
            self.asked.transactional_id,
            producer_id,
            epoch,
            [(one.partition.topic, one.number) for one in transactional],
            self.request.version,
        )
        if not refused:
            return wanted
        allowed: list[_Wanted] = []
        for one in wanted:
            code = refused.get((one.partition.topic, one.number))
            if code is None or not one.frame.is_transactional:
                allowed.append(one)
            else:
                self.outcomes[one.topic][one.number] = Outcome(code, message=_UNVERIFIED.get(code))
        return allowed

    def _append(self, one: _Wanted) -> None:
        partition = one.partition
        is_internal = partition.topic in INTERNAL_TOPICS
        if is_internal and self.request.client_id != _ADMIN_CLIENT:
            self.outcomes[one.topic][one.number] = Outcome(error_codes.INVALID_TOPIC_EXCEPTION)
            return
        if is_internal or partition.in_line or takes_long(partition.log, one.records, one.frame):
            self.append_beside(one)
            return
        try:
            result = partition.append(one.records, transaction_version=self._transaction_version(one), is_quick=True)
        except TakesLong:
            self.append_beside(one)
        except Exception as error:
            self.outcomes[one.topic][one.number] = _refusal(
                self.broker, partition, one.frame.size_bytes, error, one.frame.base_offset
            )
        else:
            self.outcomes[one.topic][one.number] = _outcome(partition, result)

    def append_beside(self, one: _Wanted) -> None:
        """Append on a worker thread, in the partition's own queue."""
        self.running += 1
        batch = bytearray(one.records)
        # What the request was received into is not to stay as long as the batch waits.
        one.records = _NO_RECORDS
        self.asked.topics[one.topic][one.number] = None
        is_internal = one.partition.topic in INTERNAL_TOPICS
        one.partition.append_in_line(
            self.broker,
            batch,
            self._transaction_version(one),
            partial(self._appended_beside, one),
            check=partial(check_internal_records, one.partition.log) if is_internal else None,
        )

    def _transaction_version(self, one: _Wanted) -> int:
        is_new_kind = self.request.version >= _FIRST_ADDING_TO_TRANSACTIONS and one.frame.is_transactional
        return _EPOCH_BUMPING_TRANSACTIONS if is_new_kind else 0

    def _appended_beside(self, one: _Wanted, result: AppendResult | None, error: Exception | None) -> None:
        """What ran beside the loop has ended. Who cannot be told how is closed: nobody waits for ever."""
        assert self.later is not None
        try:
            self._settle(one, result, error)
            if not self.running and not self.later.is_answered:
                answer = self.answer()
                assert not isinstance(answer, Later)
                self.later.answer(answer)
        except Exception:
            if not self.later.is_answered:
                self.later.answer(CLOSE)
            raise

    def _settle(self, one: _Wanted, result: AppendResult | None, error: Exception | None) -> None:
        self.running -= 1
        if result is not None:
            outcome = _outcome(one.partition, result)
        else:
            assert error is not None
            outcome = _refusal(self.broker, one.partition, one.frame.size_bytes, error, one.frame.base_offset)
        self.outcomes[one.topic][one.number] = outcome

    def _refuse_all(self, outcome: Outcome) -> None:
        self.outcomes = {topic: dict.fromkeys(numbers, outcome) for topic, numbers in self.asked.topics.items()}


def _outcome(partition: Partition, result: AppendResult) -> Outcome:
    start_offset = partition.log.view.start_offset
    return Outcome(error_codes.NONE, result.base_offset, result.log_append_time_ms, start_offset)


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    asked = produce_request.parse(request.body, request.version)
    return {
        "responses": [
            {
                **_topic_field(topic, request.version),
                "partition_responses": [
                    {
                        "index": number,
                        "error_code": error_code,
                        "base_offset": -1,
                        "log_append_time_ms": -1,
                        "log_start_offset": -1,
                        "record_errors": [],
                        "error_message": message,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in asked.topics.items()
        ],
    }


def _topic_field(topic: bytes, version: int) -> Fields:
    if version >= FIRST_WITH_TOPIC_IDS:
        return {"topic_id": UUID(bytes=topic)}
    return {"name": topic.decode("utf-8", "replace")}


API = Api(0, "Produce", 3, 13, handle, refuse, parse=False, advertised_min_version=0)
