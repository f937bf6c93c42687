"""Remote files: what is asked of the other side, what is refused, and reading ahead."""

from __future__ import annotations

import io
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from duralog.errors import StorageError
from duralog.format.record import Record
from duralog.scanning.locations import LocatedStore, Location
from duralog.scanning.offset_ranges import resolve, select_partitions
from duralog.scanning.planning import plan
from duralog.scanning.remote_file import WINDOW_BYTES, ReadAhead, RemoteFile
from duralog.scanning.remote_files import LISTED_AT_ONCE, RemoteFileSystem
from duralog.scanning.time_range import TimeRange
from tests.support.spark.planned_log import NOW_MS, fill, open_for_writing


class Requests:
    """A local file system that counts what is asked of it."""

    def __init__(self) -> None:
        self._below = pafs.LocalFileSystem()
        self.asked: list[tuple[str, str]] = []

    def open_input_file(self, path: str) -> Any:
        self.asked.append(("open", path))
        return self._below.open_input_file(path)

    def get_file_info(self, wanted: Any) -> Any:
        is_listing = isinstance(wanted, pafs.FileSelector)
        self.asked.append(("list", wanted.base_dir) if is_listing else ("look at", wanted))
        return self._below.get_file_info(wanted)


class Content:
    """A remote file of these bytes that remembers which ranges were fetched."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.fetched: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def get_stream(self, position: int, size: int) -> io.BytesIO:
        with self._lock:
            self.fetched.append((position, size))
        return io.BytesIO(self._data[position : position + size])

    def close(self) -> None:
        """Nothing to do."""


DATA = bytes(range(256)) * 4000


@pytest.fixture
def content() -> Content:
    return Content(DATA)


@pytest.fixture
def file(content: Content) -> RemoteFile:
    return RemoteFile("s3://bucket/key", content, len(DATA))


# One file


def test_small_reads_share_a_request(file: RemoteFile, content: Content) -> None:
    assert file.read(100, 10) == DATA[100:110]
    assert file.read(105, 4000) == DATA[105:4105]
    assert file.read(4105, 4000) == DATA[4105:8105]
    assert content.fetched == [(100, WINDOW_BYTES)]
    assert file.read(50, 10) == DATA[50:60]
    assert len(content.fetched) == 2


def test_a_window_ends_with_the_file(file: RemoteFile, content: Content) -> None:
    assert file.read(len(DATA) - 5, 5) == DATA[-5:]
    assert content.fetched == [(len(DATA) - 5, 5)]


def test_large_reads_are_as_large_as_asked(file: RemoteFile, content: Content) -> None:
    target = bytearray(200_000)
    file.read_into(3, memoryview(target))
    assert target == DATA[3:200_003]
    assert content.fetched == [(3, 200_000)]


def test_a_file_that_became_shorter_is_reported(content: Content) -> None:
    file = RemoteFile("s3://bucket/key", content, len(DATA) + 100)
    with pytest.raises(
        StorageError, match="s3://bucket/key: cannot read: 20 bytes from position 1023990 on were requested, but fewer"
    ):
        file.fetch(len(DATA) - 10, 20)
    assert len(content.fetched) == 4


class CutAnswers(Content):
    """Says that all bytes came, and leaves the last ones as they were: pyarrow does, for an answer that was cut."""

    def __init__(self, data: bytes, *, cut: int) -> None:
        super().__init__(data)
        self._cut = cut

    def get_stream(self, position: int, size: int) -> Any:
        whole = super().get_stream(position, size).read()
        filled = whole[:-1] if len(self.fetched) <= self._cut else whole

        class Stream:
            def readinto(self, target: Any) -> int:
                memoryview(target)[: len(filled)] = filled
                return size

        return Stream()


@pytest.mark.parametrize("last", range(256))
def test_an_answer_that_filled_only_part_of_the_buffer(last: int) -> None:
    """Whatever the last byte is: the mark must not be taken for it, nor it for the mark."""
    data = bytes([*range(100), last])
    for cut in range(3):
        content = CutAnswers(data, cut=cut)
        assert RemoteFile("s3://bucket/key", content, len(data)).read(0, len(data)) == data
        assert cut < len(content.fetched) <= cut + 2
    with pytest.raises(
        StorageError, match="101 bytes from position 0 on were requested, but fewer were received 4 times"
    ):
        RemoteFile("s3://bucket/key", CutAnswers(data, cut=4), len(data)).fetch(0, len(data))


@pytest.mark.parametrize("block_bytes", [1000, 4096, 300_000, 10**7])
@pytest.mark.parametrize("step", [700, 1000, 50_000])
def test_reading_ahead_gives_the_same_bytes(file: RemoteFile, content: Content, block_bytes: int, step: int) -> None:
    start, end = 1234, 400_000
    with ReadAhead(file, start, end, block_bytes=block_bytes, ahead=2) as source:
        assert source.size == end
        for position in range(start, end, step):
            # As a reader of whole batches does: the next piece starts somewhat before the end of this one.
            size = min(step + 300, end - position)
            assert bytes(source.read(position, size)) == DATA[position : position + size]
    fetched = sorted(content.fetched)
    assert fetched[0][0] == start
    assert max(position + size for position, size in fetched) == end
    assert len(fetched) == len(set(fetched)) == -(-(end - start) // block_bytes)


def test_reading_ahead_holds_few_blocks(file: RemoteFile, content: Content) -> None:
    with ReadAhead(file, 0, len(DATA), block_bytes=10_000, ahead=3) as source:
        source.read(0, 5_000)
        source.read(500_000, 5_000)
        assert len(content.fetched) <= 8
        assert bytes(source.read(200, 100)) == DATA[200:300]


def test_an_error_while_reading_ahead_comes_to_the_reader() -> None:
    class Failing(Content):
        def get_stream(self, *_: int) -> Any:
            raise OSError("the network is down")

    file = RemoteFile("s3://bucket/key", Failing(DATA), len(DATA))
    with (
        ReadAhead(file, 0, 1000) as source,
        pytest.raises(StorageError, match="s3://bucket/key: cannot read: the network is down"),
    ):
        source.read(0, 10)


# A file system


def test_what_the_other_side_refuses_is_a_storage_error(tmp_path: Path) -> None:
    files = RemoteFileSystem(pafs.LocalFileSystem(), "file://")
    missing = str(tmp_path / "missing")
    with pytest.raises(StorageError, match=f"file://{missing}: cannot open: "):
        files.open(missing)
    with pytest.raises(StorageError, match=f"file://{missing}: cannot list: "):
        files.list(missing)
    assert files.entry(missing) is None
    assert not files.exists(missing)


def test_arrows_own_errors_are_storage_errors_too(tmp_path: Path) -> None:
    class Refusing(Requests):
        def get_file_info(self, _: Any) -> Any:
            raise pa.ArrowInvalid("not a path")

    with pytest.raises(StorageError, match="s3://bucket/x: cannot stat: not a path"):
        RemoteFileSystem(Refusing(), "s3://").exists("bucket/x")


def test_nothing_is_written(tmp_path: Path) -> None:
    files = RemoteFileSystem(pafs.LocalFileSystem(), "file://")
    path = str(tmp_path / "x")
    changes = [
        lambda: files.open(path, writable=True, create=True),
        lambda: files.write(path, b"", sync=True),
        lambda: files.replace(path, b""),
        lambda: files.rename(path, path),
        lambda: files.remove(path),
        lambda: files.make_folder(path),
        lambda: files.remove_folder(path),
        lambda: files.sync_folder(path),
        lambda: files.map(path, 10),
        lambda: files.truncate(path, 0),
        lambda: files.set_modified_ms(path, 0),
        lambda: files.lock(path),
    ]
    for change in changes:
        with pytest.raises(StorageError, match="remote files are only read"):
            change()
    assert list(tmp_path.iterdir()) == []


def test_a_listing_answers_for_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    requests = Requests()
    files = RemoteFileSystem(requests, "file://")
    assert files.entry(str(tmp_path / "a")) == files.list(str(tmp_path))[0]
    before = len(requests.asked)
    assert files.exists(str(tmp_path / "a"))
    assert not files.exists(str(tmp_path / "b"))
    assert len(requests.asked) == before
    (tmp_path / "b").mkdir()
    assert sorted(files.list_names(str(tmp_path))) == ["a", "b"]
    found = files.entry(str(tmp_path / "b"))
    assert found is not None
    assert found.is_folder


class Unreliable(Requests):
    """Some answers are as pyarrow gives them when a connection ends inside the headers."""

    def __init__(self) -> None:
        super().__init__()
        self.cut_opens = 0
        self.cut_listings: list[int] = []
        """For each of the next listings, how many entries are left of it."""

    def open_input_file(self, path: str) -> Any:
        file = super().open_input_file(path)
        if not self.cut_opens:
            return file
        self.cut_opens -= 1
        file.close()
        return pa.BufferReader(b"")

    def get_file_info(self, wanted: Any) -> Any:
        found = super().get_file_info(wanted)
        if isinstance(wanted, pafs.FileSelector):
            return found[: self.cut_listings.pop(0)] if self.cut_listings else found
        return pafs.FileInfo(wanted, pafs.FileType.File, size=0) if self.cut_opens else found


def test_a_size_is_compared_with_the_listing(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    Path(path).write_bytes(b"12345")
    for is_listed in (True, False):
        requests = Unreliable()
        files = RemoteFileSystem(requests, "file://")
        if is_listed:
            files.list(str(tmp_path))
        requests.cut_opens = 2
        assert files.read_all(path) == b"12345"
        requests.cut_opens = 3
        with pytest.raises(
            StorageError, match=f"file://{path}: cannot open: the object store says that it has 0 bytes, .* 5 bytes"
        ):
            files.read_all(path)
        requests.cut_opens = 1
        entry = files.entry(path)
        assert entry is not None
        assert entry.size == 5


def test_a_file_that_is_empty_or_has_grown(tmp_path: Path) -> None:
    for name in ("empty", "grows"):
        (tmp_path / name).write_bytes(b"")
    files = RemoteFileSystem(Unreliable(), "file://")
    assert files.read_all(str(tmp_path / "empty")) == b""
    (tmp_path / "grows").write_bytes(b"12345")
    assert files.read_all(str(tmp_path / "grows")) == b"12345"


def test_a_file_that_was_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    files = RemoteFileSystem(Unreliable(), "file://")
    files.list(str(tmp_path))
    (tmp_path / "x").write_bytes(b"123")
    assert files.read_all(str(tmp_path / "x")) == b"123"


def test_a_listing_that_lacks_its_last_pages(tmp_path: Path) -> None:
    for number in range(LISTED_AT_ONCE + 5):
        (tmp_path / f"{number}").touch()
    requests = Unreliable()
    files = RemoteFileSystem(requests, "file://")
    for cut in ([LISTED_AT_ONCE], [2000, LISTED_AT_ONCE]):
        requests.cut_listings = cut
        assert len(files.list(str(tmp_path))) == LISTED_AT_ONCE + 5
    requests.cut_listings = [LISTED_AT_ONCE, 2000, LISTED_AT_ONCE, 2000]
    with pytest.raises(StorageError, match=f"file://{tmp_path}: cannot list: 4 listings in a row differ"):
        files.list(str(tmp_path))


def test_an_empty_bucket_is_an_error() -> None:
    class Bucket(Requests):
        def get_file_info(self, wanted: Any) -> Any:
            self.asked.append(("list", wanted.base_dir))
            return []

    requests = Bucket()
    with pytest.raises(StorageError, match="s3://bucket: cannot list: the bucket is empty"):
        RemoteFileSystem(requests, "s3://").list("bucket")
    assert len(requests.asked) == 3


def test_few_requests_plan_a_log(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 0, 1000)
    requests = Requests()
    location = Location(str(tmp_path))
    with LocatedStore(location, str(tmp_path), RemoteFileSystem(requests, "file://")) as store:
        before = len(requests.asked)
        ranges = resolve(store, select_partitions(store, topics=["orders"]))
        assert len(plan(store, ranges).slices) == 5
        # The folder twice, the id of its topic, and the end of the active segment.
        assert Counter(operation for operation, _ in requests.asked[before:]) == {"list": 2, "look at": 1, "open": 2}
        by_time = len(requests.asked)
        assert plan(store, ranges, times=TimeRange(NOW_MS + 500)).segments_planned == 3
        assert len(requests.asked) - by_time <= 5


def test_a_large_active_segment_takes_one_index_more(tmp_path: Path) -> None:
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1)
        store.partition("orders", 0).append([Record(value=bytes(100_000))])
        store.partition("orders", 0).append([Record(value=bytes(100_000))])
    requests = Requests()
    with LocatedStore(Location(str(tmp_path)), str(tmp_path), RemoteFileSystem(requests, "file://")) as store:
        before = len(requests.asked)
        ranges = resolve(store, select_partitions(store, topics=["orders"]))
        assert plan(store, ranges).planned_bytes > 200_000
        opened = sorted(path.rpartition("/")[2] for kind, path in requests.asked[before:] if kind == "open")
        assert opened == [f"{0:020}.index", f"{0:020}.log", "partition.metadata"]
