"""Tables in an object store: a server of this machine plays S3, for as long as these tests run."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

import duralog
from duralog.errors import DuralogError, StorageError
from duralog.spark.jobs.export import export
from duralog.spark.jobs.snapshot import snapshot
from duralog.spark.lake.delta_table import delta_storage_options
from duralog.spark.lake.targets import LakeTarget
from tests.support.cluster.made import flip, logs, three_nodes
from tests.support.spark.lake_directory import append_days, fill_days, run_here

pytest.importorskip("moto.server")


SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """A process of its own: `deltalake` keeps Python's lock while it waits for some of the answers."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())
        found = {"access_key": "key", "secret_key": "secret", "region": "us-east-1", "scheme": "http"}
        found["endpoint_override"] = f"127.0.0.1:{port}"
        pafs.S3FileSystem(**found, allow_bucket_creation=True).create_dir("lake")
        yield found
        server.stdin.close()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run_here(monkeypatch, *(importlib.import_module(f"duralog.spark.jobs.{name}") for name in ("export", "snapshot")))
    fill_days(tmp_path / "data")
    return tmp_path / "data"


def catalog(table_format: str, folder: Path) -> dict[str, str]:
    if table_format != "iceberg":
        return {}
    return {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{folder}/catalog.db",
        "catalog.warehouse": "s3://lake/warehouse",
    }


def offsets_of(table_format: str, url: str, options: dict[str, str], folder: Path) -> list[tuple[int, int]]:
    target = LakeTarget(url, options)
    if table_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(url, storage_options=delta_storage_options(target)).to_pyarrow_table()
    elif table_format == "iceberg":
        from pyiceberg.catalog import load_catalog

        settings: Any = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "s3.endpoint": f"http://{options['endpoint_override']}",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = (
                load_catalog("duralog", **settings).load_table(("duralog", url.rpartition("/")[2])).scan().to_arrow()
            )
    else:
        hive = ds.HivePartitioning(pa.schema([("date", pa.date32()), ("partition", pa.int32())]))
        table = ds.dataset(target.path(), filesystem=target.file_system, format="parquet", partitioning=hive).to_table()
    rows = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    return sorted(rows)


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_export(data: Path, options: dict[str, str], tmp_path: Path, table_format: str) -> None:
    url = f"s3://lake/export-{table_format}"
    target_options = {**options, **catalog(table_format, tmp_path)}
    for appended in (0, 7):
        with duralog.open(str(data)) as store:
            append_days(store.partition("events", 1), appended, 20)
        report = export(None, str(data), url, format=table_format, target_options=target_options)  # type: ignore[arg-type]
        assert report.tables[0].path == f"{url}/events"
    assert report.records == 7
    found = offsets_of(table_format, f"{url}/events", options, tmp_path)
    assert found == [*((0, offset) for offset in range(20)), *((1, offset) for offset in range(27))]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_snapshot(data: Path, options: dict[str, str], tmp_path: Path, table_format: str) -> None:
    url = f"s3://lake/snapshot-{table_format}"
    target_options = {**options, **catalog(table_format, tmp_path)}
    for appended in (0, 3):
        with duralog.open(str(data)) as store:
            append_days(store.partition("events", 1), appended, 20)
        report = snapshot(None, str(data), url, format=table_format, target_options=target_options)  # type: ignore[arg-type]
    (table,) = report.tables
    assert (table.is_incremental, table.live_keys, table.records_read) == (True, 14, 3)
    found = offsets_of(table_format, table.path if table_format == "parquet" else f"{url}/events", options, tmp_path)
    assert found == [*((0, offset) for offset in range(13, 20)), *((1, offset) for offset in range(16, 23))]


def test_the_directories_of_a_cluster(data: Path, options: dict[str, str], tmp_path: Path) -> None:
    """From one store into another, by a pattern, with a damaged copy."""
    nodes = three_nodes(tmp_path)
    flip(logs(nodes[0])[1], 300)
    files = pafs.S3FileSystem(**options)
    for node in nodes:
        files.create_dir(f"lake/backup/{node.name}", recursive=True)
        pafs.copy_files(str(node), f"lake/backup/{node.name}", destination_filesystem=files)
    urls = "s3://lake/backup/broker-*"
    report = export(None, urls, "s3://lake/of-cluster", storage_options=options, target_options=options)  # type: ignore[arg-type]
    assert (report.records, len(report.tables[0].healed)) == (60, 1)
    (table,) = snapshot(None, urls, "s3://lake/states", storage_options=options, target_options=options).tables  # type: ignore[arg-type]
    assert (table.live_keys, len(table.healed)) == (3, 1)
    found = [number for _, number in offsets_of("parquet", "s3://lake/of-cluster/orders", options, data)]
    assert sorted(set(found)) == list(range(60))


def test_leftovers_of_a_run_that_died(data: Path, options: dict[str, str]) -> None:
    url = "s3://lake/died"
    export(None, str(data), url, target_options=options)  # type: ignore[arg-type]
    target = LakeTarget(f"{url}/events", options)
    with target.create(f"date=2023-11-14/part-00000-{20:020d}-{25:020d}.parquet") as file:
        file.write(b"of a run that died")
    assert export(None, str(data), url, target_options=options).tables[0].leftover_files == 1  # type: ignore[arg-type]
    assert len(offsets_of("parquet", f"{url}/events", options, data)) == 40


def test_a_file_appears_only_when_it_is_complete(options: dict[str, str]) -> None:
    target = LakeTarget("s3://lake/files", options)

    def fail() -> None:
        with target.create("half") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert target.files() == []
    target.replace("whole", b"1")
    target.replace("whole", b"2")
    target.copy("whole", "copy")
    assert target.read("copy", most_bytes=10) == b"2"
    assert (target.delete(["copy", "copy"]), [file.path for file in target.files()]) == (1, ["whole"])


def test_iceberg_needs_a_catalog(data: Path, options: dict[str, str]) -> None:
    with pytest.raises(DuralogError, match="an Iceberg table in an object store needs a catalog"):
        export(None, str(data), "s3://lake/none", format="iceberg", target_options=options)  # type: ignore[arg-type]


def test_a_bucket_that_is_not_there(data: Path, options: dict[str, str]) -> None:
    with pytest.raises((StorageError, FileNotFoundError), match="nowhere"):
        export(None, str(data), "s3://nowhere/x", target_options=options)  # type: ignore[arg-type]


def test_an_option_that_is_not_there(data: Path) -> None:
    with pytest.raises(DuralogError, match=r"fs\.regoin: no such storage option"):
        export(None, str(data), "s3://lake/x", target_options={"regoin": "x"})  # type: ignore[arg-type]
