"""Snapshots, checkpoints and descriptive files that Kafka wrote decode, and are encoded to the same bytes."""

from __future__ import annotations

from duralog.format.checkpoints import (
    EpochStart,
    PartitionOffset,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from duralog.format.filenames import (
    MetadataSnapshotFile,
    PartitionFolder,
    parse_metadata_snapshot_file,
    parse_partition_folder,
    parse_segment_file,
)
from duralog.format.java_properties import decode_properties, encode_properties
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from duralog.format.properties import (
    MetaProperties,
    decode_json_object,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_json_object,
    encode_partition_metadata,
)


def test_a_producer_snapshot(producer_snapshot):
    data = producer_snapshot.read_bytes()
    assert encode_producer_snapshot(decode_producer_snapshot(data)) == data


def test_the_producers_of_a_transactional_log(golden):
    data = (golden / "store/txn-0/00000000000000002480.snapshot").read_bytes()
    idempotent, first, second = decode_producer_snapshot(data)
    assert idempotent == ProducerEntry(
        producer_id=2,
        producer_epoch=0,
        last_sequence=799,
        last_offset=2437,
        offset_delta=7,
        timestamp_ms=1700000016793,
        coordinator_epoch=-1,
        transaction_first_offset=-1,
    )
    # The last thing that the other two wrote were their markers, at offsets 2478 and 2479.
    assert (first.producer_id, first.producer_epoch, first.timestamp_ms) == (3, 40, 1794726080311)
    assert (second.producer_id, second.producer_epoch, second.timestamp_ms) == (4, 40, 1794726080313)
    assert first.last_offset == second.last_offset == -1
    assert first.transaction_first_offset == second.transaction_first_offset == -1


def test_open_transactions_in_a_producer_snapshot(golden):
    data = (golden / "store/txn-0/00000000000000000080.snapshot").read_bytes()
    open_at = {entry.producer_id: entry.transaction_first_offset for entry in decode_producer_snapshot(data)}
    assert open_at == {2: -1, 3: 21, 4: 20}


def test_a_leader_epoch_checkpoint(leader_epoch_checkpoint):
    data = leader_epoch_checkpoint.read_bytes()
    entries = decode_leader_epoch_checkpoint(data)
    assert encode_leader_epoch_checkpoint(entries) == (data or b"0\n0\n")


def test_an_offset_checkpoint(offset_checkpoint):
    data = offset_checkpoint.read_bytes()
    entries = decode_offset_checkpoint(data)
    assert encode_offset_checkpoint(entries) == (data or b"0\n0\n")


def test_the_offsets_of_a_store(golden):
    store = golden / "store"
    assert decode_offset_checkpoint((store / "log-start-offset-checkpoint").read_bytes()) == [
        PartitionOffset("trimmed", 0, 3456)
    ]
    recovery_points = decode_offset_checkpoint((store / "recovery-point-offset-checkpoint").read_bytes())
    assert len(recovery_points) == 19
    assert PartitionOffset("codecs-librdkafka", 4, 800) in recovery_points
    assert decode_offset_checkpoint((store / "cleaner-offset-checkpoint").read_bytes()) == []
    assert decode_leader_epoch_checkpoint((store / "trimmed-0/leader-epoch-checkpoint").read_bytes()) == [
        EpochStart(0, 3456)
    ]


def test_partition_metadata(partition_metadata):
    data = partition_metadata.read_bytes()
    assert encode_partition_metadata(decode_partition_metadata(data)) == data


def test_meta_properties(golden):
    data = (golden / "store/meta.properties").read_bytes()
    assert encode_properties(decode_properties(data)) == data
    assert decode_meta_properties(data) == MetaProperties(
        version=1, cluster_id="AAAAAAAAQACAAAAAAAAAAQ", node_id=1, directory_id="ACsDLMXvQDqPXeSh-NcKzQ"
    )


def test_json_files(golden):
    clean_shutdown = (golden / "store/.kafka_cleanshutdown").read_bytes()
    assert clean_shutdown == encode_clean_shutdown(14)
    quorum_state = (golden / "store/__cluster_metadata-0/quorum-state").read_bytes()
    decoded = decode_json_object(quorum_state)
    assert encode_json_object(decoded) == quorum_state
    assert (decoded["leaderId"], decoded["leaderEpoch"], decoded["data_version"]) == (1, 1, 1)


def test_every_name_is_known(golden):
    """All that stands in Kafka's folders is either named after an offset or one of a few fixed names."""
    fixed = {"leader-epoch-checkpoint", "partition.metadata", "quorum-state"}
    folders = [path.parent for path in golden.rglob("partition.metadata")]
    assert len(folders) > 30
    for folder in folders:
        partition = parse_partition_folder(folder.name)
        assert partition is not None
        assert partition.name == folder.name
        for path in folder.iterdir():
            if path.name.endswith(".truth.jsonl.gz") or path.name in fixed:
                continue
            file = parse_segment_file(path.name) or parse_metadata_snapshot_file(path.name)
            assert file is not None, path
            assert file.name == path.name
    assert parse_partition_folder("codecs-librdkafka-3") == PartitionFolder("codecs-librdkafka", 3)
    assert parse_metadata_snapshot_file("00000000000000000000-0000000000.checkpoint") == MetadataSnapshotFile(0, 0)
