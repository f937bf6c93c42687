"""The directories of a cluster in S3: a server of this machine plays its part, for as long as these tests run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest

from duralog.errors import InvalidConfig, StorageError
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.verify import verify_cluster
from duralog.operations.restore.report import RestoreRequest
from duralog.operations.restore.restore import restore
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.directories import find_directories
from duralog.scanning.cluster.sources import HealedRange
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes
from tests.support.cluster.recorded import scanned

moto_server = pytest.importorskip("moto.server")

KEYS = {"access_key": "key", "secret_key": "secret", "region": "us-east-1", "scheme": "http"}


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {**KEYS, "endpoint_override": f"{host}:{port}"}
    finally:
        server.stop()


@pytest.fixture(scope="module")
def cluster(options, tmp_path_factory):
    """`s3://backup/<date>/broker-<node>/data`, with damage in two of the copies. Returns what is right."""
    folder = tmp_path_factory.mktemp("cluster")
    nodes = three_nodes(folder)
    expected = scanned(str(nodes[0]), TOPIC)
    flip(logs(nodes[0])[1], 300)
    cut(logs(nodes[1])[2], 700)
    files = pafs.S3FileSystem(**options, allow_bucket_creation=True)
    files.create_dir("backup")
    for node in nodes:
        target = f"backup/monday/{node.name}/data"
        files.create_dir(target, recursive=True)
        pafs.copy_files(str(node), target, destination_filesystem=files)
    return expected


def test_a_glob_of_urls_is_read_through_damage(cluster, options):
    healed: list[HealedRange] = []
    found = scanned(
        "s3://backup/monday/broker-*/data", TOPIC, storage_options=options, on_healed=healed.append, threads=2
    )
    assert found == cluster
    assert [(each.first_offset, each.last_offset) for each in healed] == [(18, 20)]
    assert healed[0].source == "s3://backup/monday/broker-2/data"


def test_copies_in_an_object_store_are_compared(cluster, options):
    report = verify_cluster(ClusterRequest(paths=["s3://backup/*/broker-*/data"], storage_options=options))
    (partition,) = report.partitions
    assert {(each.finding, each.node_id) for each in partition.findings} == {("damage", 1), ("damage", 2)}
    assert all((each.file or "").startswith("s3://backup/monday/broker-") for each in partition.findings)


def test_a_topic_is_restored_from_an_object_store(cluster, options, tmp_path):
    request = RestoreRequest(
        paths=["s3://backup/monday/broker-*/data"], target=str(tmp_path / "new"), storage_options=options
    )
    report = restore(request)
    assert report.is_made
    assert [(each.first_offset, each.last_offset) for each in report.partitions[0].healed] == [(18, 20)]
    assert scanned(tmp_path / "new", TOPIC) == cluster


def test_patterns_of_urls(cluster, options, tmp_path):
    found, problems = find_directories(
        ["s3://backup/mon*/broker-[13]/da?a", "s3://backup/monday/broker-1/data"], options
    )
    assert [each.url for each in found] == ["s3://backup/monday/broker-1/data", "s3://backup/monday/broker-3/data"]
    assert [problem.kind.value for problem in problems] == ["given-twice"]
    manifest = tmp_path / "backup.json"
    manifest.write_text(json.dumps({"directories": ["s3://backup/monday/broker-*/data"]}))
    assert len(find_directories(manifest, options)[0]) == 3
    with pytest.raises(StorageError, match="no directory matches"):
        find_directories("s3://backup/tuesday-*/data", options)
    with pytest.raises(InvalidConfig, match="the bucket cannot be a pattern"):
        find_directories("s3://back*/data", options)


def test_local_and_remote_directories_are_one_cluster(cluster, options, tmp_path):
    """Storage options are those of the object store: a local directory takes none."""
    nodes = three_nodes(tmp_path)
    with open_cluster([nodes[0], "s3://backup/monday/broker-2/data"], options) as both:
        assert len(both.directories) == 2
