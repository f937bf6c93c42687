"""A broker as a source, alone and with its directory: topics, records, groups, and a broker that comes and goes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import confluent_kafka
import pytest

import duralog
from duralog import Record
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address, Listening
from duralog.client.connection import admin_module
from duralog.client.log_dirs import log_dir_sizes
from duralog.config import BrokerConfig
from duralog.console.facts.overview import SourceKind
from duralog.console.facts.partitions import CleanerState
from duralog.console.facts.runs import RunState
from duralog.console.source import NotFromHere, UnknownGroup
from duralog.console.sources.broker.source import BrokerSource
from duralog.console.sources.combined_source import CombinedSource
from duralog.console.sources.opening import open_source
from duralog.errors import DuralogError, UnknownTopic
from duralog.testing import TestBroker, running_broker
from oracle.kafka_server import reserved_ports

FIRST_MS = 1_700_000_000_000
RECORDS = 120
KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}


def create(
    broker: TestBroker, name: str, partitions: int = 1, configs: Mapping[str, str] = MappingProxyType({})
) -> None:
    """As a client creates it: the broker serves it."""
    types = admin_module()
    admin = types.AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([types.NewTopic(name, num_partitions=partitions, config=dict(configs))])[name].result()


@pytest.fixture
def nobody() -> Iterator[socket.socket]:
    """An address without a server, which no other server gets."""
    (reserved,) = reserved_ports(1)
    with reserved:
        yield reserved


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """`orders` of two partitions, the second one empty; `gaps`, whose records are far apart; a group that lags."""
    directory = str(tmp_path_factory.mktemp("broker") / "data")
    with running_broker(KEEP, data=directory) as running:
        store = running.store
        create(running, "orders", 2, {"retention.ms": "-1"})
        store.partition("orders", 0).append(
            [
                Record(
                    key=b"k%d" % (number % 5),
                    value=b"%d" % number,
                    timestamp_ms=FIRST_MS + number,
                    headers=[("h", b"x")],
                )
                for number in range(RECORDS)
            ]
        )
        create(running, "gaps", configs={"cleanup.policy": "compact"})
        log = store.partition("gaps", 0)
        for number in range(2_000):
            log.append([Record(key=b"same" if number % 400 else b"k%d" % number, value=b"%d" % number)])
        log.roll()
        store.compact("gaps", 0)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": running.bootstrap_servers, "group.id": "billing", "log_level": 0}
        )
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 100)], asynchronous=False)
        consumer.close()
        yield running


@pytest.fixture(scope="module")
def source(broker: TestBroker) -> Iterator[BrokerSource]:
    opened = open_source(broker.bootstrap_servers, start=False)
    assert isinstance(opened, BrokerSource)
    opened.step()
    yield opened
    opened.close()


def offsets(page: Any) -> list[int]:
    return [record.offset for record in page.records]


def test_the_overview_is_that_of_the_broker(broker: TestBroker, source: BrokerSource) -> None:
    overview = source.overview()
    assert (overview.kind, overview.is_online, overview.target) == (SourceKind.BROKER, True, broker.bootstrap_servers)
    assert (overview.cluster_id, overview.node_id) == (broker.store.cluster_id, broker.store.node_id)
    topics = {topic.name: topic for topic in overview.topics}
    assert {"orders", "gaps", "__consumer_offsets"} <= set(topics)
    orders = topics["orders"]
    assert (orders.partitions, orders.records, orders.policy) == (2, RECORDS, "delete")
    assert orders.size_bytes == broker.store.partition("orders", 0).size_bytes
    assert topics["__consumer_offsets"].is_internal
    assert topics["gaps"].policy == "compact"
    assert any("--data" in note for note in overview.notes)
    (group,) = overview.groups
    assert (group.name, group.lag, group.topics, group.members) == ("billing", RECORDS - 100, ("orders",), 0)
    assert source.group("billing").view.offsets[0].committed == 100
    with pytest.raises(UnknownGroup):
        source.group("nobody")


def test_partitions_have_offsets_and_no_segments(broker: TestBroker, source: BrokerSource) -> None:
    full, empty = source.topic("orders")
    assert (full.start_offset, full.end_offset, full.segments, full.leader) == (0, RECORDS, None, broker.store.node_id)
    assert (empty.start_offset, empty.end_offset) == (0, 0)
    facts = source.partition("orders", 0)
    assert (facts.start_offset, facts.end_offset, facts.last_stable_offset) == (0, RECORDS, RECORDS)
    assert (facts.segments, facts.latest_timestamp_ms) == ((), FIRST_MS + RECORDS - 1)
    assert facts.configs["retention.ms"] == "-1"
    assert source.partition("orders", 1).latest_timestamp_ms is None
    for ask in (source.topic, lambda name: source.partition(name, 0), lambda name: source.records(name, 0)):
        with pytest.raises(UnknownTopic):
            ask("nothing")
    with pytest.raises(UnknownTopic):
        source.records("orders", 2)


def test_the_error_for_facts_of_files_says_how_to_see_them(source: BrokerSource) -> None:
    assert not source.has_files
    for refused in (
        lambda: source.scan_segment("orders", 0, 0),
        lambda: source.rehearsal("orders", 0),
        lambda: source.rehearsal("orders", 0),
        lambda: source.compact("orders", 0),
        lambda: source.start_verify(),
        lambda: source.quarantine(),
    ):
        with pytest.raises(NotFromHere, match="--data"):
            refused()
    assert source.known_scan("orders", 0, 0) is None
    assert source.compaction() is None
    assert source.verification() is None
    assert source.why_no_compaction("orders", 0) is not None
    assert source.cleaner().rows == ()


def test_pages_of_records(source: BrokerSource) -> None:
    page = source.records("orders", 0, limit=5)
    assert (offsets(page), page.next_offset, page.previous_offset) == ([0, 1, 2, 3, 4], 5, None)
    first = page.records[0]
    assert (first.key, first.value, first.headers) == (b"k0", b"0", (("h", b"x"),))
    assert (first.timestamp_ms, first.timestamp_type) == (FIRST_MS, "CreateTime")
    page = source.records("orders", 0, limit=5, backwards=True)
    assert (offsets(page), page.next_offset, page.previous_offset) == ([115, 116, 117, 118, 119], 120, 115)
    assert page.is_at_end
    assert offsets(source.records("orders", 0, offset=50, limit=3, backwards=True)) == [47, 48, 49]
    assert offsets(source.records("orders", 0, time_ms=FIRST_MS + 70, limit=2)) == [70, 71]
    page = source.records("orders", 0, time_ms=FIRST_MS + 10_000, limit=2)
    assert offsets(page) == [118, 119]
    assert "There is no record at" in str(page.note)
    page = source.records("orders", 0, offset=2**40, limit=2)
    assert offsets(page) == [118, 119]
    assert "There is no offset" in str(page.note)
    assert source.records("orders", 1).records == ()
    assert source.records("orders", 1, backwards=True).records == ()


def test_pages_over_gaps_give_everything_once(broker: TestBroker, source: BrokerSource) -> None:
    log = broker.store.partition("gaps", 0)
    expected = [record.offset for record in log.read(log.start_offset)]
    assert expected[-1] - expected[0] > 20 * len(expected)
    pages = [source.records("gaps", 0, limit=2, backwards=True)]
    while (before := pages[0].previous_offset) is not None:
        pages.insert(0, source.records("gaps", 0, offset=before, limit=2, backwards=True))
    assert [offset for page in pages for offset in offsets(page)] == expected
    pages = [source.records("gaps", 0, limit=2)]
    while not pages[-1].is_at_end:
        pages.append(source.records("gaps", 0, offset=pages[-1].next_offset, limit=2))
    assert [offset for page in pages for offset in offsets(page)] == expected


def test_one_record_and_the_tail(broker: TestBroker, source: BrokerSource) -> None:
    record = source.record("orders", 0, 17)
    assert record is not None
    assert record.value == b"17"
    assert source.record("orders", 0, RECORDS) is None
    assert source.tail("orders", 0, RECORDS).records == ()
    page = source.tail("orders", 0, 10, limit=4)
    assert offsets(page) == [116, 117, 118, 119]
    assert page.note == "Offsets 10 to 115 came too fast to be shown."
    create(broker, "followed")
    source.step()
    page = source.records("followed", 0, backwards=True)
    broker.store.partition("followed", 0).append([Record(value=b"new")] * 3)
    assert offsets(source.tail("followed", 0, page.next_offset)) == [0, 1, 2]


def test_transactions_that_do_not_count_can_be_left_out(broker: TestBroker, source: BrokerSource) -> None:
    create(broker, "transactions")
    log = broker.store.partition("transactions", 0)
    for sequence, commit in ((0, True), (2, False)):
        log.append(
            [Record(value=b"x")] * 2, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        log.end_transaction(7, 0, commit=commit)
    source.step()
    assert offsets(source.records("transactions", 0, committed_only=True)) == [0, 1]
    assert offsets(source.records("transactions", 0)) == [0, 1, 3, 4]


def test_a_search_through_a_broker(source: BrokerSource) -> None:
    search = source.find_key("orders", 0, b"k3")
    search.wait()
    assert search.progress().state is RunState.DONE
    assert [record.offset for record in search.found()] == list(range(3, RECORDS, 5))
    search = source.find_key("orders", 0, b"k3", from_offset=50, limit=2)
    search.wait()
    progress = search.progress()
    assert (progress.state, progress.offset, progress.found) == (RunState.STOPPED, 63, 2)
    assert [record.offset for record in search.found()] == [53, 58]
    search = source.find_key("orders", 1, b"k3")
    search.wait()
    assert (search.progress().state, search.progress().share) == (RunState.DONE, 1.0)


def test_a_broker_that_stops_is_reported_and_found_again(tmp_path: Path, nobody: socket.socket) -> None:
    def started() -> Broker:
        listening = Listening.at(Address("127.0.0.1", nobody.getsockname()[1]))
        return Broker(str(tmp_path / "data"), config=BrokerConfig.of(KEEP), listening=listening)

    with started() as broker:
        broker.start()
        running = TestBroker(broker.node.host, broker.node.port, broker.store, broker)
        create(running, "orders")
        source = BrokerSource(running.bootstrap_servers)
        source.step()
        assert source.overview().is_online
    try:
        source.step()
        overview = source.overview()
        assert not overview.is_online
        assert any("no broker answers there" in note for note in overview.notes)
        assert [topic.name for topic in overview.topics] == ["orders"]
        for read in (source.partition, source.records):
            with pytest.raises(DuralogError, match="no broker answers there"):
                read("orders", 0)
        with started() as again:
            again.start()
            again.store.partition("orders", 0).append([Record(value=b"x")] * 3)
            source.step()
            assert source.overview().is_online
            assert source.overview().records_in_per_second is None
            assert offsets(source.records("orders", 0)) == [0, 1, 2]
    finally:
        source.close()


def test_a_broker_that_was_never_there_is_a_note(nobody: socket.socket) -> None:
    """Nothing is missing there: no lookup is possible."""
    source = BrokerSource(f"127.0.0.1:{nobody.getsockname()[1]}")
    try:
        assert source.overview().taken_ms == 0
        for why in ("has not answered yet", "no broker answers there"):
            for ask in (source.topic, source.group):
                with pytest.raises(DuralogError, match=why) as raised:
                    ask("orders")
                assert not isinstance(raised.value, UnknownTopic | UnknownGroup)
            source.step()
        assert not source.overview().is_online
        assert source.overview().topics == ()
    finally:
        source.close()


def test_both_have_groups_from_the_broker_and_files_from_the_directory(broker: TestBroker) -> None:
    source = open_source(broker.bootstrap_servers, data=broker.store.path, start=False)
    assert isinstance(source, CombinedSource)
    try:
        overview = source.overview()
        assert overview.kind is SourceKind.BOTH
        assert broker.bootstrap_servers in overview.target
        assert broker.store.path in overview.target
        (group,) = overview.groups
        assert (group.name, group.state) == ("billing", "empty")
        assert source.group("billing").facts == group
        assert source.partition("orders", 0).segments
        assert source.has_files
        with pytest.raises(UnknownGroup):
            source.group("nobody")
        source._broker.trouble = "it is away"
        assert source.group("billing").facts.state is None
    finally:
        source.close()


@pytest.mark.parametrize(
    ("config", "state"),
    [({"log.cleaner.enable": True}, CleanerState.ON), ({}, CleanerState.OFF)],
)
def test_whether_the_broker_compacts_is_asked(tmp_path: Path, config: dict[str, object], state: CleanerState) -> None:
    directory = str(tmp_path / "data")
    with running_broker(KEEP | config, data=directory) as running:
        create(running, "orders")
        source = open_source(running.bootstrap_servers, data=directory, start=False)
        of_files = open_source(directory, start=False)
        try:
            assert source.partition("orders", 0).cleaner is state
            assert of_files.partition("orders", 0).cleaner is CleanerState.UNKNOWN
        finally:
            source.close()
            of_files.close()


def test_nothing_compacts_a_directory_that_no_process_has_open(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("orders", partitions=1)
    source = open_source(str(tmp_path / "data"), start=False)
    try:
        assert source.partition("orders", 0).cleaner is CleanerState.ABSENT
    finally:
        source.close()


# DescribeLogDirs


def test_every_look_has_the_rate_of_its_own_time(tmp_path: Path) -> None:
    now = [FIRST_MS]
    with running_broker(KEEP, data=str(tmp_path / "data")) as running:
        create(running, "orders")
        log = running.store.partition("orders", 0)
        source = BrokerSource(running.bootstrap_servers, clock=lambda: now[0])
        source.step()
        for _ in range(4):
            size = log.size_bytes
            log.append([Record(key=b"k", value=b"x" * 1_000, timestamp_ms=FIRST_MS)])
            now[0] += 2_000
            source.step()
            overview = source.overview()
            assert overview.records_in_per_second == 0.5
            assert overview.bytes_in_per_second == (log.size_bytes - size) / 2
        source.close()


def test_sizes_are_those_of_the_logs(broker: TestBroker) -> None:
    sizes = log_dir_sizes(broker.host, broker.port)
    assert sizes["orders", 0] == broker.store.partition("orders", 0).size_bytes
    assert sizes["orders", 1] == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100) + b"short",
        struct.pack(">iiii", 12, 1, 0, 2**31 - 1),
        struct.pack(">iiii", 12, 1, 0, -5),
        struct.pack(">iiiihh", 16, 1, 0, 1, 0, 500),
    ],
)
def test_an_answer_that_is_none_is_a_sentence(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = server.getsockname()
        with pytest.raises(DuralogError, match=f"{host}:{port}"):
            log_dir_sizes(host, port)
        thread.join()
