"""Heals below the cleaners' checkpoints: no record leaves a copy that no cleaner has removed."""

from __future__ import annotations

import pytest

from duralog.format.batches import scan
from duralog.format.checkpoints import EpochStart, PartitionOffset, encode_offset_checkpoint
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.operations.cluster.verify import verify_cluster
from duralog.scanning.cluster.cluster import Copies
from tests.support.cluster.cleaned import DELETED_KEY, History, ModelCopy
from tests.support.cluster.made import (
    TOPIC,
    copy_directory,
    cut,
    flip,
    logs,
    three_nodes,
    write_high_watermark,
    write_log,
)
from tests.support.cluster.recorded import scanned


def heal(nodes, **options):
    return heal_cluster(HealRequest(paths=[str(node) for node in nodes], **options))


def rows(*nodes):
    return scanned([str(node) for node in nodes], TOPIC)


def write_cleaned_to(directory, offset):
    checkpoint = encode_offset_checkpoint([PartitionOffset(TOPIC, 0, offset)])
    (directory / CLEANER_OFFSET_CHECKPOINT).write_bytes(checkpoint)


def end_at_30(node):
    for path in logs(node)[2:]:
        path.unlink()
    write_high_watermark(node, 30)


def lose_a_segment(node):
    logs(node)[1].unlink()


def lose_a_segment_and_count_as_cleaned(node):
    logs(node)[1].unlink()
    write_cleaned_to(node, 45)


DONORS = {
    "ends earlier": end_at_30,
    "lacks a segment": lose_a_segment,
    "lacks a segment below its checkpoint": lose_a_segment_and_count_as_cleaned,
}


@pytest.mark.parametrize("kind", DONORS)
@pytest.mark.parametrize("order", [1, -1])
def test_a_copy_takes_nothing_from_one_that_has_less(tmp_path, kind, order):
    nodes = three_nodes(tmp_path)[:2]
    before = rows(nodes[0])
    write_cleaned_to(nodes[0], 45)
    flip(logs(nodes[0])[0], 300)
    DONORS[kind](nodes[1])
    report = heal(nodes[::order])
    assert report.is_well
    assert rows(*nodes) == before
    assert rows(nodes[0]) == before
    assert rows(nodes[1]) == before
    assert not heal(nodes).healed


def test_so_if_the_cleaners_are_not_known(tmp_path):
    """The topic is compacted, and the metadata is older than the logs: all offsets may be compacted."""
    source = write_log(tmp_path / "source", config={"cleanup.policy": "compact"})
    nodes = [copy_directory(source, tmp_path / f"broker-{node}", node, with_metadata=True) for node in (1, 2)]
    for node in nodes:
        write_high_watermark(node, 60)
    before = rows(nodes[0])
    flip(logs(nodes[0])[0], 300)
    end_at_30(nodes[1])
    report = heal(nodes)
    assert report.is_well
    assert rows(nodes[0]) == rows(nodes[1]) == before
    assert not heal(nodes).healed


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("position", [0, 5, 6, 7])
def test_a_last_batch_at_a_wrong_offset_does_not_make_a_copy_the_longest(tmp_path, monkeypatch, position, is_known):
    """The checksum does not cover the offset. Two copies: only the gap before the batch shows which one is wrong."""
    nodes = three_nodes(tmp_path)[:2]
    if not is_known:
        monkeypatch.setattr(Copies, "dense_from", property(lambda _: None))
    before = rows(nodes[1])
    *_, last = scan(logs(nodes[0])[3].read_bytes())
    flip(logs(nodes[0])[3], last.position + position)
    assert rows(*nodes) == before
    report = heal(nodes)
    assert report.is_well
    assert [copy.plan.location.url for copy in report.healed] == [str(nodes[0])]
    assert rows(nodes[0]) == rows(nodes[1]) == before
    assert not heal(nodes).healed


def test_what_all_compacted_copies_have_lost_is_reported(tmp_path):
    nodes = three_nodes(tmp_path)[::2]
    for node in nodes:
        write_cleaned_to(node, 30)
    cut(logs(nodes[1])[1], 613)
    cut(logs(nodes[0])[1], 1080)
    for options in ({"dry_run": True}, {}):
        report = heal(nodes, **options)
        assert not report.is_well
        assert report.partitions[0].lost == ((27, 29),)
    (compared,) = verify_cluster(ClusterRequest(paths=[str(node) for node in nodes])).partitions
    assert [found.first_offset for found in compared.findings if found.finding == "lost"] == [27]
    again = heal(nodes)
    assert not again.healed
    assert again.partitions[0].lost == ((27, 29),)


def compacted_copies(tmp_path, history, *cleaned):
    """One that is not compacted, and some that are up to an offset, with their tombstones or without."""
    directories = []
    for number, (upto, removes_tombstones) in enumerate([(None, False), *cleaned]):
        copy = ModelCopy(history, set(history.records), history.end)
        if upto is not None:
            copy.clean(upto, removes_tombstones=removes_tombstones)
        directories.append(tmp_path / f"broker-{number + 1}")
        copy.write(directories[-1], number + 1, high_watermark=history.end)
    return directories


def test_a_record_that_a_cleaner_has_removed_for_reasons_that_damage_hides_does_not_leave_unasked(tmp_path):
    """The tombstone is damaged in the one copy, and removed from the other one with the value."""
    plain, cleaned = compacted_copies(tmp_path, DELETED_KEY, (5, True))
    flip(logs(plain)[2], 64)
    before = logs(plain)[0].read_bytes()
    report = heal([plain, cleaned])
    (refused,) = report.partitions[0].copies
    assert "--truncate-acknowledged" in refused.failure
    assert logs(plain)[0].read_bytes() == before
    assert heal([plain, cleaned], truncate_acknowledged=True).is_well
    assert rows(plain) == rows(cleaned)
    quarantine = plain / f"{TOPIC}-0" / "duralog-quarantine"
    assert any(b"secret" in path.read_bytes() for path in quarantine.glob("*.bytes"))


def test_a_heal_that_would_bring_a_deleted_key_back_is_refused(tmp_path):
    """The only copy with the damaged batch has a value in it whose tombstone the damaged copy has removed."""
    plain, cleaned = compacted_copies(tmp_path, DELETED_KEY, (5, True))
    flip(logs(cleaned)[0], 64)
    flip(logs(plain)[1], 64)
    before = {path: path.read_bytes() for node in (plain, cleaned) for path in logs(node)}
    report = heal([plain, cleaned])
    assert not report.is_well
    assert all("keys that were deleted would come back" in copy.failure for copy in report.partitions[0].copies)
    assert {path: path.read_bytes() for path in before} == before


def test_a_new_segment_keeps_what_comes_from_several_copies(tmp_path):
    """The first batch of a segment comes from one copy, and the next one is the first that another copy has of it."""
    history = History(
        batches=[range(number, number + 1) for number in range(8)],
        records={number: (b"k%d" % (number % 2), b"value-%d" % number) for number in range(8)},
        segments=[0, 2, 4, 6],
        epochs=[EpochStart(0, 0)],
    )
    nodes = compacted_copies(tmp_path, history, (None, False), (6, True))
    third = logs(nodes[2])
    assert third[1].stat().st_size == 0
    for path in logs(nodes[1])[1:]:
        path.unlink()
    flip(logs(nodes[0])[2], 64)
    flip(logs(nodes[1])[0], 64)
    flip(third[2], 64)
    heal(nodes)
    for node in nodes:
        assert [offset for offset, _, _ in rows(node) if offset > 5] == [6, 7]
    assert not heal(nodes).healed
