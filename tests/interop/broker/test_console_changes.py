"""The console changes a Kafka broker: previews change nothing and refuse what Kafka refuses, changes are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.console.changes.changer import ChangedPlace, Changer
from duralog.console.changes.configs import ResetBrokerConfig, SetBrokerConfig
from duralog.console.changes.groups import DeleteGroup, ResetGroup
from duralog.console.changes.records import ProduceRecord
from duralog.console.changes.topics import AlterTopic, CreateTopic, DeleteTopic
from duralog.errors import DuralogError
from duralog.format.record import Record
from duralog.operations.groups.reset_offsets import ResetTo, Where
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory

pytestmark = pytest.mark.interop


def test_all_changes_of_a_kafka_broker(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    format_directory(kafka, directory)
    with KafkaServer(kafka, directory, configs={"offsets.topic.num.partitions": 1}) as server:
        server.topics()
        changer = Changer(ChangedPlace(directory=None, broker=server.bootstrap), is_allowed=True)
        create = CreateTopic(topic="payments", partitions=2, configs={"retention.ms": "-1"})
        changer.preview(create)
        assert changer.carry_out(create, user=None) == "Created payments with 2 partitions."
        for refused in (
            create,
            CreateTopic(topic="x", partitions=1, configs={"no.such": "1"}),
            AlterTopic(topic="payments", configs={"retention.ms": "soon"}),
            AlterTopic(topic="payments", configs={}, partitions=1),
            SetBrokerConfig(name="no.such", value="1"),
            DeleteGroup(group="nobody"),
        ):
            with pytest.raises(DuralogError):
                changer.preview(refused)
        record = Record(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000, headers=[("h", None)])
        produce = ProduceRecord(topic="payments", partition=1, record=record)
        assert changer.carry_out(produce, user=None) == "Produced to payments-1 at offset 0."
        to_start = ResetGroup(
            group="readers", topics={"payments": [1]}, to=ResetTo(where=Where.EARLIEST), option=("--to-earliest",)
        )
        changer.carry_out(to_start, user=None)
        to_end = ResetGroup(group="readers", topics=None, to=ResetTo(where=Where.LATEST), option=("--to-latest",))
        assert changer.preview(to_end).rows == (("payments-1", "0", "1", "+1"),)
        changer.carry_out(DeleteGroup(group="readers"), user=None)
        changer.carry_out(AlterTopic(topic="payments", configs={"retention.ms": None, "segment.ms": "9"}), user=None)
        configs = {entry.name: (entry.text, entry.in_force_from) for entry in changer.topic_configs("payments")}
        assert (configs["segment.ms"], configs["retention.ms"]) == (("9", 1), ("604800000", 5))
        changer.carry_out(AlterTopic(topic="payments", configs={}, partitions=4), user=None)
        changer.carry_out(SetBrokerConfig(name="max.connections", value="321"), user=None)
        assert {entry.name: entry.text for entry in changer.broker_configs()}["max.connections"] == "321"
        changer.carry_out(ResetBrokerConfig(name="max.connections"), user=None)
        assert not changer.preview(ResetBrokerConfig(name="max.connections")).has_effect
        delete = DeleteTopic(topic="payments", topic_id=changer.topic_id("payments"), about="4 partitions")
        changer.carry_out(delete, user=None)
        assert "payments" not in server.topics()
