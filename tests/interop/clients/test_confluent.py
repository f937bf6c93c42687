"""librdkafka's clients, through confluent-kafka, against `duralog serve`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

WAIT_SECONDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def admin(serving: ServedDirectory) -> AdminClient:
    return AdminClient({"bootstrap.servers": serving.bootstrap})


def make(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> str:
    config = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(WAIT_SECONDS)
    return topic


def write(serving: ServedDirectory, topic: str, values: Sequence[bytes], **settings: object) -> list[Message]:
    delivered: list[Message] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        delivered.append(message)

    producer = Producer({"bootstrap.servers": serving.bootstrap, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"key %d" % number, headers=[("number", b"%d" % number)], on_delivery=note)
    assert producer.flush(WAIT_SECONDS) == 0
    return delivered


@contextmanager
def consumer(serving: ServedDirectory, group: str, **settings: object) -> Iterator[Consumer]:
    config = {"bootstrap.servers": serving.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings}
    with closing(Consumer(config)) as made:
        yield made


def read(made: Consumer, count: int) -> list[Message]:
    """This many messages, or those that arrive within a minute."""
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        for message in made.consume(count - len(messages), 1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix} {number}".encode() for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotence", [False, True])
def test_codecs(serving: ServedDirectory, admin: AdminClient, codec: str, idempotence: bool) -> None:
    topic = make(admin, f"confluent-codec-{codec}-{idempotence}")
    sent = values(codec * 20, 500)
    settings = {"compression.type": codec, "enable.idempotence": idempotence, "linger.ms": 20}
    delivered = write(serving, topic, sent, **settings)
    assert [message.offset() for message in delivered] == list(range(500))
    with consumer(serving, f"{topic}-readers") as made:
        made.subscribe([topic])
        found = read(made, 500)
    assert [message.value() for message in found] == sent
    assert [message.key() for message in found] == [b"key %d" % number for number in range(500)]
    assert found[7].headers() == [("number", b"7")]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_continues_where_it_stopped(serving: ServedDirectory, admin: AdminClient, protocol: str) -> None:
    topic = make(admin, f"confluent-group-{protocol}", 3)
    write(serving, topic, values("first", 60))
    settings = {"group.protocol": protocol, "enable.auto.commit": False}
    with consumer(serving, topic, **settings) as made:
        made.subscribe([topic])
        assert {message.value() for message in read(made, 60)} == set(values("first", 60))
        made.commit(asynchronous=False)
    write(serving, topic, values("second", 30))
    with consumer(serving, topic, **settings) as made:
        made.subscribe([topic])
        assert {message.value() for message in read(made, 30)} == set(values("second", 30))
        described = admin.describe_consumer_groups([topic])[topic].result(WAIT_SECONDS)
        assert described.state.name == "STABLE"
        assert sum(len(member.assignment.topic_partitions) for member in described.members) == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_share(serving: ServedDirectory, admin: AdminClient, protocol: str) -> None:
    topic = make(admin, f"confluent-share-{protocol}", 4)
    settings = {"group.protocol": protocol}
    with consumer(serving, topic, **settings) as first, consumer(serving, topic, **settings) as second:
        deadline = time.monotonic() + WAIT_SECONDS
        for member in (first, second):
            member.subscribe([topic])
        while [len(member.assignment()) for member in (first, second)] != [2, 2] and time.monotonic() < deadline:
            for member in (first, second):
                member.poll(0.05)
        assigned = [{each.partition for each in member.assignment()} for member in (first, second)]
        assert sorted(map(len, assigned)) == [2, 2]
        assert assigned[0] | assigned[1] == {0, 1, 2, 3}


def test_seeking(serving: ServedDirectory, admin: AdminClient) -> None:
    topic = make(admin, "confluent-seek")
    write(serving, topic, values("seek", 100))
    with consumer(serving, "confluent-seek") as made:
        made.assign([TopicPartition(topic, 0, 40)])
        assert read(made, 1)[0].offset() == 40
        made.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        assert read(made, 1)[0].offset() == 0
        assert made.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS) == (0, 100)
        time_ms = read(made, 1)[0].timestamp()[1]
        (found,) = made.offsets_for_times([TopicPartition(topic, 0, time_ms)], WAIT_SECONDS)
        assert found.offset <= 1
        (late,) = made.offsets_for_times([TopicPartition(topic, 0, time_ms + 10**9)], WAIT_SECONDS)
        assert late.offset == -1


def test_transactions_that_read_process_and_write(serving: ServedDirectory, admin: AdminClient) -> None:
    source, target = make(admin, "confluent-source"), make(admin, "confluent-target", 2)
    write(serving, source, values("in", 40))
    producer = Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": "confluent-transactions"})
    producer.init_transactions(WAIT_SECONDS)
    with consumer(serving, "confluent-processors", **{"enable.auto.commit": False}) as made:
        made.subscribe([source])
        for commit in (True, False):
            producer.begin_transaction()
            messages = read(made, 20)
            for message in messages:
                value = message.value()
                assert value is not None
                producer.produce(target, value.replace(b"in", b"out"), message.key())
            last_offset = messages[-1].offset()
            assert last_offset is not None
            read_up_to = [TopicPartition(source, 0, last_offset + 1)]
            producer.send_offsets_to_transaction(read_up_to, made.consumer_group_metadata(), WAIT_SECONDS)
            if commit:
                producer.commit_transaction(WAIT_SECONDS)
            else:
                producer.abort_transaction(WAIT_SECONDS)
    with consumer(serving, "confluent-processors", **{"isolation.level": "read_committed"}) as made:
        (position,) = made.committed([TopicPartition(source, 0)], WAIT_SECONDS)
        assert position.offset == 20
        made.assign([TopicPartition(target, number, 0) for number in range(2)])
        assert {message.value() for message in read(made, 20)} == set(values("out", 20))
        assert made.consume(1, 0.5) == []


def test_a_second_producer_fences_the_first(serving: ServedDirectory, admin: AdminClient) -> None:
    topic = make(admin, "confluent-fenced")
    first, second = (
        Producer({"bootstrap.servers": serving.bootstrap, "transactional.id": "confluent-fenced"}) for _ in range(2)
    )
    first.init_transactions(WAIT_SECONDS)
    first.begin_transaction()
    first.produce(topic, b"never seen")
    first.flush(WAIT_SECONDS)
    second.init_transactions(WAIT_SECONDS)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_SECONDS)
    assert raised.value.args[0].code() == KafkaError._FENCED


def test_admin(serving: ServedDirectory, admin: AdminClient) -> None:
    topic = make(admin, "confluent-admin", 2, retention_ms="86400000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert (described["retention.ms"].value, described["retention.ms"].is_default) == ("86400000", False)
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([changed])[changed].result(WAIT_SECONDS)
    assert admin.describe_configs([resource])[resource].result(WAIT_SECONDS)["cleanup.policy"].value == "compact"
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_SECONDS)
    assert len(admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions) == 5
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_SECONDS)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    cluster = admin.describe_cluster().result(WAIT_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [serving.bootstrap]


def test_admin_of_records_and_offsets(serving: ServedDirectory, admin: AdminClient) -> None:
    topic = make(admin, "confluent-records")
    write(serving, topic, values("record", 10))
    partition = TopicPartition(topic, 0, 4)
    assert admin.delete_records([partition])[partition].result(WAIT_SECONDS).low_watermark == 4
    asked = TopicPartition(topic, 0)
    for spec, offset in ((OffsetSpec.earliest(), 4), (OffsetSpec.latest(), 10)):
        listed = admin.list_offsets({asked: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert listed[asked].result(WAIT_SECONDS).offset == offset
    group = ConsumerGroupTopicPartitions("confluent-records", [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([group])["confluent-records"].result(WAIT_SECONDS)
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("confluent-records")])
    assert [each.offset for each in committed["confluent-records"].result(WAIT_SECONDS).topic_partitions] == [7]
    groups = admin.list_consumer_groups().result(WAIT_SECONDS)
    assert "confluent-records" in [each.group_id for each in groups.valid]
    admin.delete_consumer_groups(["confluent-records"])["confluent-records"].result(WAIT_SECONDS)
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)
    assert topic not in admin.list_topics(timeout=WAIT_SECONDS).topics
