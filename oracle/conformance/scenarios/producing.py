"""Produce: every version, every codec, and everything a broker must refuse."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from duralog.format.compression import Codec
from duralog.format.record import Record
from oracle.conformance.dialog import TIME_MS, Dialog, records
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.discovery import NO_SUCH_ID
from oracle.conformance.wire import Fields
from oracle.hostile_batches import hostile_batches

_DAY_MS = 86_400_000


def data(topic: str | UUID, *partitions: tuple[int, bytes | None]) -> dict[str, Any]:
    """One topic of a request, by name or by id."""
    named = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    return named | {"partition_data": [{"index": index, "records": batch} for index, batch in partitions]}


def produce(dialog: Dialog, version: int, *topics: dict[str, Any], acks: int = -1, **fields: Any) -> Fields:
    pending = dialog.on().send("produce", version, acks=acks, timeout=30_000, topic_data=list(topics), **fields)
    answer = pending.take()
    pending.write_down(
        answer | {"responses": sorted(answer["responses"], key=lambda each: len(each["partition_responses"]))}
    )
    return answer


@each_version(3, 13)
def produce_one(dialog: Dialog, version: int) -> None:
    topic_id = dialog.create_topic(dialog.name, 2)
    topic: str | UUID = topic_id if version >= 13 else dialog.name
    missing: str | UUID = NO_SUCH_ID if version >= 13 else f"{dialog.name}-missing"
    produce(dialog, version, data(topic, (0, records(3))))
    produce(dialog, version, data(topic, (1, records(2)), (0, records(1))), acks=1)
    produce(dialog, version, data(missing, (0, records())), data(topic, (0, records()), (9, records())))
    produce(dialog, version, data(topic, (-1, records())))
    produce(dialog, version, data(topic, (0, records())), acks=2)
    produce(dialog, version, data(topic, (0, records())), acks=-2)
    produce(dialog, version)
    produce(dialog, version, data(topic))
    produce(dialog, version, data(topic, (0, records())), data(topic, (1, records())))
    produce(dialog, version, data(topic, (0, records(codec=Codec.GZIP))))
    produce(dialog, version, data(topic, (0, records(codec=Codec.ZSTD))))
    fetched(dialog, dialog.name, 0)


def fetched(dialog: Dialog, topic: str, partition: int = 0, offset: int = 0) -> None:
    asked = {
        "topic": topic,
        "partitions": [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}],
    }
    dialog.ask("fetch", 11, replica_id=-1, max_wait=0, max_bytes=1 << 20, session_epoch=-1, topics=[asked])


@scenario
def produce_without_an_answer(dialog: Dialog) -> None:
    """With acks=0 there is no answer, and an error closes the connection."""
    topic = dialog.name
    dialog.create_topic(topic)
    connection = dialog.connection("quiet")
    for _ in range(2):
        connection.send("produce", 9, {"acks": 0, "timeout": 1000, "topic_data": [data(topic, (0, records()))]})
    dialog.on("quiet").ask("describe_cluster", 0)
    fetched(dialog, topic)
    wrong = {"acks": 0, "timeout": 1000, "topic_data": [data(f"{topic}-missing", (0, records()))]}
    dialog.on("quiet").react(lambda connection: connection.send("produce", 9, wrong), "an unknown topic")


@scenario
def produce_with_every_codec(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name)
    for codec in Codec:
        produce(dialog, 11, data(dialog.name, (0, records(5, codec=codec))))
    fetched(dialog, dialog.name)


@scenario
def produce_hostile_batches(dialog: Dialog) -> None:
    """Damaged inside right checksums. A broker that takes one leaves it to every consumer."""
    dialog.create_topic(dialog.name)
    for name, batch in hostile_batches().items():
        dialog.on().ask_or_be_closed(name, "produce", 9, acks=-1, topic_data=[data(dialog.name, (0, batch))])


@scenario
def produce_bytes_that_are_no_batch(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name)
    good = records(2)
    cases = {  # Null records are not among them: Kafka 4.3.1 never answers those.
        "nothing": b"",
        "zeroes": bytes(100),
        "cut": good[:-1],
        "a header only": good[:61],
        "half a header": good[:30],
        "a batch and a byte": good + b"x",
        "two batches": good + good,
        "wrong checksum": good[:-1] + bytes([good[-1] ^ 1]),
        "magic 3": good[:16] + b"\x03" + good[17:],
        "length 0": good[:8] + struct.pack(">i", 0) + good[12:],
        "length -1": good[:8] + struct.pack(">i", -1) + good[12:],
        "length large": good[:8] + struct.pack(">i", 1 << 30) + good[12:],
    }
    for version in (3, 9):
        for name, batch in cases.items():
            topic_data = [data(dialog.name, (0, batch))]
            dialog.on().ask_or_be_closed(f"v{version}: {name}", "produce", version, acks=-1, topic_data=topic_data)


@scenario
def produce_to_a_compacted_topic(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name, cleanup_policy="compact")
    keyed, bare = Record(key=b"k", value=b"v", timestamp_ms=TIME_MS), Record(value=b"v", timestamp_ms=TIME_MS)
    for version in (7, 8, 9, 12):
        produce(dialog, version, data(dialog.name, (0, records(of=[keyed]))))
        produce(dialog, version, data(dialog.name, (0, records(of=[keyed, bare, keyed, bare]))))
        produce(dialog, version, data(dialog.name, (0, records(of=[keyed, bare], codec=Codec.LZ4))))
    fetched(dialog, dialog.name)


@scenario
def produce_too_large(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name, max_message_bytes=200)
    produce(dialog, 9, data(dialog.name, (0, records(1))))
    produce(dialog, 9, data(dialog.name, (0, records(20))))
    produce(dialog, 9, data(dialog.name, (0, records(20, codec=Codec.GZIP))))


@scenario
def produce_with_odd_times(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name, message_timestamp_before_max_ms=_DAY_MS)
    produce(dialog, 9, data(dialog.name, (0, records(2))))
    stamped, future = f"{dialog.name}-stamped", f"{dialog.name}-future"
    dialog.create_topic(stamped, message_timestamp_type="LogAppendTime")
    produce(dialog, 9, data(stamped, (0, records(2))))
    produce(dialog, 9, data(stamped, (0, records(2, codec=Codec.SNAPPY))))
    fetched(dialog, stamped)
    dialog.create_topic(future)
    produce(dialog, 9, data(future, (0, records(of=[Record(value=b"v", timestamp_ms=TIME_MS + 50 * 365 * _DAY_MS)]))))
    produce(dialog, 9, data(future, (0, records(of=[Record(value=b"v", timestamp_ms=-1)]))))
    fetched(dialog, future)


@scenario
def produce_recompressed(dialog: Dialog) -> None:
    for codec in ("uncompressed", "gzip", "lz4", "zstd", "snappy", "producer"):
        topic = f"{dialog.name}-{codec}"
        dialog.create_topic(topic, compression_type=codec)
        produce(dialog, 9, data(topic, (0, records(3))))
        produce(dialog, 9, data(topic, (0, records(3, codec=Codec.GZIP))))
        asked = {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
        answer = dialog.connection("").ask(
            "fetch", 11, {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": [asked]}
        )
        (partition,) = answer["responses"][0]["partitions"]
        normal = dialog.normal(partition)
        for batch in normal["records"]:
            del batch["size_bytes"]  # Two libraries compress differently well.
        dialog.note(f"fetched from {topic}", normal)


@scenario
def produce_idempotently(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    producer = dialog.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    owner = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}

    def sent(sequence: int, count: int = 2, **changes: int) -> None:
        batch = records(count, **(owner | changes), base_sequence=sequence)
        dialog.note(f"sequence {sequence}, {count} records, {changes}", "")
        produce(dialog, 9, data(topic, (0, batch)))

    sent(0)
    sent(2)
    sent(2)
    sent(0)
    sent(2, 1)
    sent(6)
    sent(3)
    sent(4)
    for sequence in range(6, 16, 2):
        sent(sequence)
    sent(0)
    sent(14)
    sent(0, producer_epoch=2)
    sent(16, producer_epoch=0)
    sent(1, producer_epoch=3)
    sent(0, producer_epoch=3)
    sent(5, producer_id=producer["producer_id"] + 500_000)
    sent(0, producer_id=producer["producer_id"] + 500_001, producer_epoch=7)
    fetched(dialog, topic)


@scenario
def produce_two_batches_with_sequences(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic, 2)
    producer = dialog.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    owner = {"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]}
    both = records(1, **owner, base_sequence=0) + records(1, **owner, base_sequence=1)
    produce(dialog, 9, data(topic, (0, both)))
    produce(
        dialog, 9, data(topic, (0, records(1, **owner, base_sequence=0)), (1, records(1, **owner, base_sequence=0)))
    )
    produce(dialog, 9, data(topic, (0, records(1, **owner, base_sequence=0, is_transactional=True))))
    produce(dialog, 9, data(topic, (0, records(1, **owner, base_sequence=1, is_control=True))))
    produce(dialog, 9, data(topic, (1, records(1, **owner, base_sequence=-1))))


@scenario
def produce_to_internal_topics(dialog: Dialog) -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        dialog.eventually(
            lambda answer: all(each["error_code"] == 0 for each in answer["topics"]),
            "metadata", 12, topics=[{"name": topic}], allow_auto_topic_creation=True,
        )  # fmt: skip
        produce(dialog, 9, data(topic, (0, records())))
