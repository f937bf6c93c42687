"""The fast path of a Produce request: known partitions, one batch for each, no transaction, nothing to compress.

Nearly every request takes this path, so each step counts: four fields of a header are read here and the whole once
by the log, which takes less time than passing a decoded header on, and no object is made for a batch but its result.
Any other request takes the slow path as a whole (`checked`); batches that turn out to take long do so individually.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from duralog.broker.produce.appends import ProducerAppends
from duralog.broker.produce.checked import CheckedProduce, SentRecords
from duralog.broker.produce.long_appends import KEPT_AS_SENT, NEVER_FLUSHED, takes_long
from duralog.broker.produce.request import FIRST_WITH_TOPIC_IDS, VALID_ACKS, ProduceRequest
from duralog.broker.produce.response import PartitionResponse, answer
from duralog.broker.produce.rules import first_batch, ordinary_attributes
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire.request import Answer, Request
from duralog.format.layout import CODEC_MASK
from duralog.storage.append.batch_admission import TakesLong

OrdinaryAppends = list[tuple[bytes, int, Partition, memoryview]]
"""The topic as the request names it, the partition's number, the partition and its batch."""

_as_response: Callable[[tuple[object, ...]], PartitionResponse] = partial(tuple.__new__, PartitionResponse)
"""As `PartitionResponse._make`, in half the time."""


def ordinary_appends(partitions: Partitions, version: int, asked: ProduceRequest) -> OrdinaryAppends | None:
    """Where the records go, if all there is to do is to append them; None if the request has to take the slow path."""
    _, acks, topics = asked
    if acks not in VALID_ACKS:
        return None
    found: OrdinaryAppends = []
    for topic, numbers in topics.items():
        # As `ProducerAppends.topic_name`, without the call.
        if version >= FIRST_WITH_TOPIC_IDS:
            name = partitions.topic_name(topic)
        else:
            name = topic.decode("utf-8", "replace")
        if name is None or name in INTERNAL_TOPICS:
            return None
        for number, records in numbers.items():
            partition = partitions.get(name, number)
            if partition is None or records is None or partition.append_queue:
                return None
            attributes = ordinary_attributes(records, version)
            if attributes is None:
                return None
            config = partition.log.config
            codec_id = attributes & CODEC_MASK
            if (
                codec_id or config.flush_messages != NEVER_FLUSHED or config.compression_type not in KEPT_AS_SENT
            ) and takes_long(partition.log, records, codec_id, len(records)):
                return None
            found.append((topic, number, partition, records))
    return found


def append_ordinary(
    appends: ProducerAppends, request: Request, asked: ProduceRequest, ordinary: OrdinaryAppends
) -> Answer:
    responses: dict[bytes, dict[int, PartitionResponse]] = {}
    is_refused = False
    long: list[SentRecords] = []
    for topic, number, partition, records in ordinary:
        try:
            base_offset, _, append_time_ms, _ = partition.append(records, is_quick=True)
            response = _as_response((0, base_offset, append_time_ms, partition.log.view.start_offset, (), None))
        except Exception as error:
            if isinstance(error, TakesLong) and (batch := first_batch(records)) is not None:
                long.append(SentRecords(topic, number, partition, records, batch))
                continue
            # Whatever the error: the other partitions of the request are written.
            response = appends.refusal(partition, len(records), error)
            is_refused = True
        of_topic = responses.get(topic)
        if of_topic is None:
            responses[topic] = {number: response}
        else:
            of_topic[number] = response
    if long:
        return CheckedProduce(appends, request, asked).append_long(long, responses)
    return answer(responses, asked.acks, request.version, is_refused=is_refused)
