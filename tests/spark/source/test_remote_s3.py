"""Log directories in S3: a server of this machine plays its part, for as long as these tests run."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from duralog.columnar.tables import to_table
from duralog.errors import CorruptRecord, OffsetOutOfRange, StorageError
from duralog.format.layout import BATCH_V2
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import resolve, select_partitions
from duralog.scanning.planning import Plan, plan
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import CorruptBytes, DataLoss
from duralog.scanning.time_range import TimeRange
from duralog.storage.log.isolation import Isolation
from tests.support.places import GOLDEN
from tests.support.spark.planned_log import NOW_MS, ROLLED_AFTER, fill, offsets, open_for_writing, read
from tests.support.storage.transaction_history import CONFIG, lose_indexes, remove, write_history

moto_server = pytest.importorskip("moto.server")

END = 1000
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
def bucket(options: dict[str, str]) -> pafs.FileSystem:
    files = pafs.S3FileSystem(**options, allow_bucket_creation=True)
    files.create_dir("bucket")
    return pafs.SubTreeFileSystem("bucket", files)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    with open_for_writing(tmp_path / "log") as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 0, END)
    return tmp_path / "log"


def upload(bucket: pafs.FileSystem, path: Path, prefix: str) -> str:
    if bucket.get_file_info(prefix).type != pafs.FileType.NotFound:
        bucket.delete_dir(prefix)
    bucket.create_dir(prefix)
    pafs.copy_files(str(path), prefix, destination_filesystem=bucket)
    return f"s3://bucket/{prefix}"


def planned(
    url: str, options: dict[str, str], isolation: Isolation = Isolation.READ_UNCOMMITTED, **limits: Any
) -> Plan:
    with open_store(url, options) as store:
        ranges = resolve(store, select_partitions(store, topics=store.topics()), isolation=isolation)
        return plan(store, ranges, isolation=isolation, **limits)


@pytest.mark.parametrize("isolation", Isolation)
def test_a_directory_of_kafka_reads_as_on_disk(
    bucket: pafs.FileSystem, options: dict[str, str], tmp_path: Path, isolation: Isolation
) -> None:
    for name in ("codecs-0", "codecs-4", "txn-0", "trimmed-0", "meta.properties", "log-start-offset-checkpoint"):
        copy = shutil.copytree if (GOLDEN / "store" / name).is_dir() else shutil.copy
        copy(GOLDEN / "store" / name, tmp_path / name)
    url = upload(bucket, tmp_path, f"kafka/{isolation}")
    travelled: Plan = pickle.loads(pickle.dumps(planned(url, options, isolation, max_slice_bytes=100_000)))
    assert len(travelled.slices) > 12
    with open_store(str(tmp_path)) as store:
        for partition in select_partitions(store, topics=store.topics()):
            expected = store.partition(*partition).read_arrow(isolation=isolation)
            own = [found for found in travelled.slices if (found.topic, found.partition) == partition]
            assert to_table(read_slices(own), None).combine_chunks().equals(expected.combine_chunks())


def test_a_directory_without_its_transaction_indexes(
    bucket: pafs.FileSystem, options: dict[str, str], tmp_path: Path
) -> None:
    with open_for_writing(tmp_path, **CONFIG) as store:
        store.create_topic("t", 1)
        values = write_history(store.partition("t", 0), seed=1, steps=150)
    lose_indexes(tmp_path / "t-0", remove)
    slices = planned(upload(bucket, tmp_path, "lost"), options, Isolation.READ_COMMITTED, max_slice_bytes=8000).slices
    assert len(slices) > 2
    assert read(slices)["value"].to_pylist() == values


def test_time_prunes_what_is_fetched(bucket: pafs.FileSystem, options: dict[str, str], orders: Path) -> None:
    url = upload(bucket, orders, "pruned")
    found = planned(url, options, times=TimeRange(NOW_MS + 900))
    assert (found.segments_planned, found.segments_total) == (1, 5)
    assert offsets(read(found.slices)) == list(range(800, END))


def test_a_log_that_was_compacted_and_uploaded_again(
    bucket: pafs.FileSystem, options: dict[str, str], orders: Path
) -> None:
    url = upload(bucket, orders, "compacted")
    before = planned(url, options, max_slice_bytes=3000)
    with open_for_writing(orders) as store:
        store.alter_topic_config("orders", {"cleanup.policy": "compact"})
        store.compact("orders", 0)
        after = [record.offset for record in store.partition("orders", 0).read(0)]
    assert len(after) < END / 2
    upload(bucket, orders, "compacted")
    assert offsets(read(before.slices)) == after


def test_objects_that_are_gone_are_data_loss(bucket: pafs.FileSystem, options: dict[str, str], orders: Path) -> None:
    url = upload(bucket, orders, "expired")
    before = planned(url, options)
    for suffix in ("log", "index", "timeindex"):
        bucket.delete_file(f"expired/orders-0/{0:020}.{suffix}")
    with pytest.raises(OffsetOutOfRange, match="orders-0: offsets 0 to 200 were asked for"):
        read(before.slices)
    losses: list[DataLoss] = []
    assert offsets(read(before.slices, on_data_loss=losses.append)) == list(range(ROLLED_AFTER, END))
    assert len(losses) == 1


def test_damage_is_named_by_its_url(bucket: pafs.FileSystem, options: dict[str, str], orders: Path) -> None:
    log = orders / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[BATCH_V2.at.length] ^= 0x41
    log.write_bytes(data)
    slices = planned(upload(bucket, orders, "damaged"), options).slices
    with pytest.raises(CorruptRecord, match=rf"s3://bucket/damaged/orders-0/{0:020}\.log: position 0: "):
        read(slices)
    told: list[CorruptBytes] = []
    found = offsets(read(slices, on_corrupt=told.append))
    assert found == list(range(told[-1].last_offset + 1, END))
    assert len(told) == 1


def test_what_is_not_there_is_a_sentence(bucket: pafs.FileSystem, options: dict[str, str]) -> None:
    with pytest.raises(StorageError, match="s3://bucket/nowhere: cannot list: "):
        open_store("s3://bucket/nowhere", options)
    with pytest.raises(StorageError, match="s3://no-such-bucket/x: cannot list: "):
        open_store("s3://no-such-bucket/x", options)
