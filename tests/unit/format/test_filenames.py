from __future__ import annotations

import pytest

from duralog.format.filenames import (
    FileKind,
    FileState,
    FolderState,
    MetadataSnapshotFile,
    PartitionFolder,
    SegmentFile,
    SnapshotState,
    collision_key,
    parse_metadata_snapshot_file,
    parse_partition_folder,
    parse_segment_file,
    topic_name_fault,
)

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("state", FileState)
@pytest.mark.parametrize("offset", [0, 3456, 2**63 - 1])
def test_a_segment_file_name_is_parsed_into_what_it_was_made_from(offset, kind, state):
    file = SegmentFile(offset, kind, state)
    assert parse_segment_file(file.name) == file


def test_segment_file_names_are_those_of_kafka():
    assert SegmentFile(0, FileKind.LOG).name == "00000000000000000000.log"
    assert SegmentFile(3456, FileKind.OFFSET_INDEX, FileState.SWAP).name == "00000000000000003456.index.swap"
    assert SegmentFile(7, FileKind.TIME_INDEX, FileState.CLEANED).name == "00000000000000000007.timeindex.cleaned"
    assert SegmentFile(7, FileKind.PRODUCER_SNAPSHOT, FileState.DELETED).name == "00000000000000000007.snapshot.deleted"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "0000000000000000000a.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
        "99999999999999999999.log",
        "00000000000000000000",
        "00000000000000000000.",
        "00000000000000000000.checkpoint",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.swap.swap",
        "00000000000000000000.log\n",
        "00000000000000000000.LOG",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_other_names_are_no_segment_files(name):
    assert parse_segment_file(name) is None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_a_segment_file_name_holds_only_offsets(offset):
    with pytest.raises(ValueError, match=str(offset)):
        _ = SegmentFile(offset, FileKind.LOG).name


@pytest.mark.parametrize("state", SnapshotState)
def test_a_metadata_snapshot_name_is_parsed_into_what_it_was_made_from(state):
    file = MetadataSnapshotFile(1234, 7, state)
    assert file.name == f"00000000000000001234-0000000007{state.value}"
    assert parse_metadata_snapshot_file(file.name) == file


def test_a_partial_metadata_snapshot_has_a_random_word_in_its_name():
    name = "00000000000000000042-0000000001-8254390175.checkpoint.part"
    assert parse_metadata_snapshot_file(name) == MetadataSnapshotFile(42, 1, SnapshotState.PARTIAL)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "00000000000000000000.checkpoint",
        "00000000000000000000-000000000.checkpoint",
        "00000000000000000000-9999999999.checkpoint",
        "99999999999999999999-0000000000.checkpoint",
        "00000000000000000000-0000000000-word.checkpoint",
        "00000000000000000000-0000000000.checkpoint.swap",
    ],
)
def test_other_names_are_no_metadata_snapshots(name):
    assert parse_metadata_snapshot_file(name) is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders-0", PartitionFolder("orders", 0)),
        ("a-b-12", PartitionFolder("a-b", 12)),
        ("a--1", PartitionFolder("a-", 1)),
        ("1-1", PartitionFolder("1", 1)),
        ("__cluster_metadata-0", PartitionFolder("__cluster_metadata", 0)),
        ("orders-delete-0", PartitionFolder("orders-delete", 0)),
        (f"orders-0.{ID}-delete", PartitionFolder("orders", 0, FolderState.DELETED, ID)),
        (f"a.b-3.{ID}-future", PartitionFolder("a.b", 3, FolderState.FUTURE, ID)),
        (f"a-2147483647.{ID}-stray", PartitionFolder("a", 2**31 - 1, FolderState.STRAY, ID)),
    ],
)
def test_partition_folders(name, folder):
    assert parse_partition_folder(name) == folder
    assert folder.name == name


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders-00",
        "orders-+1",
        "orders--",
        "orders-2147483648",
        "or ders-0",
        "orders-0.abc-delete",
        f"orders-0.{ID.upper()}-delete",
        f"orders.{ID}-delete",
        f"-0.{ID}-delete",
        "orders-delete",
        "remote-log-index-cache",
        "..-0",
    ],
)
def test_other_names_are_no_partition_folders(name):
    assert parse_partition_folder(name) is None


@pytest.mark.parametrize("state", [FolderState.DELETED, FolderState.STRAY])
def test_a_deleted_or_stray_folder_cuts_the_topic_to_fit_the_longest_name(state):
    folder = PartitionFolder("t" * 249, 10, state, ID)
    assert len(folder.name) == 255
    parsed = parse_partition_folder(folder.name)
    assert parsed is not None
    assert parsed.topic == "t" * len(parsed.topic)
    assert len(parsed.topic) == 255 - len(f"-10.{ID}{state.value}")
    assert (parsed.partition, parsed.state, parsed.unique_id) == (10, state, ID)


def test_a_future_folder_keeps_the_whole_topic():
    folder = PartitionFolder("t" * 249, 10, FolderState.FUTURE, ID)
    assert parse_partition_folder(folder.name) == folder


def test_a_marked_folder_needs_an_id():
    with pytest.raises(ValueError, match="32 lower-case hexadecimal digits"):
        _ = PartitionFolder("t", 0, FolderState.DELETED, "x").name


@pytest.mark.parametrize("topic", ["a", "a.b_c-D9", "...", "t" * 249, "__consumer_offsets"])
def test_good_topic_names(topic):
    assert topic_name_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("", "empty"),
        (".", "may not be called"),
        ("..", "may not be called"),
        ("t" * 250, "250"),
        ("a b", "ASCII letters"),
        ("a/b", "ASCII letters"),
        ("é", "ASCII letters"),
        ("a\n", "ASCII letters"),
    ],
)
def test_bad_topic_names(topic, fault):
    assert fault in (topic_name_fault(topic) or "")


def test_dots_and_underscores_collide():
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")
