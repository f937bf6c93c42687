"""The cluster metadata as a state machine, its changes, and its bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from duralog.errors import CorruptRecord, Fault, InvalidRecord, InvalidTopic, TopicExists, UnknownTopic
from duralog.format import control_records, record_batch
from duralog.format.control_records import KRaftVersion, LeaderChange, SnapshotFooter, SnapshotHeader
from duralog.format.filenames import MetadataSnapshotFile, SnapshotState
from duralog.format.internal.metadata_records import METADATA_TYPES, MetadataRecord, encode_metadata_record
from duralog.format.record import Record
from duralog.format.uuids import random_uuid, uuid_bytes, uuid_text
from duralog.storage.metadata.changes import (
    FEATURE_LEVELS,
    MOST_PARTITIONS,
    add_partitions,
    alter_topic_configs,
    create_topic,
    delete_topic,
    first_records,
    take_producer_ids,
)
from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterMetadata
from duralog.storage.metadata.metadata_log import (
    MetadataSnapshot,
    decode_batches,
    decode_snapshot,
    encode_batch,
    newest_snapshot,
)

NODE_ID = 4
DIRECTORY_ID = uuid_text(bytes(range(16)))
PLACED: dict[str, Any] = {"node_id": NODE_ID, "directory_ids": lambda numbers: [DIRECTORY_ID] * len(numbers)}
NOW_MS = 1_700_000_000_000
TYPE_IDS = {message.name: type_id for type_id, message in METADATA_TYPES.items()}


def record(type_name: str, version: int = 0, **fields) -> MetadataRecord:
    return MetadataRecord(type_id=TYPE_IDS[type_name], type_name=type_name, version=version, fields=fields)


def config_record(resource_type: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return record("CONFIG_RECORD", resource_type=resource_type, resource_name=resource, name=name, value=value)


def partition_change(topic_id: str, **fields) -> MetadataRecord:
    unchanged = {"partition_id": 0, "isr": None, "leader": -2, "replicas": None, "directories": None}
    return record("PARTITION_CHANGE_RECORD", 2, topic_id=topic_id, **(unchanged | fields))


def control_batch(*controls, base_offset: int = 0, leader_epoch: int = 0) -> bytes:
    records = [Record(key=key, value=value, timestamp_ms=0) for key, value in map(control_records.encode, controls)]
    return record_batch.encode(records, base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)


def snapshot_bytes(records: list[MetadataRecord]) -> bytes:
    header = control_batch(SnapshotHeader(last_contained_log_timestamp_ms=0), KRaftVersion(kraft_version=1))
    footer = control_batch(SnapshotFooter(), base_offset=len(records) + 2)
    return header + encode_batch(records, 2, 0, NOW_MS) + footer


def applied(*changes: list[MetadataRecord]) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for each in itertools.chain(*changes):
        metadata.apply(each)
    return metadata


def one_topic(**configs: str) -> ClusterMetadata:
    metadata = applied(first_records())
    for each in create_topic(metadata, "orders", partitions=2, configs=configs, **PLACED):
        metadata.apply(each)
    return metadata


class TestState:
    def test_a_topic_has_its_partitions_on_the_node(self):
        metadata = one_topic()
        topic = metadata.topic("orders")
        assert list(metadata.topics) == ["orders"]
        assert list(topic.partitions) == [0, 1]
        for state in topic.partitions.values():
            assert (state.leader, state.replicas, state.isr) == (NODE_ID, (NODE_ID,), (NODE_ID,))
            assert (state.leader_epoch, state.partition_epoch, state.directories) == (0, 0, (DIRECTORY_ID,))

    def test_unknown_topics(self):
        with pytest.raises(UnknownTopic, match="no topic missing"):
            one_topic().topic("missing")

    def test_a_removed_topic_takes_its_configs_along(self):
        metadata = one_topic(**{"flush.ms": "5"})
        topic_id = metadata.topic("orders").topic_id
        metadata.apply(record("REMOVE_TOPIC_RECORD", topic_id=topic_id))
        assert metadata.topics == {}
        with pytest.raises(CorruptRecord):
            metadata.apply(record("REMOVE_TOPIC_RECORD", topic_id=topic_id))
        for each in create_topic(metadata, "orders", partitions=1, configs={}, topic_id=topic_id, **PLACED):
            metadata.apply(each)
        assert metadata.topic_configs("orders") == {}
        assert metadata.topic("orders").topic_id == topic_id

    def test_a_new_leader_raises_both_epochs_other_changes_one(self):
        metadata = one_topic()
        topic_id = metadata.topic("orders").topic_id
        metadata.apply(partition_change(topic_id, isr=[], leader=-1))
        state = metadata.topic("orders").partitions[0]
        assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (-1, (), 1, 1)
        assert state.replicas == (NODE_ID,)
        metadata.apply(partition_change(topic_id, isr=[NODE_ID], replicas=[NODE_ID, 9], directories=[topic_id] * 2))
        state = metadata.topic("orders").partitions[0]
        assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (-1, (NODE_ID,), 1, 2)
        assert (state.replicas, state.directories) == ((NODE_ID, 9), (topic_id, topic_id))
        assert metadata.topic("orders").partitions[1].partition_epoch == 0

    def test_configs_are_set_and_given_back(self):
        metadata = one_topic(**{"flush.ms": "5"})
        metadata.apply(config_record(TOPIC_RESOURCE, "orders", "retention.ms", "7"))
        assert metadata.topic_configs("orders") == {"flush.ms": "5", "retention.ms": "7"}
        metadata.apply(config_record(TOPIC_RESOURCE, "orders", "flush.ms", None))
        metadata.apply(config_record(TOPIC_RESOURCE, "orders", "retention.ms", None))
        metadata.apply(config_record(TOPIC_RESOURCE, "orders", "never.set", None))
        assert metadata.topic_configs("orders") == {}

    def test_configs_of_one_broker_win_over_those_of_all(self):
        metadata = ClusterMetadata()
        metadata.apply(config_record(BROKER_RESOURCE, "", "log.retention.ms", "1"))
        metadata.apply(config_record(BROKER_RESOURCE, "", "message.max.bytes", "2"))
        metadata.apply(config_record(BROKER_RESOURCE, "4", "log.retention.ms", "3"))
        assert metadata.broker_configs(4) == {"log.retention.ms": "3", "message.max.bytes": "2"}
        assert metadata.broker_configs(5) == {"log.retention.ms": "1", "message.max.bytes": "2"}

    def test_feature_levels(self):
        metadata = applied(first_records())
        assert metadata.features == FEATURE_LEVELS
        metadata.apply(record("FEATURE_LEVEL_RECORD", name="group.version", feature_level=0))
        assert "group.version" not in metadata.features

    def test_other_records_are_passed_over(self):
        metadata = one_topic()
        before = dict(metadata.topics)
        metadata.apply(record("NO_OP_RECORD"))
        metadata.apply(record("PRODUCER_IDS_RECORD", broker_id=1, broker_epoch=1, next_producer_id=1000))
        metadata.apply(MetadataRecord(type_id=999, type_name=None, version=0, fields=b"\1\2\3"))
        assert metadata.topics == before

    @pytest.mark.parametrize(
        "bad",
        [
            record("REMOVE_TOPIC_RECORD", topic_id=DIRECTORY_ID),
            partition_change(DIRECTORY_ID),
            record("TOPIC_RECORD", name="orders", topic_id=DIRECTORY_ID),
            MetadataRecord(type_id=TYPE_IDS["TOPIC_RECORD"], type_name="TOPIC_RECORD", version=9, fields=b""),
        ],
        ids=["remove", "change", "twice", "later version"],
    )
    def test_records_that_cannot_be_applied(self, bad):
        with pytest.raises(CorruptRecord):
            one_topic().apply(bad)

    @pytest.mark.parametrize("name", ["../orders", "orders/", "", "..", "a" * 250, "orders\n"])
    def test_a_name_that_no_topic_can_have(self, name):
        """Folders are made by these names: none may lead out of the directory."""
        with pytest.raises(CorruptRecord, match="an invalid topic name"):
            one_topic().apply(record("TOPIC_RECORD", name=name, topic_id=DIRECTORY_ID))

    def test_a_negative_partition(self):
        metadata = one_topic()
        fields: dict[str, list[int]] = {
            name: [] for name in ("replicas", "isr", "removing_replicas", "adding_replicas", "directories")
        }
        bad = record(
            "PARTITION_RECORD",
            1,
            partition_id=-1,
            topic_id=metadata.topic("orders").topic_id,
            leader=NODE_ID,
            leader_epoch=0,
            partition_epoch=0,
            **fields,
        )
        with pytest.raises(CorruptRecord, match="negative number"):
            metadata.apply(bad)
        assert list(metadata.topic("orders").partitions) == [0, 1]

    def test_no_leader_epoch_is_larger_than_a_batch_can_hold(self):
        metadata = one_topic()
        topic = metadata.topic("orders")
        topic.partitions[0] = replace(topic.partitions[0], leader_epoch=2**31 - 1)
        metadata.apply(partition_change(topic.topic_id, isr=[]))
        with pytest.raises(CorruptRecord, match="no leader epoch follows"):
            metadata.apply(partition_change(topic.topic_id, leader=-1))

    def test_a_change_of_a_partition_that_does_not_exist(self):
        metadata = one_topic()
        with pytest.raises(CorruptRecord, match=r"partition that does not exist .*found 2"):
            metadata.apply(partition_change(metadata.topic("orders").topic_id, partition_id=2))


class TestTransactions:
    CREATED = create_topic(ClusterMetadata(), "late", partitions=1, configs={}, **PLACED)

    def test_records_count_when_the_transaction_ends(self):
        metadata = applied([record("BEGIN_TRANSACTION_RECORD", name=None)], self.CREATED)
        assert metadata.topics == {}
        assert metadata.is_in_transaction
        metadata.apply(record("END_TRANSACTION_RECORD"))
        assert list(metadata.topics) == ["late"]
        assert not metadata.is_in_transaction

    def test_records_of_an_aborted_transaction_do_not_count(self):
        abort = [record("ABORT_TRANSACTION_RECORD", reason=None)]
        metadata = applied([record("BEGIN_TRANSACTION_RECORD", name=None)], self.CREATED, abort)
        assert metadata.topics == {}
        assert not metadata.is_in_transaction

    @pytest.mark.parametrize("change", ["create", "delete", "alter", "add"])
    def test_a_change_first_ends_what_the_log_left_open(self, change):
        """Kafka aborts an open transaction when it starts: without this, it would take our records for part of it."""
        metadata = one_topic()
        metadata.apply(record("BEGIN_TRANSACTION_RECORD", name=None))
        metadata.apply(self.CREATED[0])
        records = {
            "create": lambda: create_topic(metadata, "new", partitions=1, configs={}, **PLACED),
            "delete": lambda: delete_topic(metadata, "orders"),
            "alter": lambda: alter_topic_configs(metadata, "orders", {"flush.ms": "1"}),
            "add": lambda: add_partitions(metadata, "orders", partitions=3, **PLACED),
        }[change]()
        assert [each.type_name for each in records].index("ABORT_TRANSACTION_RECORD") == 0
        for each in records:
            metadata.apply(each)
        assert not metadata.is_in_transaction
        assert "late" not in metadata.topics


class TestChanges:
    def test_a_topic_is_created_as_kafka_does_it(self):
        records = create_topic(one_topic(), "new", partitions=2, configs={"flush.ms": "1"}, **PLACED)
        assert [each.type_name for each in records] == ["TOPIC_RECORD", "CONFIG_RECORD", *["PARTITION_RECORD"] * 2]
        assert [each.version for each in records] == [0, 0, 2, 2]

    @pytest.mark.parametrize(("level", "version"), [(7, 0), (16, 0), (17, 1), (22, 1), (23, 2), (30, 2)])
    def test_partition_records_are_of_the_version_that_the_cluster_is_at(self, level, version):
        metadata = applied([record("FEATURE_LEVEL_RECORD", name="metadata.version", feature_level=level)])
        created = create_topic(metadata, "new", partitions=1, configs={}, **PLACED)
        assert created[-1].version == version
        metadata.apply_batches(encode_batch(created, 0, 1, NOW_MS))
        assert metadata.topic("new").partitions[0].directories == ((DIRECTORY_ID,) if version else ())

    @pytest.mark.parametrize(
        ("name", "error", "complaint"),
        [
            ("orders", TopicExists, "the topic orders exists already$"),
            ("or/ders", InvalidTopic, "letters, digits"),
            ("", InvalidTopic, "empty"),
            ("x" * 250, InvalidTopic, "249"),
            ("__cluster_metadata", InvalidTopic, "an internal topic of Kafka"),
        ],
    )
    def test_names_that_are_refused(self, name, error, complaint):
        with pytest.raises(error, match=complaint):
            create_topic(one_topic(), name, partitions=1, configs={}, **PLACED)

    def test_names_that_are_too_much_alike(self):
        metadata = applied(create_topic(ClusterMetadata(), "a.b_c", partitions=1, configs={}, **PLACED))
        with pytest.raises(TopicExists, match=r"a\.b_c exists already: it collides with a_b\.c"):
            create_topic(metadata, "a_b.c", partitions=1, configs={}, **PLACED)

    @pytest.mark.parametrize("partitions", [0, -1, MOST_PARTITIONS + 1])
    def test_numbers_of_partitions_that_are_refused(self, partitions):
        with pytest.raises(InvalidTopic, match=f"{partitions} partitions cannot be created: .* 1 to 10000"):
            create_topic(one_topic(), "new", partitions=partitions, configs={}, **PLACED)

    def test_the_most_partitions_fit_one_batch(self):
        created = create_topic(one_topic(), "new", partitions=MOST_PARTITIONS, configs={}, **PLACED)
        metadata = one_topic()
        metadata.apply_batches(encode_batch(created, 0, 1, NOW_MS))
        assert len(metadata.topic("new").partitions) == MOST_PARTITIONS

    def test_partitions_are_added_after_the_last_one(self):
        metadata = one_topic()
        for each in add_partitions(metadata, "orders", partitions=5, **PLACED):
            metadata.apply(each)
        assert list(metadata.topic("orders").partitions) == [0, 1, 2, 3, 4]
        for too_few in (5, 1):
            with pytest.raises(InvalidTopic, match=f"orders has 5 partitions; it can only get more, not {too_few}"):
                add_partitions(metadata, "orders", partitions=too_few, **PLACED)

    def test_changes_of_unknown_topics(self):
        for change in (
            lambda: delete_topic(one_topic(), "missing"),
            lambda: alter_topic_configs(one_topic(), "missing", {}),
            lambda: add_partitions(one_topic(), "missing", partitions=2, **PLACED),
        ):
            with pytest.raises(UnknownTopic):
                change()

    def test_the_first_records_follow_what_kafka_prepared(self):
        level = record("FEATURE_LEVEL_RECORD", name="metadata.version", feature_level=21)
        assert first_records([level]) == [level]
        assert applied(first_records([record("NO_OP_RECORD")])).features == FEATURE_LEVELS

    def test_new_ids_do_not_start_with_a_hyphen_and_are_not_reserved(self, monkeypatch):
        class Given:
            def __init__(self, raw: bytes) -> None:
                self.bytes = raw

        good = uuid_bytes("A-good-one-is-taken--w")
        drawn = iter([b"\xf8" + bytes(15), bytes(16), bytes(15) + b"\1", good])
        monkeypatch.setattr("duralog.format.uuids.uuid.uuid4", lambda: Given(next(drawn)))
        assert random_uuid() == uuid_text(good)


class TestLoading:
    def log(self) -> list[bytes]:
        """Three pieces of a log: a leader change, then two changes, by two leaders."""
        metadata = applied(first_records())
        first = encode_batch(first_records(), 1, 1, NOW_MS)
        created = create_topic(metadata, "orders", partitions=1, configs={"flush.ms": "5"}, **PLACED)
        second = encode_batch(created, 1 + len(first_records()), 3, NOW_MS)
        return [
            control_batch(LeaderChange(leader_id=NODE_ID, voters=(), granting_voters=()), leader_epoch=1),
            first,
            second,
        ]

    def test_an_empty_log(self):
        metadata = ClusterMetadata.load(None, [])
        assert (metadata.next_offset, metadata.writing_epoch) == (0, 1)
        assert metadata.topics == {}
        assert metadata.features == {}

    @pytest.mark.parametrize("pieces", [1, 3], ids=["whole", "in pieces"])
    def test_a_log_without_a_snapshot(self, pieces):
        log = self.log()
        metadata = ClusterMetadata.load(None, log if pieces == 3 else [b"".join(log)])
        assert list(metadata.topics) == ["orders"]
        assert metadata.topic_configs("orders") == {"flush.ms": "5"}
        assert metadata.next_offset == 1 + len(first_records()) + 3
        assert metadata.writing_epoch == 3

    def test_the_log_before_the_end_of_the_snapshot_is_passed_over(self):
        end_offset = 1 + len(first_records()) + 3
        state = ClusterMetadata.load(None, self.log())
        config = config_record(TOPIC_RESOURCE, "orders", "flush.ms", "6")
        topic = record("TOPIC_RECORD", name="orders", topic_id=state.topic("orders").topic_id)
        snapshot = MetadataSnapshot(
            end_offset=end_offset, epoch=3, data=snapshot_bytes([*first_records(), topic, config])
        )
        metadata = ClusterMetadata.load(snapshot, self.log())
        assert metadata.topic_configs("orders") == {"flush.ms": "6"}
        assert (metadata.next_offset, metadata.writing_epoch) == (end_offset, 3)

    def test_a_snapshot_may_end_inside_a_batch(self):
        records = [config_record(TOPIC_RESOURCE, "t", "flush.ms", str(number)) for number in range(4)]
        poisoned = [record("REMOVE_TOPIC_RECORD", topic_id=DIRECTORY_ID), *records]
        snapshot = MetadataSnapshot(end_offset=11, epoch=2, data=snapshot_bytes([record("NO_OP_RECORD")]))
        metadata = ClusterMetadata.load(snapshot, [encode_batch(poisoned, 10, 2, NOW_MS)])
        assert metadata.topic_configs("t") == {"flush.ms": "3"}
        assert metadata.next_offset == 15

    def test_records_missing_in_the_log(self):
        control, _, last = self.log()
        with pytest.raises(CorruptRecord, match=r"missing \(expected offset 1, found offset 8\)"):
            ClusterMetadata.load(None, [control, last])
        with pytest.raises(CorruptRecord, match=r"missing \(expected offset 0, found offset 1\)"):
            ClusterMetadata.load(None, self.log()[1:])

    def test_a_record_that_cannot_be_applied_is_reported_with_its_offset(self):
        bad = encode_batch([record("NO_OP_RECORD"), record("REMOVE_TOPIC_RECORD", topic_id=DIRECTORY_ID)], 0, 1, NOW_MS)
        with pytest.raises(CorruptRecord, match="a topic that does not exist, at offset 1 of the metadata log"):
            ClusterMetadata.load(None, [bad])


class TestBytes:
    def test_what_is_encoded_reads_back(self):
        records = [*first_records(), *create_topic(ClusterMetadata(), "t", partitions=3, configs={"a": "b"}, **PLACED)]
        (batch,) = decode_batches(encode_batch(records, 40, 7, NOW_MS))
        assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (40, 39 + len(records), 7)
        assert list(map(encode_metadata_record, batch.records)) == list(map(encode_metadata_record, records))

    def test_the_newest_complete_snapshot_is_chosen(self):
        names = [
            MetadataSnapshotFile(10, 1).name,
            MetadataSnapshotFile(20, 1).name,
            MetadataSnapshotFile(20, 2).name,
            MetadataSnapshotFile(30, 2, SnapshotState.DELETED).name,
            "00000000000000000040-0000000002-12ab.checkpoint.part",
            "00000000000000000000.log",
            "leader-epoch-checkpoint",
        ]
        assert newest_snapshot(names) == MetadataSnapshotFile(20, 2)
        assert newest_snapshot(names[3:]) is None

    def test_a_damaged_snapshot_is_refused_at_every_cut(self):
        """At a batch's end, the footer is missing; anywhere else, a batch is not whole."""
        whole = snapshot_bytes(first_records())
        assert len(decode_snapshot(whole)) == len(first_records())
        for size in range(len(whole)):
            with pytest.raises(CorruptRecord, match="a snapshot of the metadata does not"):
                decode_snapshot(whole[:size])
        with pytest.raises(CorruptRecord, match="does not end with a complete batch"):
            decode_snapshot(whole + b"\0")

    def test_a_snapshot_without_its_header_is_refused(self):
        footer = control_batch(SnapshotFooter())
        for start in (b"", encode_batch(first_records(), 0, 0, NOW_MS)):
            with pytest.raises(CorruptRecord, match="does not begin with a header"):
                decode_snapshot(start + footer)

    def test_a_wrong_checksum_is_refused(self):
        data = bytearray(encode_batch(first_records(), 0, 1, NOW_MS))
        data[-1] ^= 1
        with pytest.raises(CorruptRecord) as error:
            list(decode_batches(data))
        assert (error.value.fault, error.value.position) == (Fault.CRC_MISMATCH, 0)

    def test_a_damaged_record_is_reported_with_its_offset(self):
        good = encode_metadata_record(record("NO_OP_RECORD"))
        values = [good, b"\1\2\0\x20short", None]
        for number, complaint in ((1, "offset 8 is damaged at byte"), (2, "offset 8 is damaged: .*no value")):
            batch = record_batch.encode(
                [Record(value=good, timestamp_ms=0), Record(value=values[number], timestamp_ms=0)], base_offset=7
            )
            with pytest.raises(CorruptRecord, match=complaint):
                list(decode_batches(batch))


def producer_ids(next_producer_id: int) -> MetadataRecord:
    return record("PRODUCER_IDS_RECORD", broker_id=NODE_ID, broker_epoch=-1, next_producer_id=next_producer_id)


def test_the_next_producer_id_is_what_the_last_block_leaves() -> None:
    metadata = ClusterMetadata()
    assert metadata.next_producer_id == 0
    metadata.apply(producer_ids(5000))
    [taken] = take_producer_ids(metadata, node_id=NODE_ID)
    assert taken.fields == {"broker_id": NODE_ID, "broker_epoch": -1, "next_producer_id": 6000}
    metadata.apply(taken)
    assert metadata.next_producer_id == 6000


def test_producer_ids_cannot_be_taken_back() -> None:
    metadata = ClusterMetadata()
    metadata.apply(producer_ids(5000))
    with pytest.raises(CorruptRecord, match="takes back ids"):
        metadata.apply(producer_ids(4000))


def test_no_producer_id_follows_the_last_one() -> None:
    metadata = ClusterMetadata()
    metadata.apply(producer_ids(2**63 - 1 - 1000))
    metadata.apply(*take_producer_ids(metadata, node_id=NODE_ID))
    with pytest.raises(InvalidRecord, match="no producer ids left"):
        take_producer_ids(metadata, node_id=NODE_ID)


def test_a_check_finds_what_cannot_be_applied_and_changes_nothing() -> None:
    metadata = ClusterMetadata()
    topic_id, acl_id = random_uuid(), random_uuid()
    acl: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "pattern_type": 3,
        "principal": "User:a",
        "host": "*",
    }
    metadata.apply(record("TOPIC_RECORD", name="t", topic_id=topic_id))
    metadata.apply(
        record("ACCESS_CONTROL_ENTRY_RECORD", id=acl_id, operation=3, permission_type=3, **acl),
    )
    removals = [
        record("REMOVE_TOPIC_RECORD", topic_id=topic_id),
        record("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", id=acl_id),
    ]
    for removal in removals:
        metadata.check([removal])
        with pytest.raises(InvalidRecord, match="does not exist"):
            metadata.check([removal, removal])
    with pytest.raises(InvalidRecord, match="twice"):
        metadata.check([record("TOPIC_RECORD", name="t", topic_id=random_uuid())])
    metadata.check(add_partitions(metadata, "t", partitions=2, **PLACED))
    assert not metadata.topic("t").partitions
    assert list(metadata.acls) == [acl_id]
