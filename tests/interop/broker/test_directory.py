"""One directory, served by duralog and by Kafka in turn: each finds everything and continues.

The same life is led twice, in two chains: duralog, Kafka, duralog; and Kafka, duralog, Kafka. In each stage the same
requests are sent, so at each stage the two chains must have answered alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.format.java_hash import coordinator_partition
from oracle.conformance.coordinators import wait_for_coordinators
from oracle.conformance.dialog import Dialog, records
from oracle.conformance.normal_form import Address
from oracle.conformance.scenario import differences
from oracle.conformance.scenarios import configs, consumer_groups, groups, offsets, transactions
from oracle.conformance.scenarios.producing import data, produce
from oracle.dump_check import dump_complaints
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

STAGES = 3
SETTINGS = {
    "log.retention.ms": -1,  # The records are dated 2023.
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,  # Whoever is quick after a change of servers need not wait.
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}
OPEN = "open-transaction"
LEFT, DELETED = "left", "deleted-group"
"""Groups that are changed in the directory between two servers. The member of the first one does not leave."""
NEXT_TO_NEW = "new-2"
"""A group of the same partition as `new`, which must not be touched."""


def begin(dialog: Dialog) -> None:
    """Everything that a directory can hold."""
    dialog.create_topic("plain", 3)
    dialog.create_topic("compacted", 1, cleanup_policy="compact", min_compaction_lag_ms=86_400_000)
    dialog.create_topic("small", 1, segment_bytes=1_048_576, retention_ms=-1)
    dialog.create_topic("deleted", 1)
    produce(dialog, 9, data("plain", (0, records(5)), (1, records(3))))
    produce(dialog, 9, data("compacted", (0, records(4))))
    trimmed = {"name": "plain", "partitions": [{"partition_index": 0, "offset": 2}]}
    dialog.ask("delete_records", 2, topics=[trimmed], timeout=30_000)
    dialog.ask("delete_topics", 6, topics=[{"name": "deleted"}], timeout=30_000)
    configs.alter(dialog, 1, (configs.TOPIC, "plain", {"max.message.bytes": (configs.SET, "123456")}))
    configs.wait_until(dialog, "plain", "max.message.bytes", "123456", configs.TOPIC)
    configs.alter(dialog, 1, (configs.BROKER, "1", {"log.cleaner.backoff.ms": (configs.SET, "16000")}))
    configs.alter(dialog, 1, (configs.BROKER, "", {"log.cleaner.delete.retention.ms": (configs.SET, "99999999")}))
    configs.alter(dialog, 1, (configs.GROUP, "new", {"consumer.session.timeout.ms": (configs.SET, "50000")}))
    configs.wait_until(dialog, "1", "log.cleaner.backoff.ms", "16000")
    configs.wait_until(dialog, "", "log.cleaner.delete.retention.ms", "99999999")
    configs.wait_until(dialog, "new", "consumer.session.timeout.ms", "50000", configs.GROUP)


def live(dialog: Dialog, stage: int) -> None:
    """What clients do in every stage: they take up what the stage before left."""
    dialog.write("plain", 2, 4, first=10 * stage)
    _idempotent(dialog, stage)
    _classic_group(dialog, stage)
    _consumer_group(dialog)
    _transactions(dialog, stage)


def _idempotent(dialog: Dialog, stage: int) -> None:
    """A producer that outlives its brokers: its sequence continues, and its last batch is not stored twice."""
    for sequence in (5 * stage, 5 * stage, 5 * stage + 9):
        batch = records(5, producer_id=4_000_000, producer_epoch=0, base_sequence=sequence)
        produce(dialog, 9, data("small", (0, batch)))


def _classic_group(dialog: Dialog, stage: int) -> None:
    groups.find_coordinator_of(dialog, "classic")
    offsets.committed(dialog, 8, "classic", everything=True)
    member = groups.stable(dialog, "classic")
    owner = {"member_id": member["member_id"], "generation_id_or_member_epoch": member["generation_id"]}
    offsets.commit(dialog, 8, "classic", offsets.commits("plain", (0, 2 + stage), (2, stage)), **owner)
    dialog.ask("leave_group", 0, group_id="classic", member_id=member["member_id"])
    offsets.commit(dialog, 8, "standalone", offsets.commits("compacted", (0, stage)))
    offsets.commit(dialog, 8, DELETED, offsets.commits("plain", (0, 3), (2, 1)))
    member = groups.stable(dialog, LEFT)
    owner = {"member_id": member["member_id"], "generation_id_or_member_epoch": member["generation_id"]}
    offsets.commit(dialog, 8, LEFT, offsets.commits("plain", (0, 4), (2, 4)), **owner)


def change_groups(directory: Path) -> None:
    """What an administrator does while no broker runs."""
    for words in (
        [
            "reset",
            str(directory),
            "--group",
            LEFT,
            "--topic",
            "plain",
            "--partition",
            "0",
            "--earliest",
            "--evict",
            "--execute",
        ],
        ["delete", str(directory), "--group", DELETED, "--yes"],
    ):
        done = CliRunner().invoke(app, ["group", *words])
        assert done.exit_code == 0, done.output


def _consumer_group(dialog: Dialog) -> None:
    assert coordinator_partition(NEXT_TO_NEW, 5) == coordinator_partition("new", 5)
    consumer_groups.coordinator_knows(dialog, NEXT_TO_NEW, "plain")
    joined = consumer_groups.first_beat(dialog, 1, "new", consumer_groups.MEMBER, "plain")
    owner = {"member_id": consumer_groups.MEMBER, "generation_id_or_member_epoch": joined["member_epoch"]}
    offsets.commit(dialog, 9, "new", offsets.commits("plain", (1, 3)), **owner)
    consumer_groups.describe_group(dialog, 1, "new")
    consumer_groups.beat(dialog, 1, "new", consumer_groups.MEMBER, -1)


def _transactions(dialog: Dialog, stage: int) -> None:
    """One is committed, one aborted; one stays open, and the next stage ends it."""
    for name, commit in (("commits", True), ("aborts", False)):
        owner = transactions.started(dialog, 4, name)
        transactions.add(dialog, 3, owner, ("plain", [1]))
        transactions.write(dialog, 11, owner, "plain", 0, 1)
        transactions.end(dialog, 4, owner, commit=commit)
        transactions.find_state(dialog, name, "CompleteCommit" if commit else "CompleteAbort")
    if stage > 0:
        found = dialog.connection("preparing").ask("describe_transactions", 0, {"transactional_ids": [OPEN]})
        (state,) = found["transaction_states"]
        named = {name: state[name] for name in ("transactional_id", "producer_id", "producer_epoch")}
        transactions.write(dialog, 11, named, "plain", 2, 2)
        offsets.committed(dialog, 7, "processors", offsets.wanted("plain", 0), require_stable=True)
        transactions.end(dialog, 4, named, commit=True)
        transactions.find_state(dialog, OPEN, "CompleteCommit")
    owner = transactions.started(dialog, 4, OPEN)
    transactions.add(dialog, 3, owner, ("plain", [2]))
    transactions.write(dialog, 11, owner, "plain", 0, 2)
    dialog.ask("add_offsets_to_txn", 3, **owner, group_id="processors")
    pending = {
        "group_id": "processors",
        "generation_id": -1,
        "member_id": "",
        "topics": [offsets.commits("plain", (0, 7 + stage))],
    }
    dialog.ask("txn_offset_commit", 3, **owner, **pending)


def look(dialog: Dialog) -> None:
    """Everything that can be asked, when a stage begins and before it ends."""
    for topic, partitions in (("plain", 3), ("compacted", 1), ("small", 1)):
        for partition in range(partitions):
            for isolation in (0, 1):
                asked = {"partition": partition, "fetch_offset": 2 if (topic, partition) == ("plain", 0) else 0}
                asked["partition_max_bytes"] = 1 << 20
                answer = dialog.connection("").ask(
                    "fetch",
                    11,
                    {
                        "replica_id": -1,
                        "max_bytes": 1 << 20,
                        "session_epoch": -1,
                        "isolation_level": isolation,
                        "topics": [{"topic": topic, "partitions": [asked]}],
                    },
                )
                dialog.note(f"{topic}-{partition} isolation {isolation}", _without_epochs(dialog.normal(answer)))
        configs.describe(dialog, 4, configs.resource(configs.TOPIC, topic), include_synonyms=True)
    dialog.ask(
        "list_offsets",
        5,
        replica_id=-1,
        topics=[{"name": "plain", "partitions": [{"partition_index": 0, "timestamp": -2}]}],
    )
    configs.describe(dialog, 4, configs.resource(configs.BROKER, "1", "log.cleaner.backoff.ms"), include_synonyms=True)
    configs.describe(
        dialog, 4, configs.resource(configs.BROKER, "", "log.cleaner.delete.retention.ms"), include_synonyms=True
    )
    configs.describe(dialog, 4, configs.resource(configs.GROUP, "new", "consumer.session.timeout.ms"))
    dialog.ask("metadata", 12, topics=[{"name": "deleted"}], allow_auto_topic_creation=False)
    for group in ("classic", "standalone", "processors"):
        groups.find_coordinator_of(dialog, group)
        groups.describe(dialog, 6, group)
        offsets.committed(dialog, 8, group, everything=True)
    offsets.committed(dialog, 9, "new", everything=True)
    consumer_groups.describe_group(dialog, 1, "new")
    for name in ("commits", "aborts", OPEN):
        transactions.find_transactions(dialog, name)
        dialog.ask("describe_transactions", 0, transactional_ids=[name])


def look_at_changed_groups(dialog: Dialog) -> None:
    for group in (LEFT, DELETED):
        groups.find_coordinator_of(dialog, group)
        groups.describe(dialog, 6, group)
        offsets.committed(dialog, 8, group, everything=True)


def _without_epochs(value: Any) -> Any:
    """Who served a partition, and for the how manieth time, is Kafka's business with its quorum."""
    if isinstance(value, dict):
        return {name: _without_epochs(each) for name, each in value.items() if name != "leader_epoch"}
    return [_without_epochs(each) for each in value] if isinstance(value, list) else value


@contextmanager
def served_by(who: str, kafka: KafkaProcess, directory: Path) -> Iterator[Address]:
    if who == "duralog":
        with ServedDirectory(directory, configs=SETTINGS) as broker:
            wait_for_coordinators(broker.address)
            yield broker.address
            assert broker.errors == []
    else:
        with KafkaServer(kafka, directory, configs=SETTINGS) as server:
            server.topics()
            wait_for_coordinators(server.address)
            yield server.address
            assert [line for line in server.errors if "Error processing append operation" not in line] == []


def lead(kafka: KafkaProcess, directory: Path, *servers: str) -> list[Dialog]:
    """The transcripts of each stage."""
    if servers[0] == "kafka":
        format_directory(kafka, directory)
    dialogs = []
    for stage, who in enumerate(servers):
        with served_by(who, kafka, directory) as address:
            dialog = Dialog(address, f"stage {stage} by {who}")
            try:
                if stage == 0:
                    begin(dialog)
                else:
                    look(dialog)
                    look_at_changed_groups(dialog)
                live(dialog, stage)
                look(dialog)
            finally:
                dialog.close()
            dialogs.append(dialog)
        change_groups(directory)
    assert dump_complaints(kafka, directory) == []
    return dialogs


@pytest.fixture(scope="module")
def chains(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> list[list[Dialog]]:
    folder = tmp_path_factory.mktemp("chains")
    return [
        lead(kafka, folder / "one", "duralog", "kafka", "duralog"),
        lead(kafka, folder / "other", "kafka", "duralog", "kafka"),
    ]


@pytest.mark.parametrize("stage", range(STAGES))
def test_each_stage_is_the_same_for_every_broker(chains: list[list[Dialog]], stage: int) -> None:
    ours, others = (chain[stage] for chain in chains)
    kafka, duralog = (others, ours) if "kafka" in others.name else (ours, others)
    found = [str(each) for each in differences(f"stage {stage}", kafka.transcript, duralog.transcript)]
    assert not found, "\n".join(found)


def test_there_was_something_to_find(chains: list[list[Dialog]]) -> None:
    """Guards the test above, which two servers that forget everything would pass."""
    for chain in chains:
        last = chain[-1].transcript
        lines = {line.asked: line.answer for line in last}
        (classic,) = [
            answer for asked, answer in lines.items() if asked.startswith("join_group") and "<uuid 1>" in asked
        ]
        assert classic["generation_id"] > STAGES
        committed = str([answer for asked, answer in lines.items() if asked.startswith("offset_fetch v8")])
        assert "'committed_offset': 4" in committed
        values = str(lines["plain-2 isolation 1"])
        assert "value 2" in values
        left, deleted = (
            str([answer for asked, answer in lines.items() if asked.startswith("offset_fetch v8") and group in asked])
            for group in (LEFT, DELETED)
        )
        assert ("'committed_offset': 2" in left, "'committed_offset': 4" in left) == (True, True)
        assert "'topics': []" in deleted
        assert str(lines["small-0 isolation 0"]).count("'record_count': 5") == STAGES
