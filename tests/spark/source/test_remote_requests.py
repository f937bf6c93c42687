"""How many requests of each kind a read of S3 makes, and that few requests still see every change."""

from __future__ import annotations

import pickle
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from duralog.errors import OffsetOutOfRange, StorageError
from duralog.scanning import locations, remote_files
from duralog.scanning.remembered_objects import SETTLED_SECONDS, RememberedObjects
from duralog.spark.source import stream
from duralog.spark.source.planned_read import plan_read, take_snapshot
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import schema_of
from duralog.spark.source.stream import DuralogStreamReader
from tests.support.spark.planned_log import ROLLED_AFTER, fill, open_for_writing, record
from tests.support.spark.unreliable_proxy import Answer, UnreliableProxy, cut_in_headers, unreliable_proxy

moto_server = pytest.importorskip("moto.server")

ALL = ReadAllAvailable()
KEYS = {"access_key": "key", "secret_key": "secret", "region": "us-east-1", "scheme": "http"}
SHAPES = [(24, 1), (4, 6)]
"""Partitions, and segments of each: always 24 segments."""


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        yield server.get_host_and_port()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def bucket(address: tuple[str, int]) -> pafs.FileSystem:
    endpoint = f"{address[0]}:{address[1]}"
    files = pafs.S3FileSystem(**KEYS, endpoint_override=endpoint, allow_bucket_creation=True)
    files.create_dir("bucket")
    return files


@pytest.fixture(scope="module")
def proxy(address: tuple[str, int]) -> Iterator[UnreliableProxy]:
    with unreliable_proxy(address) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The reader does not pause. All objects are young, and settle when the test moves the clock."""
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic, seconds=0.0)
    monkeypatch.setattr(stream, "time", clock)
    known = SimpleNamespace(of=RememberedObjects(clock=lambda: clock.seconds, clock_ms=lambda: 0))
    monkeypatch.setattr(locations, "_remembered", lambda *_: known.of)

    def start_process() -> None:
        known.of = RememberedObjects(clock=lambda: clock.seconds, clock_ms=lambda: 0)

    clock.start_process = start_process
    return clock


def upload(bucket: pafs.FileSystem, directory: Path, prefix: str) -> None:
    """Objects that are not in the directory any more go, and all others are written again, in another second.

    Times of objects are in seconds, and the clock of these tests takes all objects for settled.
    """
    if bucket.get_file_info(f"bucket/{prefix}").type != pafs.FileType.NotFound:
        bucket.delete_dir(f"bucket/{prefix}")
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.02)
    bucket.create_dir(f"bucket/{prefix}")
    pafs.copy_files(str(directory), f"bucket/{prefix}", destination_filesystem=bucket)


def options(path: str, proxy: UnreliableProxy | None = None, **more: str) -> dict[str, str]:
    storage = {} if proxy is None else {**KEYS, "endpoint_override": proxy.address}
    return {"path": path, "subscribe": "orders", **more, **{f"fs.{name}": value for name, value in storage.items()}}


def streaming(path: str, proxy: UnreliableProxy | None = None, **more: str) -> DuralogStreamReader:
    parsed = ReadOptions.of(options(path, proxy, startingOffsets="earliest", **more), streaming=True)
    return DuralogStreamReader(schema_of(parsed), parsed)


def requests(proxy: UnreliableProxy, work: Callable[[], object]) -> Counter[str]:
    """By kind."""
    before = len(proxy.answers)
    work()
    return Counter("LIST" if answer.is_listing else answer.method for answer in proxy.answers[before:])


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: f"{shape[0]}-partitions")
def shape(request: pytest.FixtureRequest, bucket: pafs.FileSystem, tmp_path_factory: pytest.TempPathFactory) -> str:
    partitions, segments = request.param
    path = tmp_path_factory.mktemp("kafka")
    with open_for_writing(path) as store:
        store.create_topic("orders", partitions)
        for number in range(partitions):
            fill(store.partition("orders", number), 0, ROLLED_AFTER * segments)
    upload(bucket, path, f"shape-{partitions}")
    return f"s3://bucket/shape-{partitions}"


def test_a_stream_with_nothing_new_lists_once(proxy: UnreliableProxy, shape: str, clock: SimpleNamespace) -> None:
    reader = streaming(shape, proxy, **{"kafka.isolation.level": "read_committed"})
    proxy.reset()
    start = reader.initialOffset()
    clock.seconds += SETTLED_SECONDS
    end = reader.latestOffset(start, ALL)
    assert requests(proxy, lambda: reader.latestOffset(end, ALL)) == {"LIST": 1}
    planned = requests(proxy, lambda: reader.partitions(start, end))
    assert planned.pop("LIST") == 1
    # The index of a log's last segment, perhaps.
    assert planned.total() <= 8
    assert requests(proxy, lambda: reader.partitions(start, end)) == {"LIST": 1}


def test_a_stream_with_nothing_new_lists_once_a_second(
    proxy: UnreliableProxy, shape: str, clock: SimpleNamespace
) -> None:
    """Spark asks again as soon as it has an answer."""
    clock.monotonic, clock.sleep = (
        (lambda: clock.seconds),
        (lambda pause: setattr(clock, "seconds", clock.seconds + pause)),
    )
    reader = streaming(shape, proxy)
    proxy.reset()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    clock.seconds += SETTLED_SECONDS
    reader.latestOffset(end, ALL)

    def ask_for_ten_seconds() -> None:
        began = clock.seconds
        while clock.seconds < began + 10:
            reader.latestOffset(end, ALL)

    assert requests(proxy, ask_for_ten_seconds) == {"LIST": 10}


def test_a_process_that_knows_nothing(proxy: UnreliableProxy, shape: str) -> None:
    parsed = ReadOptions.of(options(shape, proxy), streaming=False)
    proxy.reset()
    asked = requests(proxy, lambda: plan_read(parsed))
    partitions = int(shape.rpartition("-")[2])
    # The directory, the metadata's folder, and all folders of partitions together.
    assert asked["LIST"] == 3
    # Of the directory its log starts, its id and its metadata; of each partition the log's end.
    # pyarrow asks HEAD for every file that it opens.
    assert asked["HEAD"] == asked["GET"] == 3 + partitions


def test_a_folder_of_another_topic_of_the_name(bucket: pafs.FileSystem, proxy: UnreliableProxy, tmp_path: Path) -> None:
    """As an upload over an older one leaves it. A plan does not see it, the task does."""
    for name, partitions in (("old", 2), ("new", 3)):
        with open_for_writing(tmp_path / name) as store:
            store.create_topic("orders", partitions)
            for number in range(partitions):
                store.partition("orders", number).append([record(0)])
    shutil.copytree(tmp_path / "old" / "orders-1", tmp_path / "new" / "orders-1", dirs_exist_ok=True)
    upload(bucket, tmp_path / "new", "stale")
    proxy.reset()
    reader = streaming("s3://bucket/stale", proxy)
    end = reader.latestOffset({}, ALL)
    readable, stale = 0, []
    for task in reader.partitions({}, end):
        try:
            readable += sum(batch.num_rows for batch in reader.read(task))
        except StorageError as error:
            stale.append(str(error))
    assert len(stale) == 1
    assert "orders-1: the folder belongs to another topic of this name" in stale[0]


def test_a_plan_starts_with_what_the_snapshot_has_read(
    proxy: UnreliableProxy, shape: str, clock: SimpleNamespace
) -> None:
    parsed = ReadOptions.of(options(shape, proxy), streaming=False)
    take_snapshot(parsed)
    clock.seconds += SETTLED_SECONDS
    snapshot = pickle.loads(pickle.dumps(take_snapshot(parsed)))
    clock.start_process()
    proxy.reset()
    plan: list[Any] = []
    assert requests(proxy, lambda: plan.append(plan_read(parsed, snapshot))) == {"LIST": 1}
    assert plan[0].segments_planned == 24


def test_every_change_is_seen(
    proxy: UnreliableProxy, bucket: pafs.FileSystem, tmp_path: Path, clock: SimpleNamespace
) -> None:
    """Append, roll, compact, delete: the offsets and the records are those of the local directory."""
    url = "s3://bucket/changed"
    remote, local = streaming(url, proxy), streaming(str(tmp_path))

    def compare() -> None:
        upload(bucket, tmp_path, "changed")
        for _ in range(2):
            end = remote.latestOffset({}, ALL)
            assert end == local.latestOffset({}, ALL)
            clock.seconds += SETTLED_SECONDS
        tables = []
        for reader in (remote, local):
            rows = [batch.to_pylist() for task in reader.partitions({}, end) for batch in reader.read(task)]
            tables.append([row for batch in rows for row in batch])
        assert tables[0] == tables[1]

    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 2, {"cleanup.policy": "compact"})
        for number in range(2):
            fill(store.partition("orders", number), 0, 500)
    compare()
    with open_for_writing(tmp_path) as store:
        store.partition("orders", 1).append([record(500)])
        store.compact("orders", 0)
    compare()
    with open_for_writing(tmp_path) as store:
        store.partition("orders", 1).roll()
        store.partition("orders", 1).append([record(501)])
        store.add_partitions("orders", 3)
        store.partition("orders", 2).append([record(0)])
    compare()


def test_a_topic_that_was_created_again(
    proxy: UnreliableProxy, bucket: pafs.FileSystem, tmp_path: Path, clock: SimpleNamespace
) -> None:
    reader = streaming("s3://bucket/again", proxy)
    for attempt in range(2):
        with open_for_writing(tmp_path, **{"log.segment.delete.delay.ms": 0}) as store:
            if attempt:
                store.delete_topic("orders")
            store.create_topic("orders", 1)
            # Files of the same sizes.
            store.partition("orders", 0).append([record(attempt)])
        upload(bucket, tmp_path, "again")
        clock.seconds += SETTLED_SECONDS
        if attempt:
            with pytest.raises(OffsetOutOfRange, match="the topic orders was deleted and created again"):
                reader.latestOffset({"orders": {"0": 1}}, ALL)
        else:
            for _ in range(3):
                assert reader.latestOffset({"orders": {"0": 0}}, ALL) == {"orders": {"0": 1}}
                clock.seconds += SETTLED_SECONDS


def test_listings_of_several_pages(
    proxy: UnreliableProxy, shape: str, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is cut inside its headers ends a listing early, and pyarrow does not notice."""
    monkeypatch.setattr(remote_files, "LISTED_AT_ONCE", 50)
    reader = streaming(shape, proxy)
    proxy.reset(page=50)
    start = reader.initialOffset()
    clock.seconds += SETTLED_SECONDS
    end = reader.latestOffset(start, ALL)
    idle = requests(proxy, lambda: reader.latestOffset(end, ALL))
    assert idle.keys() == {"LIST"}
    assert idle["LIST"] <= 4

    def cut_second_page(answer: Answer) -> bytes | None:
        is_it = answer.is_listing and "continuation-token" in answer.path and not proxy.spoiled
        return cut_in_headers(answer) if is_it else None

    proxy.reset(cut_second_page, page=50)
    assert reader.latestOffset(end, ALL) == end
    assert proxy.spoiled
