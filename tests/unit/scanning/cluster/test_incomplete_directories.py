"""Directories that lost files, or were uploaded in part: each is reported by its name, and costs no other partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import ClusterVerifyReport, verify_cluster
from tests.support.cluster.made import TOPIC, three_nodes, write_meta
from tests.support.cluster.recorded import scanned

FOLDER = f"{TOPIC}-0"


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    return three_nodes(tmp_path)


def verified(nodes: list[Path]) -> ClusterVerifyReport:
    return verify_cluster(ClusterRequest(paths=[str(node) for node in nodes]))


def test_a_directory_without_its_owner_is_a_note(nodes: list[Path]) -> None:
    (nodes[1] / "meta.properties").unlink()
    report = verified(nodes)
    assert report.is_sound
    [note] = [note for note in report.notes if note.finding == "owner-missing"]
    assert (note.directory, "no meta.properties" in note.text) == (str(nodes[1]), True)
    for node in nodes:
        (node / "meta.properties").unlink(missing_ok=True)
    assert "owner-missing" not in {note.finding for note in verified(nodes).notes}


@pytest.mark.parametrize("content", [b"", b"\xff\x00garbage", b"version=1\nnode.id=one\n"])
def test_a_damaged_owner_is_a_finding(nodes: list[Path], content: bytes) -> None:
    (nodes[1] / "meta.properties").write_bytes(content)
    [finding] = verified(nodes).findings
    assert (finding.finding, finding.directory) == ("owner-damaged", str(nodes[1]))
    assert f"{nodes[1]}/meta.properties" in finding.text
    assert len(scanned([str(node) for node in nodes], TOPIC, to_end=True)) == 60


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_damaged_checkpoint_is_a_finding(nodes: list[Path], name: str) -> None:
    (nodes[2] / name).write_bytes(b"0\n1\norders zero")
    [finding] = [found for found in verified(nodes).findings if found.finding == "checkpoint-damaged"]
    assert finding.directory == str(nodes[2])
    assert name in finding.text


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_without_a_log_is_a_finding(nodes: list[Path], is_folder: bool) -> None:
    shutil.rmtree(nodes[0] / FOLDER)
    if is_folder:
        (nodes[0] / FOLDER).mkdir()
    else:
        (nodes[0] / FOLDER).write_bytes(b"not a folder")
    (nodes[0] / "unrelated-1").mkdir()  # No directory has a log of this name.
    found = [finding for finding in verified(nodes).findings if finding.finding == "empty-folder"]
    assert [(finding.directory, str(finding.partition)) for finding in found] == [(str(nodes[0]), FOLDER)]
    assert len(scanned([str(node) for node in nodes], TOPIC, to_end=True)) == 60


def test_a_topic_that_was_chosen_by_a_clock_is_said_to_be(tmp_path: Path) -> None:
    """Of two topics of one name, without cluster metadata. A producer's clock was in the future."""
    for number, time_ms in ((1, 4_102_444_800_000), (2, 1_700_000_000_000)):
        with duralog.open(tmp_path / str(number)) as store:
            store.create_topic(TOPIC, 1, {"message.timestamp.after.max.ms": 1 << 62})
            store.partition(TOPIC, 0).append([Record(value=b"%d" % number, timestamp_ms=time_ms)])
        shutil.rmtree(tmp_path / str(number) / "__cluster_metadata-0")
        write_meta(tmp_path / str(number), number)
    report = verified([tmp_path / "1", tmp_path / "2"])
    [finding] = [finding for [*findings] in (each.findings for each in report.partitions) for finding in findings]
    assert (finding.finding, finding.directory) == ("other-topic", str(tmp_path / "2"))
    assert "the other one has the newest record, of 2100-01-01T00:00:00.000Z. If that clock was wrong" in finding.text
