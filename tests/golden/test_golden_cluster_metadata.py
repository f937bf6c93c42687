"""The cluster metadata of a directory that Kafka made: topics, ids, partitions, configs and features."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.config import BrokerConfig
from duralog.format import batches
from duralog.format.filenames import (
    BOOTSTRAP_SNAPSHOT,
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_partition_folder,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.internal.metadata_records import encode_metadata_record
from duralog.format.properties import decode_meta_properties, decode_partition_metadata
from duralog.storage.metadata.changes import FEATURE_LEVELS, create_topic, first_records
from duralog.storage.metadata.cluster_metadata import ClusterMetadata
from duralog.storage.metadata.metadata_log import (
    METADATA_TOPIC_ID,
    MetadataSnapshot,
    decode_batches,
    decode_snapshot,
    newest_snapshot,
)

INTERNAL = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}
OURS = {
    "appendtime": {"compression.type": "producer", "message.timestamp.type": "LogAppendTime"},
    "codecs": {"segment.bytes": "1048576"},
    "codecs-librdkafka": {"segment.bytes": "1048576"},
    "plain": {"segment.bytes": "1048576", "index.interval.bytes": "4096"},
    "recompress": {"compression.type": "zstd"},
    "trimmed": {"segment.bytes": "1048576"},
    "txn": {"segment.bytes": "1048576", "index.interval.bytes": "1024"},
}


@pytest.fixture(scope="module")
def store(golden: Path) -> Path:
    return golden / "store"


@pytest.fixture(scope="module")
def log(store: Path) -> bytes:
    (path,) = (store / f"{CLUSTER_METADATA}-0").glob("*.log")
    return path.read_bytes()


@pytest.fixture
def metadata(store: Path, log: bytes) -> ClusterMetadata:
    folder = store / f"{CLUSTER_METADATA}-0"
    file = newest_snapshot(path.name for path in folder.iterdir())
    assert file is not None
    snapshot = MetadataSnapshot(end_offset=file.end_offset, epoch=file.epoch, data=(folder / file.name).read_bytes())
    return ClusterMetadata.load(snapshot, [log])


def test_topics_and_configs(metadata: ClusterMetadata) -> None:
    assert {name: metadata.topic_configs(name) for name in metadata.topics} == OURS | INTERNAL


def test_every_partition_has_its_folder_with_its_topics_id(metadata: ClusterMetadata, store: Path) -> None:
    in_folders = {}
    for path in store.iterdir():
        folder = parse_partition_folder(path.name)
        if folder is not None:
            in_folders[folder.topic, folder.partition] = decode_partition_metadata(
                (path / PARTITION_METADATA).read_bytes()
            )
    assert in_folders.pop((CLUSTER_METADATA, 0)) == METADATA_TOPIC_ID
    assert in_folders == {
        (topic.name, partition): topic.topic_id for topic in metadata.topics.values() for partition in topic.partitions
    }


def test_after_a_clean_stop_no_partition_has_a_leader(metadata: ClusterMetadata, store: Path) -> None:
    meta = decode_meta_properties((store / META_PROPERTIES).read_bytes())
    for topic in metadata.topics.values():
        for state in topic.partitions.values():
            assert (state.leader, state.isr, state.replicas) == (-1, (), (meta.node_id,))
            assert (state.leader_epoch, state.partition_epoch) == (1, 1)
            assert state.directories == (meta.directory_id,)


def test_features_epoch_and_end(metadata: ClusterMetadata) -> None:
    assert metadata.features == FEATURE_LEVELS
    assert (metadata.next_offset, metadata.writing_epoch) == (105, 1)
    assert not metadata.is_in_transaction


def test_the_stored_configs_are_understood(metadata: ClusterMetadata) -> None:
    broker = BrokerConfig().with_dynamic(metadata.broker_configs(1))
    assert broker.given.keys() == {"min.insync.replicas"}
    for name in metadata.topics:
        config = broker.topic_defaults().with_stored(metadata.topic_configs(name))
        assert not config.ignored
        assert {key: config.text(key) for key in metadata.topic_configs(name)} == metadata.topic_configs(name)


def test_a_new_directory_begins_with_what_kafka_begins_with(store: Path, log: bytes) -> None:
    """The records of Kafka's first transaction, without the transaction around them."""
    (bootstrap,) = [batch for batch in decode_batches(log) if batch.base_offset == 3]
    prepared = decode_snapshot((store / BOOTSTRAP_SNAPSHOT).read_bytes())
    assert first_records() == first_records(prepared) == bootstrap.records[1:-1]


@pytest.mark.parametrize("name", sorted(OURS))
def test_topics_are_created_with_the_bytes_that_kafka_wrote(
    name: str, metadata: ClusterMetadata, store: Path, log: bytes
) -> None:
    meta = decode_meta_properties((store / META_PROPERTIES).read_bytes())
    assert meta.node_id is not None
    assert meta.directory_id is not None
    topic = metadata.topic(name)
    records = create_topic(
        ClusterMetadata(),
        name,
        partitions=len(topic.partitions),
        configs=metadata.topic_configs(name),
        node_id=meta.node_id,
        directory_ids=lambda numbers: [str(meta.directory_id)] * len(numbers),
        topic_id=topic.topic_id,
    )
    written = [[record.value for record in batches.decode_records(log, batch)] for batch in batches.scan(log)]
    assert [encode_metadata_record(record) for record in records] in written
