"""Paths and URLs of log directories: what they lead to, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import duralog
from duralog.errors import InvalidConfig
from duralog.scanning.locations import STORAGE_OPTIONS, Location, location_of, open_store
from duralog.storage.disk.file_system import LocalFileSystem


@pytest.mark.parametrize(
    ("url", "family", "path", "prefix"),
    [
        ("s3://bucket/kafka/data/", "s3", "bucket/kafka/data", "s3://"),
        ("s3a://bucket", "s3", "bucket", "s3a://"),
        ("S3N://bucket/a?b", "s3", "bucket/a?b", "s3n://"),
        ("gs://bucket/kafka", "gs", "bucket/kafka", "gs://"),
        ("gcs://bucket/kafka", "gs", "bucket/kafka", "gcs://"),
        ("hdfs://node:8020/kafka/data", "hdfs", "/kafka/data", "hdfs://node:8020"),
        ("hdfs:///kafka/data", "hdfs", "/kafka/data", "hdfs://"),
        ("viewfs://cluster/kafka", "hdfs", "/kafka", "viewfs://cluster"),
        ("abfss://data@account.dfs.core.windows.net/kafka", "abfs", "data/kafka", "abfss://"),
    ],
)
def test_urls_lead_to_a_file_system_and_a_path_in_it(url: str, family: str, path: str, prefix: str) -> None:
    location = Location.of(url)
    address = location.address()
    assert (address.family, address.path, address.prefix) == (family, path, prefix)
    assert location.is_remote


def test_the_file_system_of_a_url() -> None:
    assert dict(Location.of("hdfs://node:9000/x").address().arguments) == {"host": "node", "port": 9000}
    assert dict(Location.of("hdfs:///x").address().arguments) == {"host": "default", "port": 0}
    assert dict(Location.of("viewfs://cluster/x").address().arguments) == {"host": "viewfs://cluster", "port": 0}
    assert dict(Location.of("abfs://data@account.dfs.core.windows.net/x").address().arguments) == {
        "account_name": "account"
    }
    options = {"anonymous": "true", "endpoint_override": "localhost:9000", "request_timeout": "2.5"}
    assert dict(Location.of("s3://bucket", options).address().arguments) == {
        "anonymous": True,
        "endpoint_override": "localhost:9000",
        "request_timeout": 2.5,
    }


@pytest.mark.parametrize("spelled", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_local_paths(tmp_path: Path, spelled: str) -> None:
    location = Location.of(spelled.format(tmp_path))
    assert location == Location(str(tmp_path))
    assert not location.is_remote
    files, path = location.connect()
    assert isinstance(files, LocalFileSystem)
    assert path == str(tmp_path)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("data").url == f"{tmp_path}/data"
    assert Location.of("odd:name").url == f"{tmp_path}/odd:name"
    assert Location.of("file:///a%20b").url == "/a b"


@pytest.mark.parametrize(
    ("path", "options", "sentence"),
    [
        ("ftp://host/x", {}, "no such file system: there are file, s3, "),
        ("file://elsewhere/x", {}, "a file on another host, elsewhere, cannot be reached"),
        ("s3:///key", {}, "names no bucket"),
        ("abfs://container/x", {}, "names no account"),
        ("hdfs://node:port/x", {}, "'port' is not a port"),
        ("", {}, "names no directory"),
        ("s3://bucket", {"acess_key": "k"}, "fs.acess_key: no such storage option for s3: there are access_key, "),
        ("s3://bucket", {"anonymous": "yes"}, "fs.anonymous: 'yes' is not allowed"),
        ("/data", {"region": "eu"}, "fs.region: no such storage option for file: there are none"),
    ],
)
def test_what_is_refused(path: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        Location.of(path, options)
    assert sentence in str(refusal.value)


def test_a_location_travels_and_shows_no_secret() -> None:
    location = Location.of("s3://bucket/x", {"secret_key": "hush", "access_key": "k"})
    assert pickle.loads(pickle.dumps(location)) == location
    assert "hush" not in f"{location} {location!r} {location.address()!r}"
    assert set(STORAGE_OPTIONS["s3a"]) >= {"access_key", "secret_key", "endpoint_override", "region"}


def test_a_store_knows_where_it_is(tmp_path: Path) -> None:
    duralog.open(tmp_path).close()
    with open_store(f"file:{tmp_path}") as store:
        assert store.read_only
        assert location_of(store) == Location(str(tmp_path))
    with duralog.open(tmp_path, read_only=True) as store:
        assert location_of(store) == Location(str(tmp_path))
