"""Kafka itself, started on a log directory that it did not make, serves every topic with its configs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from duralog.format import batches, record_batch
from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.compression import Codec
from duralog.format.filenames import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    FileKind,
    PartitionFolder,
    SegmentFile,
)
from duralog.format.index_entries import (
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    index_entries,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.internal.metadata_records import METADATA_TYPES, MetadataRecord
from duralog.format.properties import (
    MetaProperties,
    decode_meta_properties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
)
from duralog.format.record import Record
from duralog.format.uuids import random_uuid
from duralog.storage.metadata.changes import (
    FEATURE_LEVELS,
    add_partitions,
    alter_topic_configs,
    create_topic,
    delete_topic,
    first_records,
)
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.metadata_log import (
    MetadataSnapshot,
    decode_snapshot,
    encode_batch,
    newest_snapshot,
)
from oracle.kafka_process import KafkaProcess, KafkaRefusedError
from oracle.kafka_server import CLUSTER_ID, KafkaServer, format_directory
from tests.support.places import GOLDEN
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

NODE_ID = 7
NOW_MS = 1_700_000_000_000
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "2097152", "min.cleanable.dirty.ratio": "0.9"}
FIRST_LOG = SegmentFile(0, FileKind.LOG).name
METADATA_FOLDER = PartitionFolder(CLUSTER_METADATA, 0).name


class Directory:
    """A log directory written with nothing but duralog's formats."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.metadata = ClusterMetadata()

    def change(self, records: list[MetadataRecord]) -> None:
        batch = encode_batch(records, self.metadata.next_offset, self.metadata.writing_epoch, NOW_MS)
        folder = self.root / METADATA_FOLDER
        folder.mkdir(exist_ok=True)
        with max(folder.glob("*.log"), default=folder / FIRST_LOG).open("ab") as log:
            log.write(batch)
        self.metadata.apply_batches(batch)

    def write_partition(self, topic: str, partition: int, data: bytes) -> None:
        folder = self.root / PartitionFolder(topic, partition).name
        entries = list(index_entries(batches.scan(data)))
        offsets = [entry for entry in entries if isinstance(entry, OffsetIndexEntry)]
        times = [entry for entry in entries if isinstance(entry, TimeIndexEntry)]
        epochs = [EpochStart(0, 0)] if data else []
        folder.mkdir()
        for name, content in {
            FIRST_LOG: data,
            SegmentFile(0, FileKind.OFFSET_INDEX).name: encode_offset_index(offsets, 0),
            SegmentFile(0, FileKind.TIME_INDEX).name: encode_time_index(times, 0),
            PARTITION_METADATA: encode_partition_metadata(self.metadata.topic(topic).topic_id),
            LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint(epochs),
        }.items():
            (folder / name).write_bytes(content)


def metadata_record(type_name: str, **fields) -> MetadataRecord:
    (type_id,) = (number for number, message in METADATA_TYPES.items() if message.name == type_name)
    return MetadataRecord(type_id=type_id, type_name=type_name, version=0, fields=fields)


def sample_records(count: int, start: int = 0) -> list[Record]:
    return [
        Record(
            key=b"key-%d" % number,
            value=None if number % 10 == 9 else b"value %d" % number,
            timestamp_ms=NOW_MS + number,
            headers=[("number", b"%d" % number)] if number % 3 == 0 else [],
        )
        for number in range(start, start + count)
    ]


def seen_by_kafka(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": "CreateTime",
            "key": record.key and record.key.hex(),
            "value": record.value if record.value is None else record.value.hex(),
            "headers": [[key, value and value.hex()] for key, value in record.headers],
        }
        for offset, record in enumerate(records)
    ]


def test_kafka_serves_a_directory_that_duralog_made(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory_id = random_uuid()
    meta = MetaProperties(version=1, cluster_id=CLUSTER_ID, node_id=NODE_ID, directory_id=directory_id)
    (tmp_path / META_PROPERTIES).write_bytes(encode_meta_properties(meta, written="now"))
    placed: dict[str, Any] = {"node_id": NODE_ID, "directory_ids": lambda numbers: [directory_id] * len(numbers)}

    directory.change(first_records())
    directory.change(create_topic(directory.metadata, "orders", partitions=2, configs=CONFIGS, **placed))
    directory.change(create_topic(directory.metadata, "short-lived", partitions=1, configs={}, **placed))
    directory.change(create_topic(directory.metadata, "grown", partitions=1, configs={"retention.ms": "5"}, **placed))
    directory.change(add_partitions(directory.metadata, "grown", partitions=3, **placed))
    directory.change(alter_topic_configs(directory.metadata, "grown", {"retention.ms": None, "flush.ms": "70000"}))
    directory.change(delete_topic(directory.metadata, "short-lived"))

    records = sample_records(1000)
    encoded = [
        record_batch.encode(records[start : start + 250], base_offset=start, codec=codec, leader_epoch=0)
        for start, codec in zip(range(0, 1000, 250), (Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY), strict=True)
    ]
    directory.write_partition("orders", 0, b"".join(encoded))
    directory.write_partition("orders", 1, b"")
    offsets = encode_offset_checkpoint([PartitionOffset("orders", 0, 1000)])
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_bytes(offsets)
    (tmp_path / HIGH_WATERMARK_CHECKPOINT).write_bytes(offsets)
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(encode_clean_shutdown(-1))

    with KafkaServer(kafka, tmp_path) as server:
        assert server.topics() == {
            "orders": {"id": directory.metadata.topic("orders").topic_id, "partitions": 2, "configs": CONFIGS},
            "grown": {
                "id": directory.metadata.topic("grown").topic_id,
                "partitions": 3,
                "configs": {"flush.ms": "70000"},
            },
        }
        consumed = server.consume("orders", 0)
        assert (consumed["start"], consumed["end"]) == (0, 1000)
        assert consumed["records"] == seen_by_kafka(records)
        assert server.consume("orders", 1)["records"] == []
        assert server.produce("orders", 0, [{"key": "00", "value": "01"}]) == [1000]
        assert server.errors == []
    assert_kafka_agrees(tmp_path, directory)


def assert_kafka_agrees(root: Path, directory: Directory) -> None:
    """What duralog reads out of the metadata after Kafka has written to it is what was there before."""
    reloaded = load(root)
    assert {name: topic.topic_id for name, topic in reloaded.topics.items()} == {
        name: topic.topic_id for name, topic in directory.metadata.topics.items()
    }
    for name, topic in directory.metadata.topics.items():
        assert reloaded.topic(name).partitions.keys() == topic.partitions.keys()
        assert reloaded.topic_configs(name) == directory.metadata.topic_configs(name)
    assert reloaded.features == directory.metadata.features


def load(root: Path) -> ClusterMetadata:
    folder = root / METADATA_FOLDER
    newest = newest_snapshot(path.name for path in folder.iterdir())
    snapshot = None
    if newest is not None:
        data = (folder / newest.name).read_bytes()
        snapshot = MetadataSnapshot(end_offset=newest.end_offset, epoch=newest.epoch, data=data)
    return ClusterMetadata.load(snapshot, log_of(root))


def wait_for_snapshot(root: Path, end_offset: int) -> None:
    """Kafka makes them in a thread of their own."""

    def is_there() -> bool:
        newest = newest_snapshot(each.name for each in (root / METADATA_FOLDER).iterdir())
        return newest is not None and newest.end_offset >= end_offset

    wait_until(is_there)


def log_of(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / METADATA_FOLDER).glob("*.log"))]


@pytest.mark.parametrize("origin", ["formatted now", "golden"])
def test_kafka_accepts_topics_that_duralog_added_to_its_directory(
    kafka: KafkaProcess, tmp_path: Path, origin: str
) -> None:
    """Once in a directory that Kafka formatted and never used, once in one that it used and closed."""
    root = tmp_path / "store"
    if origin == "golden":
        shutil.copytree(GOLDEN / "store", root, ignore=shutil.ignore_patterns("*.gz"))
    else:
        format_directory(kafka, root, node_id=NODE_ID)
    meta = decode_meta_properties((root / META_PROPERTIES).read_bytes())
    assert meta.node_id is not None
    assert meta.directory_id is not None

    directory = Directory(root)
    if (root / METADATA_FOLDER).exists():
        directory.metadata = load(root)
    if not directory.metadata.features:
        directory.change(first_records(decode_snapshot((root / "bootstrap.checkpoint").read_bytes())))
    records = sample_records(10)
    directory.change(
        create_topic(
            directory.metadata,
            "added",
            partitions=1,
            configs=CONFIGS,
            node_id=meta.node_id,
            directory_ids=lambda numbers: [str(meta.directory_id)] * len(numbers),
        )
    )
    directory.write_partition("added", 0, record_batch.encode(records, leader_epoch=0))
    with KafkaServer(kafka, root) as server:
        topics = server.topics()
        assert topics["added"] == {
            "id": directory.metadata.topic("added").topic_id,
            "partitions": 1,
            "configs": CONFIGS,
        }
        assert topics.keys() == directory.metadata.topics.keys()
        assert server.consume("added", 0)["records"] == seen_by_kafka(records)
        assert server.errors == []
    assert_kafka_agrees(root, directory)


def test_kafka_and_duralog_take_turns(kafka: KafkaProcess, tmp_path: Path) -> None:
    """Also over a transaction that Kafka left open when it died, and over snapshots that it makes.

    The open transaction holds a config of no topic: Kafka's broker, unlike its controller, has been seen to keep what
    an aborted transaction wrote when other records follow it.
    """
    root = tmp_path / "store"
    format_directory(kafka, root, node_id=NODE_ID)
    directory_id = decode_meta_properties((root / META_PROPERTIES).read_bytes()).directory_id
    placed: dict[str, Any] = {"node_id": NODE_ID, "directory_ids": lambda numbers: [directory_id] * len(numbers)}
    directory = Directory(root)
    directory.change(first_records())
    lost = metadata_record("CONFIG_RECORD", resource_type=2, resource_name="lost", name="flush.ms", value="1")
    directory.change([metadata_record("BEGIN_TRANSACTION_RECORD", name="never ended"), lost])
    directory.change(create_topic(directory.metadata, "first", partitions=1, configs=CONFIGS, **placed))

    often = {"metadata.log.max.record.bytes.between.snapshots": 1}
    with KafkaServer(kafka, root, configs=often) as server:
        assert server.topics().keys() == {"first"}
        server.create_topic("kafkas", 3, {"flush.ms": "80000"})
        assert server.produce("kafkas", 2, [{"key": "00", "value": "01"}]) == [0]
        wait_for_snapshot(root, directory.metadata.next_offset + 1)
        assert server.errors == []

    directory.metadata = load(root)
    from_the_log_alone = ClusterMetadata.load(None, log_of(root))
    assert directory.metadata.topics == from_the_log_alone.topics
    assert directory.metadata.topics.keys() == {"first", "kafkas"}
    assert len(directory.metadata.topic("kafkas").partitions) == 3
    assert directory.metadata.topic_configs("kafkas") == {"flush.ms": "80000"}
    assert directory.metadata.topic_configs("first") == CONFIGS
    assert directory.metadata.features == from_the_log_alone.features == FEATURE_LEVELS

    directory.change(delete_topic(directory.metadata, "first"))
    directory.change(create_topic(directory.metadata, "second", partitions=1, configs=CONFIGS, **placed))
    with KafkaServer(kafka, root, configs=often) as server:
        topics = server.topics()
        assert topics.keys() == {"kafkas", "second"}
        assert topics["second"]["configs"] == CONFIGS
        assert [record["value"] for record in server.consume("kafkas", 2)["records"]] == ["01"]
    assert_kafka_agrees(root, directory)


def test_a_broker_that_cannot_start_is_reported_at_once(kafka: KafkaProcess, tmp_path: Path) -> None:
    format_directory(kafka, tmp_path / "store", node_id=NODE_ID)
    with (
        pytest.raises(KafkaRefusedError, match=r"(?s)ended with code 1.*num\.partitions"),
        KafkaServer(kafka, tmp_path / "store", configs={"num.partitions": 0}) as server,
    ):
        server.topics()
