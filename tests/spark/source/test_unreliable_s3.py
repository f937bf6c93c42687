"""A connection to S3 that breaks: the same rows all the same, or an error with the URL, and never other rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from duralog.errors import StorageError
from duralog.scanning import locations
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import resolve, select_partitions
from duralog.scanning.planning import plan
from duralog.scanning.time_range import TimeRange
from duralog.storage.log.isolation import Isolation
from tests.support.spark.planned_log import NOW_MS, fill, open_for_writing, read, record
from tests.support.spark.unreliable_proxy import (
    Answer,
    Spoil,
    UnreliableProxy,
    cut_in_body,
    cut_in_headers,
    cut_without_length,
    dribble,
    drop,
    repeat,
    unreliable_proxy,
)

moto_server = pytest.importorskip("moto.server")

KEYS = {"access_key": "key", "secret_key": "secret", "region": "us-east-1", "scheme": "http"}
URL = "s3://bucket/kafka"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments: plain records, some of them deleted, then transactions, one in two of them aborted."""
    path = tmp_path_factory.mktemp("kafka")
    with open_for_writing(path, **{"log.roll.ms": 10**15}) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        fill(log, 0, 200)
        for number in range(20):
            if number % 10 == 0:
                log.roll()
            records = [record(200 + 10 * number + each) for each in range(10)]
            log.append(records, producer_id=7, producer_epoch=0, base_sequence=10 * number, is_transactional=True)
            log.end_transaction(7, 0, commit=number % 2 == 0)
        log.delete_records(before_offset=50)
    return path


@pytest.fixture(scope="module")
def proxy(directory: Path) -> Iterator[UnreliableProxy]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        bucket = pafs.S3FileSystem(**KEYS, endpoint_override=f"{host}:{port}", allow_bucket_creation=True)
        bucket.create_dir("bucket/kafka")
        pafs.copy_files(str(directory), "bucket/kafka", destination_filesystem=bucket)
        with unreliable_proxy((host, port)) as proxy:
            yield proxy
    finally:
        server.stop()


def read_all(path: str, options: dict[str, str] | None = None) -> pa.Table:
    """Committed records, in small slices. The time index is asked, too."""
    with open_store(path, options) as store:
        level = Isolation.READ_COMMITTED
        ranges = resolve(store, select_partitions(store, topics=["orders"]), isolation=level)
        planned = plan(store, ranges, isolation=level, max_slice_bytes=4000, times=TimeRange(NOW_MS + 100))
    return read(planned.slices).combine_chunks()


def read_remote(proxy: UnreliableProxy, spoil: Spoil | None = None) -> pa.Table:
    """As a process that has not read anything of it before."""
    locations._remembered.cache_clear()
    proxy.reset(*[] if spoil is None else [spoil])
    return read_all(URL, {**KEYS, "endpoint_override": proxy.address})


@pytest.fixture(scope="module")
def expected(directory: Path) -> pa.Table:
    found = read_all(str(directory))
    assert found.num_rows == 250
    return found


@pytest.fixture(scope="module")
def asked(proxy: UnreliableProxy, expected: pa.Table) -> dict[str, Answer]:
    """One request of each kind that a whole read makes."""
    assert read_remote(proxy).equals(expected)
    first: dict[str, Answer] = {}
    for answer in proxy.answers:
        if "__cluster_metadata" in answer.path:
            continue  # Who reads can do without it.
        first.setdefault(answer.kind, answer)
    assert {"HEAD log", "GET log", "GET timeindex", "HEAD txnindex", "HEAD metadata", "LIST kafka/"} <= first.keys()
    return first


Fault = Callable[[Answer], "bytes | Iterable[bytes]"]


def once(fault: Fault, spoiled: Answer, proxy: UnreliableProxy) -> Spoil:
    def spoil(answer: Answer) -> bytes | Iterable[bytes] | None:
        is_it = (answer.method, answer.path) == (spoiled.method, spoiled.path) and not proxy.spoiled
        return fault(answer) if is_it else None

    return spoil


def test_an_answer_cut_inside_its_headers(proxy: UnreliableProxy, expected: pa.Table, asked: dict[str, Answer]) -> None:
    """The client takes it for a whole one."""
    for kind, answer in asked.items():
        assert read_remote(proxy, once(cut_in_headers, answer, proxy)).equals(expected), kind
        assert proxy.spoiled, kind


def test_a_body_that_ends_early_without_a_length(
    proxy: UnreliableProxy, expected: pa.Table, asked: dict[str, Answer]
) -> None:
    for kind, answer in asked.items():
        if kind.startswith("GET"):
            assert read_remote(proxy, once(cut_without_length, answer, proxy)).equals(expected), kind
    with pytest.raises(StorageError, match=f"{URL}: cannot list: "):
        read_remote(proxy, once(cut_without_length, asked["LIST kafka/"], proxy))


@pytest.mark.parametrize("fault", [cut_in_body, drop, repeat, dribble])
def test_what_the_client_itself_gets_over(
    proxy: UnreliableProxy, expected: pa.Table, asked: dict[str, Answer], fault: Fault
) -> None:
    for kind in ("HEAD log", "GET log", "GET txnindex", "LIST kafka/", "LIST kafka/orders-0/"):
        assert read_remote(proxy, once(fault, asked[kind], proxy)).equals(expected), kind
        assert proxy.spoiled, kind


@pytest.mark.parametrize("fault", [cut_in_headers, cut_in_body, drop, repeat, dribble])
def test_one_listing_of_everything(proxy: UnreliableProxy, expected: pa.Table, fault: Fault) -> None:
    """A process that opens the directory again lists all folders at once."""
    read_remote(proxy)

    def spoil(answer: Answer) -> bytes | Iterable[bytes] | None:
        return fault(answer) if answer.is_listing and "delimiter" not in answer.path and not proxy.spoiled else None

    proxy.reset(spoil)
    assert read_all(URL, {**KEYS, "endpoint_override": proxy.address}).equals(expected)
    assert len(proxy.spoiled) == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_a_listing_that_is_older_than_the_objects(proxy: UnreliableProxy, expected: pa.Table, is_known: bool) -> None:
    """Sizes that the objects do not have any more: the folder is listed again."""
    if is_known:
        read_remote(proxy)
    else:
        locations._remembered.cache_clear()

    def spoil(answer: Answer) -> bytes | None:
        if not answer.is_listing or b"00000000000000000310.log" not in answer.body or proxy.spoiled:
            return None
        size = len(re.findall(rb"310\.log</Key>.*?<Size>(\d+)</Size>", answer.body, re.DOTALL)[0])
        body = re.sub(
            rb"(310\.log</Key>(?:(?!</Contents>).)*?<Size>)\d+(</Size>)",
            lambda match: match[1] + b"1" * size + match[2],
            answer.body,
            flags=re.DOTALL,
        )
        assert body != answer.body
        return answer.head + body

    proxy.reset(spoil)
    assert read_all(URL, {**KEYS, "endpoint_override": proxy.address}).equals(expected)
    assert len(proxy.spoiled) == 1


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("HEAD log", "cannot open: the object store says that it has 0 bytes, but the listing of its folder has it"),
        ("HEAD metadata", "cannot open: the object store says that it has 0 bytes, but the listing of its folder"),
        ("HEAD log-start-offset-checkpoint", "cannot open: the object store says that it has 0 bytes"),
        (
            "GET log-start-offset-checkpoint",
            "cannot read: .* bytes from position 0 on were requested, but fewer were received",
        ),
        ("GET timeindex", "cannot read: 12 bytes from position .* on were requested, but fewer were received 4 times"),
        ("GET txnindex", "cannot read: .* bytes from position 0 on were requested, but fewer were received 4 times"),
    ],
)
def test_an_object_that_is_never_answered_whole_is_named(
    proxy: UnreliableProxy, asked: dict[str, Answer], kind: str, told: str
) -> None:
    spoiled = asked[kind]
    with pytest.raises(StorageError, match=told) as caught:
        read_remote(
            proxy,
            lambda answer: (
                cut_in_headers(answer) if (answer.method, answer.path) == (spoiled.method, spoiled.path) else None
            ),
        )
    assert str(caught.value).startswith(f"s3:/{spoiled.path.partition('?')[0]}: ")
