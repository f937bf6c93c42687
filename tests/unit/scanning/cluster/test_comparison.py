"""Copies against each other: what differs is found, what does not differ is not decoded."""

from __future__ import annotations

import shutil
from functools import partial
from random import Random
from typing import Any

import pytest

import duralog
from duralog.operations.cluster import verify as cluster_verify
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import verify_cluster
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.comparison import compare
from duralog.scanning.cluster.windows import windows_of
from duralog.scanning.executor import run_in_groups
from tests.support.cluster.made import (
    TOPIC,
    copy_directory,
    cut,
    damage,
    flip,
    logs,
    three_nodes,
    write_high_watermark,
    write_log,
)
from tests.support.cluster.recorded import unpack

BATCH = 300


@pytest.fixture
def nodes(tmp_path):
    return three_nodes(tmp_path)


def verified(nodes):
    report = verify_cluster(ClusterRequest(paths=[str(node) for node in nodes]))
    findings = [*report.findings, *(each for found in report.partitions for each in found.findings)]
    return report, {(each.finding, each.node_id, each.first_offset, each.last_offset) for each in findings}


def test_equal_copies_have_no_findings_and_no_record_is_decoded(nodes):
    report, findings = verified(nodes)
    assert report.is_sound
    assert not findings
    (found,) = report.partitions
    assert found.batches == 60
    assert found.decoded_records == 0
    assert found.size_bytes == sum(path.stat().st_size for node in nodes for path in logs(node))


def test_damage_is_found_in_its_copy(nodes):
    flip(logs(nodes[1])[1], BATCH)
    _, findings = verified(nodes)
    assert findings == {("damage", 2, 18, 20)}


def test_a_missing_segment_is_a_hole(nodes):
    logs(nodes[2])[1].unlink()
    _, findings = verified(nodes)
    assert findings == {("hole", 3, 15, 29)}


def test_a_hole_of_the_chosen_copy_is_found(nodes):
    logs(nodes[0])[1].unlink()
    _, findings = verified(nodes)
    assert findings == {("hole", 1, 15, 29)}


def test_what_is_bad_everywhere_is_lost(nodes):
    for node in nodes:
        flip(logs(node)[1], BATCH)
    report, findings = verified(nodes)
    assert ("lost", None, 18, 20) in findings
    assert len(findings) == 4
    assert not report.is_sound


def test_where_the_chosen_copy_is_damaged_the_others_are_compared(nodes):
    flip(logs(nodes[0])[1], BATCH)
    logs(nodes[2])[1].unlink()
    _, findings = verified(nodes)
    assert findings == {("damage", 1, 18, 20), ("hole", 3, 15, 29)} or findings == {
        ("damage", 1, 18, 20),
        ("hole", 3, 15, 17),
        ("hole", 3, 18, 20),
        ("hole", 3, 21, 29),
    }


def test_a_copy_that_ends_too_early_is_cut_and_lags(nodes):
    for path in logs(nodes[1])[2:]:
        path.unlink()
    report, findings = verified(nodes)
    assert {kind for kind, *_ in findings} == {"cut"}
    (found,) = report.partitions
    assert [(note.finding, note.node_id, note.first_offset) for note in found.notes] == [("lag", 2, 30)]


def test_other_records_with_the_same_epochs_are_a_divergence(nodes, tmp_path):
    """Two copies that were written to apart from each other, as after a wrong restore."""
    other = write_log(tmp_path / "other")  # The same values with other timestamps.
    shutil.copy(logs(other)[3], logs(nodes[1])[3])
    _, findings = verified(nodes)
    assert findings == {("divergence", 2, 45, 59)}


def test_another_epoch_in_a_batch_is_a_divergence(nodes):
    path = logs(nodes[1])[1]
    data = bytearray(path.read_bytes())
    data[12:16] = (9).to_bytes(4, "big")
    path.write_bytes(data)
    report, findings = verified(nodes)
    assert findings == {("divergence", 2, 15, 17)}
    assert "leader epoch is 9 here and 1 there" in report.partitions[0].findings[0].text


def test_copies_that_were_cleaned_at_different_times_agree(tmp_path):
    with duralog.open(tmp_path / "source") as store:
        store.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
        log = store.partition(TOPIC, 0)
        for number in range(40):
            log.append([duralog.Record(key=b"k%d" % (number % 3), value=b"%d" % number)])
            if number % 5 == 4:
                log.roll()
    plain = copy_directory(tmp_path / "source", tmp_path / "broker-1", 1)
    with duralog.open(tmp_path / "source") as store:
        store.compact(TOPIC, 0)
    cleaned = copy_directory(tmp_path / "source", tmp_path / "broker-2", 2)
    report, findings = verified([plain, cleaned])
    assert not findings
    assert report.partitions[0].decoded_records
    # A record that the cleaner has kept, changed in the other copy.
    flip(logs(plain)[-2], 65)
    _, findings = verified([plain, cleaned])
    assert {(kind, node) for kind, node, *_ in findings} == {("damage", 1)}


def test_a_cut_segment_is_damage(nodes):
    cut(logs(nodes[2])[2], 500)
    _, findings = verified(nodes)
    assert {(kind, node) for kind, node, *_ in findings} == {("damage", 3)}


def test_a_lost_end_is_reported(nodes):
    """All copies end before the high watermark that one of them has noted."""
    write_high_watermark(nodes[1], 100)
    _, findings = verified(nodes)
    assert ("lost", None, 60, 99) in findings


def test_a_recorded_cluster(tmp_path):
    unpack(tmp_path)
    report = verify_cluster(ClusterRequest(paths=[f"{tmp_path}/broker-*/data*"]))
    found = {
        (str(partition.explained.partition), each.finding, each.first_offset, each.last_offset)
        for partition in report.partitions
        for each in partition.findings
    }
    assert found == {("again-0", "other-topic", None, None), ("unclean-0", "divergence", 40, 69)}
    assert not report.findings
    notes = {note.finding for partition in report.partitions for note in partition.notes}
    assert notes == {"lag"}


def test_missing_replicas_and_stray_folders(tmp_path):
    unpack(tmp_path)
    directories = sorted(tmp_path.glob("broker-*/data*"))
    (orders,) = tmp_path.glob("broker-2/*/orders-0")
    (unclean,) = tmp_path.glob("broker-2/*/unclean-0")
    shutil.copytree(orders, tmp_path / "broker-3/data2/orders-7")
    shutil.copytree(unclean, tmp_path / "broker-3/data2/unclean-0")
    shutil.rmtree(orders)
    report = verify_cluster(ClusterRequest(paths=[str(path) for path in directories]))
    found = {
        (str(partition.explained.partition), each.finding)
        for partition in report.partitions
        for each in partition.findings
    }
    assert ("orders-0", "replica-missing") in found
    assert ("orders-7", "stray") in found
    assert ("unclean-0", "stray") in found


def test_a_node_that_is_missing_is_a_note(tmp_path):
    unpack(tmp_path)
    report = verify_cluster(ClusterRequest(paths=[f"{tmp_path}/broker-[13]/data*"]))
    (note,) = [note for note in report.notes if note.finding == "node-missing"]
    assert "node 2" in note.text
    assert note.text.endswith("give its log directories")
    # Partitions of which there is no copy at all are named: a read of all topics leaves them out.
    for number in (1, 2):
        (folder,) = tmp_path.glob(f"broker-1/*/orders-{number}")
        shutil.rmtree(folder)
    with open_cluster(f"{tmp_path}/broker-1/data*") as cluster:
        texts = [problem.text for problem in cluster.problems]
    assert len(texts) == 2
    assert all("2 partitions cannot be read, first orders-1" in text for text in texts)


def test_a_copy_that_grows_is_reported(nodes, monkeypatch):
    def grow_and_compare(window, advance):
        with logs(nodes[0])[-1].open("ab") as file:
            file.write(b"\0" * 10)
        return compare(window, advance)

    monkeypatch.setattr(cluster_verify, "compare", grow_and_compare)
    report, _ = verified(nodes)
    assert [note.finding for note in report.partitions[0].notes] == ["being-written"]


@pytest.mark.parametrize("block", range(2))
def test_any_damage_is_found_in_its_copy_and_nothing_is_lost(tmp_path, block):
    nodes = three_nodes(tmp_path)
    whole = {path: path.read_bytes() for node in nodes for path in logs(node)}
    for seed in range(block, 20, 2):
        rng = Random(seed)
        for path, data in whole.items():
            path.write_bytes(data)
        for number in range(4):
            for node in rng.sample(nodes, rng.randint(0, 2)):
                damage(rng, sorted(path for path in whole if path.parent.parent == node)[number])
        changed = {
            nodes.index(path.parent.parent) + 1
            for path, data in whole.items()
            if not path.exists() or path.read_bytes() != data
        }
        report = verify_cluster(ClusterRequest(paths=[str(node) for node in nodes]))
        findings = [each for found in report.partitions for each in found.findings]
        found = {each.directory for each in findings}
        assert found == {str(nodes[node - 1]) for node in changed}, f"seed {seed}: {[*map(str, findings)]}"
        assert not any(each.finding == "lost" for each in findings), f"seed {seed}"


def test_few_windows_are_held_at_a_time(nodes, monkeypatch):
    """So memory does not grow with the logs."""
    flip(logs(nodes[1])[1], BATCH)
    logs(nodes[2])[2].unlink()
    whole, expected = verified(nodes)
    rounds: list[int] = []
    shown: list[Any] = []
    monkeypatch.setattr(cluster_verify, "windows_of", partial(windows_of, window_bytes=400))
    monkeypatch.setattr(cluster_verify, "_MOST_WINDOWS", 1)

    def counted(executor, windows, *arguments, **options):
        rounds.append(len(windows))
        return run_in_groups(executor, windows, *arguments, **options)

    monkeypatch.setattr(cluster_verify, "run_in_groups", counted)
    request = ClusterRequest(paths=[str(node) for node in nodes])
    report = verify_cluster(request, on_progress=shown.append)
    assert len(rounds) > 3
    assert max(rounds) == 1
    assert {(each.finding, each.node_id) for each in report.partitions[0].findings} == {
        (kind, node) for kind, node, *_ in expected
    }
    assert report.partitions[0].batches >= whole.partitions[0].batches
    done = [progress.weight_done for progress in shown]
    assert done == sorted(done)
    assert all(progress.weight_done <= progress.weight for progress in shown)


def test_folders_that_are_not_replicas_are_reported(nodes):
    for node, state in ((nodes[0], "stray"), (nodes[1], "future"), (nodes[2], "delete")):
        shutil.copytree(node / "orders-0", node / f"orders-0.1ca88c14f3f646ddb76ab54c45b03048-{state}")
    report, findings = verified(nodes)
    assert {kind for kind, *_ in findings} == {"stray"}
    assert [note.finding for note in report.notes] == ["being-moved"]
