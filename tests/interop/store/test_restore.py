"""Kafka started on a restored directory: its topics, records, transactions and groups are those of the old cluster."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.broker.groups.offsets.records import (
    CommittedOffset,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
)
from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer
from oracle.partition_view import seen_by_duralog, seen_by_kafka
from tests.support.cluster.recorded import consumed, unpack

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
TOPICS = ["again", "orders", "payments", "unclean", "users"]
COMMITTED = {0: 100, 1: 120, 2: 0}
"""Of `orders`, by partition: each has 120 records."""
LAST_EPOCH = 40
"""A consumer that has seen this leader epoch waits for one that is as new."""


def _add_group(cluster: Path, scratch: Path) -> None:
    with duralog.open(scratch, config={"offsets.topic.num.partitions": 1}) as store:
        store.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        log = store.partition("__consumer_offsets", 0)
        for number, offset in COMMITTED.items():
            value = CommittedOffset(offset, LAST_EPOCH if offset else -1, "a note", 1_700_000_000_000, None, None)
            log.append(
                [
                    Record(
                        key=encode_offset_key(OffsetKey("billing", "orders", number)), value=encode_offset_value(value)
                    )
                ]
            )
    for home in ("broker-1/data1", "broker-3/data2"):
        shutil.copytree(scratch / "__consumer_offsets-0", cluster / home / "__consumer_offsets-0")


def test_kafka_serves_what_was_restored(kafka: KafkaProcess, tmp_path: Path) -> None:
    truth = unpack(tmp_path / "cluster")
    _add_group(tmp_path / "cluster", tmp_path / "scratch")
    for path in (tmp_path / "cluster").glob("broker-*/data*/orders-*/leader-epoch-checkpoint"):
        # Epochs without records, as after elections of an idle cluster.
        path.write_text(f"0\n2\n0 0\n{LAST_EPOCH} 120\n")
    new = tmp_path / "new"
    request = RestoreRequest(paths=[f"{tmp_path}/cluster/broker-*/data*"], target=str(new), topics=TOPICS)
    report = restore(request)
    assert report.is_made
    assert [(group.name, sorted(group.offsets.values())) for group in report.groups] == [("billing", [0, 100, 120])]
    places = [found.partition for found in report.partitions]
    with duralog.open(new, read_only=True) as store:
        made = {place: seen_by_duralog(store.partition(*place)) for place in places}
        ids = {topic: store.topic_id(topic) for topic in TOPICS}
    with KafkaServer(kafka, new) as server:
        topics = server.topics()
        for topic in report.topics:
            assert topics[topic.name]["id"] == topic.topic_id == ids[topic.name]
            assert topics[topic.name]["partitions"] == topic.partitions
            kept = {name: value for name, value in topic.configs.items() if not name.startswith("internal.")}
            assert kept.items() <= topics[topic.name]["configs"].items()
        for place in places:
            assert seen_by_kafka(server, *place) == made[place]
            for isolation, view in (("read_uncommitted", "records"), ("read_committed", "committed")):
                served = [
                    (each["offset"], bytes.fromhex(each["key"]), bytes.fromhex(each["value"]))
                    for each in getattr(made[place], view)
                ]
                assert served == consumed(truth, str(place), isolation)
        address = ("--bootstrap-server", server.bootstrap)
        joined = ("--group", "billing", "--max-messages", "140", "--timeout-ms", "60000")
        status, printed, complaints = kafka.tool(
            f"{TOOLS}.consumer.ConsoleConsumer", *address, "--topic", "orders", *joined
        )
        assert status == 0, complaints
        assert len(printed.splitlines()) == 20 + 120
        command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
        _, printed, _ = kafka.tool(command, *address, "--describe", "--group", "billing", "--offsets")
        rows = [line.split() for line in printed.splitlines() if line.startswith("billing")]
        assert sorted((row[1], row[2], row[3], row[5]) for row in rows) == [
            ("orders", str(number), "120", "0") for number in range(3)
        ]
        one = {"key": b"key".hex(), "value": b"Kafka's".hex(), "timestamp": int(time.time() * 1000)}
        for place in places:
            server.produce(*place, [one])
        assert not server.errors
    with duralog.open(new) as store:
        for place in places:
            last = list(store.partition(*place).read(made[place].end_offset))[-1]
            assert last.value == b"Kafka's"
    assert json.loads(json.dumps([found.to_dict() for found in report.partitions]))
