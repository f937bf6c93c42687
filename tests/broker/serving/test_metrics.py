"""`/metrics`: its values, that series are bounded, and that slow clients do not block others."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from socketserver import TCPServer
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from prometheus_client.parser import text_string_to_metric_families

import duralog
from duralog import Record
from duralog.broker import metrics, store_metrics
from duralog.broker.broker import Broker
from duralog.broker.groups.offsets.records import CommittedOffset
from duralog.broker.net import http_server
from duralog.broker.net.listening import Address, Listening, WebAddress
from duralog.config import BrokerConfig
from tests.support.broker.admin_desk import damage
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

API_VERSIONS, METADATA, CREATE_TOPICS = 18, 3, 19

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    # A test on a busy machine may be slow, too.
    monkeypatch.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 60.0)
    with Broker(None, metrics=Address("127.0.0.1", 0)) as broker:
        yield broker.start()


def scrape(broker: Broker, path: str = "/metrics") -> Samples:
    assert broker.metrics is not None
    with urllib.request.urlopen(f"http://{broker.metrics.address}{path}", timeout=60) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_entries_that_the_audit_log_dropped(tmp_path: Path, broker: Broker) -> None:
    name = ("duralog_audit_dropped_entries_total", ())
    assert name not in scrape(broker)
    config = BrokerConfig.of({"duralog.audit.log.file": str(tmp_path / "audit.log")})
    with Broker(None, config=config, metrics=Address("127.0.0.1", 0)) as audited:
        audited.start()
        assert audited.audit is not None
        audited.audit.log.drop(7)
        assert scrape(audited)[name] == 7


def test_requests_are_counted(broker: Broker, client: RawClient) -> None:
    for _ in range(3):
        client.ask(API_VERSIONS, 0)
    client.ask(METADATA, 9, {"topics": []})
    samples = scrape(broker)
    versions, other = (("api", "ApiVersions"),), (("api", "Fetch"),)
    assert samples["duralog_requests_total", versions] == 3
    assert samples["duralog_requests_total", other] == 0
    assert samples["duralog_request_bytes_total", versions] == 3 * (10 + len("test"))
    assert samples["duralog_response_bytes_total", versions] == 3 * (6 + 6 * len(broker.apis))
    assert samples["duralog_request_seconds_count", versions] == 3
    assert samples["duralog_request_seconds_sum", versions] > 0
    assert samples["duralog_connections", ()] == 1


def test_why_connections_were_closed_and_what_requests_hold(broker: Broker, client: RawClient) -> None:
    with RawClient("127.0.0.1", broker.address.port) as hostile:
        hostile.send_bytes(struct.pack(">i", -1))
        assert hostile.is_closed_by_peer()
    client.send_bytes(struct.pack(">i", 1 << 20) + bytes(100_000))
    with RawClient("127.0.0.1", broker.address.port) as other:
        other.ask(API_VERSIONS, 0)
    samples = scrape(broker)
    assert samples["duralog_closed_connections_total", (("reason", "InvalidFrame"),)] == 1
    assert 100_000 <= samples["duralog_request_memory_bytes", ()] < 1 << 20
    assert samples["duralog_request_memory_limit_bytes", ()] == broker.server.memory.limit_bytes
    assert samples["duralog_connections_waiting_for_memory", ()] == 0


def test_metrics_of_the_store(broker: Broker) -> None:
    broker.store.create_topic("orders", 2)
    broker.store.partition("orders", 0).append([Record(key=b"k", value=b"v" * 1000)])
    samples = scrape(broker)
    assert samples["duralog_topics", ()] == 1
    assert samples["duralog_partitions", ()] == 2
    assert samples["duralog_log_bytes", (("topic", "orders"),)] > 1000
    assert samples["duralog_cleanings_total", ()] == 0
    assert samples["duralog_background_errors", ()] == 0


def test_topics_have_rates_and_flushes_have_times(broker: Broker) -> None:
    broker.store.create_topic("orders", 2)
    log = broker.store.partition("orders", 0)
    before = scrape(broker)["duralog_flush_seconds_count", ()]
    log.append([Record(value=b"v" * 1000)] * 3)
    log.flush()
    orders = (("topic", "orders"),)
    samples = scrape(broker)
    assert samples["duralog_appended_bytes_total", orders] == log.size_bytes > 3000
    assert samples["duralog_end_offsets_total", orders] == 3
    assert samples["duralog_fetched_bytes_total", orders] == 0
    assert samples["duralog_flush_seconds_count", ()] == before + 1
    assert samples["duralog_flush_seconds_bucket", (("le", "+Inf"),)] == before + 1
    consumer = Consumer({"bootstrap.servers": str(broker.address), "group.id": "billing", "enable.auto.commit": False})
    try:
        consumer.assign([KafkaPartition("orders", 0, 0)])
        assert [message.offset() for message in consumer.consume(3, 30)] == [0, 1, 2]
        consumer.commit(offsets=[KafkaPartition("orders", 0, 2)], asynchronous=False)
    finally:
        consumer.close()
    samples = scrape(broker)
    assert samples["duralog_fetched_bytes_total", orders] >= log.size_bytes
    assert samples["duralog_group_lag", (("group", "billing"), ("partition", "0"), ("topic", "orders"))] == 1
    broker.store.delete_topic("orders")
    assert ("duralog_fetched_bytes_total", orders) not in (samples := scrape(broker))
    assert not [name for name, _ in samples if name == "duralog_group_lag"]


def test_the_smallest_lags_beyond_a_number_are_added_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_metrics, "MOST_LAGS", 1)
    broker.store.create_topic("t", 3)
    for number in range(3):
        broker.store.partition("t", number).append([Record(value=b"v")] * (number + 1))
    offset = CommittedOffset(0, -1, "", 0, None, None)
    lag = store_metrics.of_lag(broker.store, {"g": {"t": {0: offset, 1: offset, 2: offset}}})
    assert [(sample.labels["partition"], sample.value) for sample in lag.samples] == [("2", 3), ("", 3)]


def test_held_records_are_counted(tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("orders", 1)
        store.partition("orders", 0).append([Record(value=b"v", timestamp_ms=1_577_836_800_000)] * 3)
        size_bytes = store.partition("orders", 0).size_bytes
    with Broker(str(tmp_path / "data"), metrics=Address("127.0.0.1", 0)) as broker:
        broker.start()
        samples = scrape(broker)
        assert (samples["duralog_held_records", ()], samples["duralog_held_bytes", ()]) == (3, size_bytes)
        broker.store.apply_retention()
        samples = scrape(broker)
        assert (samples["duralog_held_records", ()], samples["duralog_held_bytes", ()]) == (0, 0)


def test_partitions_that_cannot_be_used_are_reported(broker: Broker) -> None:
    broker.store.create_topic("orders", 2)
    broker.store.create_topic("lost", 1)
    for topic, number in (("orders", 1), ("lost", 0)):
        damage(broker, topic, number)
    samples = scrape(broker)
    assert samples["duralog_topics", ()] == 2
    assert samples["duralog_partitions", ()] == 3
    assert samples["duralog_offline_partitions", ()] == 2


def test_topics_beyond_a_limit_are_summed_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_metrics, "MOST_TOPICS", 2)
    for number in range(4):
        broker.store.create_topic(f"t{number}", 1)
        broker.store.partition(f"t{number}", 0).append([Record(value=bytes(100 * (number + 1)))])
    sizes = {labels: value for (name, labels), value in scrape(broker).items() if name == "duralog_log_bytes"}
    assert set(sizes) == {(("topic", "t3"),), (("topic", "t2"),), (("topic", ""),)}
    small = [broker.store.partition(f"t{number}", 0).size_bytes for number in (0, 1)]
    assert sizes[(("topic", ""),)] == sum(small)


def test_there_is_nothing_else(broker: Broker) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        scrape(broker, "/")


def test_a_client_that_says_nothing_does_not_stop_the_next_scrape(broker: Broker, client: RawClient) -> None:
    assert broker.metrics is not None
    with socket.create_connection((broker.metrics.address.host, broker.metrics.address.port)):
        assert client.ask(API_VERSIONS, 0).error_code == 0
        assert scrape(broker)["duralog_connections", ()] == 1


def ask(broker: Broker, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    assert broker.metrics is not None
    with socket.create_connection((broker.metrics.address.host, broker.metrics.address.port), timeout=60) as asking:
        asking.sendall(request)
        return b"".join(iter(lambda: asking.recv(1 << 16), b""))


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def get(host: str | None, path: str = "/metrics") -> bytes:
    header = "" if host is None else f"Host: {host}\r\n"
    return f"GET {path} HTTP/1.1\r\n{header}\r\n".encode()


def silent_clients(broker: Broker, count: int, kept: ExitStack) -> list[socket.socket]:
    assert broker.metrics is not None
    address = (broker.metrics.address.host, broker.metrics.address.port)
    return [kept.enter_context(socket.create_connection(address, timeout=60)) for _ in range(count)]


def test_clients_that_say_nothing_hold_up_no_scrape(broker: Broker) -> None:
    with ExitStack() as kept:
        silent_clients(broker, 10, kept)
        assert scrape(broker)["duralog_connections", ()] == 0


def test_several_scrapes_at_a_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)

    ask_loop = metrics.BrokerCollector._ask_loop

    def ask_together(collector: metrics.BrokerCollector) -> metrics.LoopFigures | None:
        together.wait(60)
        return ask_loop(collector)

    monkeypatch.setattr(metrics.BrokerCollector, "_ask_loop", ask_together)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: scrape(broker), range(3)))
    assert [answer["duralog_connections", ()] for answer in answers] == [0, 0, 0]


def test_a_client_that_says_nothing_is_closed_in_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 0.1)
    with ExitStack() as kept:
        for silent in silent_clients(broker, 3, kept):
            assert silent.recv(1) == b""


def test_connections_and_threads_are_few(broker: Broker) -> None:
    before = threading.active_count()
    with ExitStack() as kept:
        silent_clients(broker, 40, kept)
        wait_until(lambda: threading.active_count() >= before + 16)
        assert threading.active_count() == before + 16
    assert scrape(broker)["duralog_connections", ()] == 0


def test_the_end_waits_for_no_client() -> None:
    with ExitStack() as kept:
        with Broker(None, metrics=Address("127.0.0.1", 0)) as broker:
            broker.start()
            silent = silent_clients(broker, 20, kept)
        for each in silent:
            with suppress(ConnectionError):
                assert each.recv(1) == b""


def test_a_request_that_is_too_large(broker: Broker) -> None:
    header = b"X: " + b"x" * 8190
    answer = ask(broker, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + header)
    assert status(answer) == 431
    assert answer.endswith(b"a request may have 8192 bytes\n")


@pytest.mark.parametrize(
    "request_bytes",
    [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"\xff\xfe\0\n\n", b"POST / HTTP/1.1\r\n\r\n"],
)
def test_what_is_not_a_request(broker: Broker, request_bytes: bytes) -> None:
    assert b"duralog_" not in ask(broker, request_bytes)
    assert scrape(broker)["duralog_connections", ()] == 0


class TestHosts:
    """A page of another site that lets its name mean this address must not read what is served."""

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9404", "localhost:9404", "LOCALHOST", "[::1]:9404"])
    def test_its_own(self, broker: Broker, host: str) -> None:
        assert status(ask(broker, get(host))) == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:9404", "127.0.0.1.evil.example", "10.0.0.1", "", None]
    )
    def test_others(self, broker: Broker, host: str | None) -> None:
        answer = ask(broker, get(host))
        assert status(answer) == 421
        assert answer.endswith(b"these metrics are served under other names: see duralog serve --metrics-host\n")
        assert b"duralog_" not in answer

    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ("Origin: http://evil.example", 403),
            ("Origin: null", 403),
            ("Origin: http://localhost:9405", 403),
            ("Origin: http://localhost:9404", 200),
            ("Sec-Fetch-Site: cross-site", 403),
            ("Sec-Fetch-Site: same-site", 403),
            ("Sec-Fetch-Site: same-origin", 200),
            ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: document", 200),
        ],
    )
    def test_pages_of_other_sites(self, broker: Broker, header: str, expected: int) -> None:
        asked = f"GET /metrics HTTP/1.1\r\nHost: localhost:9404\r\n{header}\r\n\r\n"
        assert status(ask(broker, asked.encode())) == expected

    def test_two_at_once(self, broker: Broker) -> None:
        assert status(ask(broker, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")) == 421

    def test_everywhere_and_by_other_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "getfqdn", lambda: "machine.example")
        served = WebAddress(Address("0.0.0.0", 0), ("Prometheus.example",))
        listening = Listening.at(Address("127.0.0.1", 0), Address("broker.example", 0))
        with Broker(None, listening=listening, metrics=served) as broker:
            broker.start()
            for host in ("10.1.2.3:9404", "[fe80::1]", socket.gethostname(), "prometheus.example:1", "broker.example"):
                assert status(ask(broker, get(host))) == 200, host
            assert status(ask(broker, get("evil.example"))) == 421
            wait_until(lambda: status(ask(broker, get("machine.example"))) == 200)

    def test_a_slow_name_service_holds_up_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        is_up = threading.Event()
        asked: list[str] = []

        def getfqdn() -> str:
            asked.append(threading.current_thread().name)
            assert is_up.wait(60)
            return "machine.example"

        monkeypatch.setattr(socket, "getfqdn", getfqdn)
        with Broker(None, metrics=Address("0.0.0.0", 0)) as broker:
            broker.start()
            assert status(ask(broker, get("localhost"))) == 200
            wait_until(lambda: asked == ["duralog-host-name"])
        is_up.set()


def test_where_no_descriptors_are_left_it_waits_for_some(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    failures = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
    get_request = TCPServer.get_request

    def get_request_at_last(server: TCPServer) -> Any:
        if failures:
            raise failures.pop()
        return get_request(server)

    monkeypatch.setattr(http_server, "time", SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(TCPServer, "get_request", get_request_at_last)
    assert scrape(broker)["duralog_connections", ()] == 0
    assert pauses == [0.1] * 3


def test_a_client_that_never_comes_to_an_end_is_dropped(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker.metrics is not None
    monkeypatch.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 0.3)
    with socket.create_connection((broker.metrics.address.host, broker.metrics.address.port), timeout=0.05) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        for _ in range(1000):
            try:
                slow.sendall(b"x")
                assert slow.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("it is still listened to")
    assert scrape(broker)["duralog_connections", ()] == 0


def test_clients_that_leave_are_no_news(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    assert broker.metrics is not None
    for asked in (b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\nX"):
        with socket.create_connection((broker.metrics.address.host, broker.metrics.address.port)) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.sendall(asked)
    assert scrape(broker)["duralog_connections", ()] == 0
    assert capfd.readouterr().err == ""


def test_an_address_of_ipv6() -> None:
    with Broker(None, metrics=Address("::1", 0)) as broker:
        assert scrape(broker.start())["duralog_connections", ()] == 0


def test_an_address_in_use_is_reported(broker: Broker) -> None:
    assert broker.metrics is not None
    with pytest.raises(OSError, match=r"cannot serve metrics on 127\.0\.0\.1"):
        Broker(None, metrics=broker.metrics.address).open()
