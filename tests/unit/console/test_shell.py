"""Words, axes and access rules of the console: what can be tried without a browser."""

from __future__ import annotations

import socket
import threading

import pytest

pytest.importorskip("nicegui")

from duralog.broker.net.http_hosts import HttpHosts
from duralog.console.access import GuardedApplication
from duralog.console.drawing.reader_zone import IN_UTC
from duralog.console.drawing.words import (
    UNKNOWN,
    age_text,
    byte_rate_text,
    counted,
    group_path,
    grouped,
    number_text,
    record_rate_text,
    share_text,
    topic_path,
    value_in_words,
)
from duralog.console.ui.charts import size_axis, sparkline
from duralog.console.ui.layout import PageMissing, partition_number

NOW_MS = 1_800_000_000_000
KIB = 1024
GIB = KIB**3


def test_numbers_are_grouped_by_a_space_that_does_not_break() -> None:
    assert number_text(1_234_567) == "1,234,567"
    assert number_text(-1_000) == "-1,000"
    assert number_text(None) == UNKNOWN
    assert [counted(n, "topic") for n in (0, 1, 2)] == ["0 topics", "1 topic", "2 topics"]
    assert counted(2, "batch") == "2 batches"
    sentence = "from offset 7600 on: the active segment starts at offset 1234567"
    assert grouped(sentence) == "from offset 7,600 on: the active segment starts at offset 1,234,567"
    assert grouped("min.compaction.lag.ms is 21600000 ms") == "min.compaction.lag.ms is 21600000 ms"


@pytest.mark.parametrize(
    ("rate", "text"), [(None, UNKNOWN), (0.0, "0/s"), (0.44, "0.4/s"), (12.4, "12/s"), (12_345.0, "12,345/s")]
)
def test_rates_of_records(rate: float | None, text: str) -> None:
    assert record_rate_text(rate) == text


def test_rates_of_bytes_and_shares() -> None:
    assert byte_rate_text(1536.2) == "1.5 KiB/s"
    assert byte_rate_text(None) == UNKNOWN
    assert [share_text(share) for share in (None, 0.0, 0.004, 0.25, 1.0)] == [UNKNOWN, "0 %", "<1 %", "25 %", "100 %"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (40, "40 s ago"),
        (180, "3 min ago"),
        (5 * 3600, "5 h ago"),
        (12 * 86_400, "12 days ago"),
        (1000 * 86_400, "2 years ago"),
        (-180, "in 3 min"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert age_text(NOW_MS - seconds * 1000, now_ms=NOW_MS) == text


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -62_135_596_800_001, 2**63 - 1, 253_402_300_800_000])
def test_times_beyond_the_calendar_are_shown_as_numbers(timestamp_ms: int) -> None:
    assert str(timestamp_ms) in IN_UTC.text(timestamp_ms)
    assert str(timestamp_ms) in IN_UTC.exact(timestamp_ms)


def test_no_timestamp() -> None:
    assert IN_UTC.text(-1) == IN_UTC.text(None) == age_text(-1) == UNKNOWN
    assert IN_UTC.exact(-1) == "no timestamp"


@pytest.mark.parametrize(
    ("config", "value", "text"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("segment.bytes", "1048576", "1 MiB"),
        ("retention.ms", "-1", ""),
        ("retention.ms", "9" * 400, ""),
        ("min.insync.replicas", "100000", ""),
        ("cleanup.policy", "compact", ""),
    ],
)
def test_values_of_configs_in_words(config: str, value: str, text: str) -> None:
    assert value_in_words(config, value) == text


def test_names_in_addresses_cannot_leave_their_place() -> None:
    assert topic_path("../x?y#z") == "/topic/..%2Fx%3Fy%23z"
    assert group_path("a/b c") == "/groups/a%2Fb%20c"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "٣", "²", "99999999999", "0x1", " 1"])
def test_what_is_no_number_of_a_partition(text: str) -> None:
    with pytest.raises(PageMissing):
        partition_number(text)


@pytest.mark.parametrize(
    ("low", "high", "axis"),
    [
        (0, 0, (0, 1, 1)),
        (0, 3 * KIB, (0, 3 * KIB, KIB)),
        (0, 3 * KIB + 1, (0, 4 * KIB, 2 * KIB)),
        (5 * GIB, 5 * GIB, (0, 6 * GIB, 2 * GIB)),
        (43.2 * GIB, 43.6 * GIB, (43 * GIB, 43.75 * GIB, GIB // 4)),
    ],
)
def test_an_axis_of_bytes_has_round_steps(low: float, high: float, axis: tuple[float, float, float]) -> None:
    shown = size_axis(low, high)
    assert (shown["min"], shown["max"], shown["interval"]) == axis
    assert shown["min"] <= low
    assert shown["max"] >= high


def test_a_line_needs_two_values() -> None:
    assert sparkline([]) == sparkline([3.0]) == sparkline([None, 3.0]) == ""
    assert sparkline([0.0, None, 4.0]) == "M0.0,19.0 L80.0,1.0"


async def _nobody(*_: object) -> None:
    raise AssertionError("the rules are asked here, not the application")


def _refusal(host: str, *headers: tuple[str, str]) -> int | None:
    refused = GuardedApplication(_nobody, host=host).refusal([(k.encode(), v.encode()) for k, v in headers])
    return None if refused is None else refused[0]


@pytest.mark.parametrize("name", ["127.0.0.1:8090", "localhost:8090", "LOCALHOST", "[::1]:8090", "127.0.0.1"])
def test_a_console_on_loopback_is_found_under_its_names(name: str) -> None:
    assert _refusal("127.0.0.1", ("host", name)) is None


@pytest.mark.parametrize("name", ["evil.example", "10.0.0.1", "127.0.0.1.evil.example", "[::1", "", "a@127.0.0.1@b"])
def test_a_console_on_loopback_under_another_name(name: str) -> None:
    assert _refusal("127.0.0.1", ("host", name)) == 421


def test_one_host_and_no_other() -> None:
    assert _refusal("127.0.0.1") == 421
    assert _refusal("127.0.0.1", ("host", "localhost"), ("host", "localhost")) == 421
    assert _refusal("logs.example", ("host", "logs.example:8090")) is None
    assert _refusal("logs.example", ("host", "localhost:8090")) == 421


def test_a_console_on_every_address_is_found_by_numbers_not_by_foreign_names() -> None:
    for host in ("", "0.0.0.0", "::"):
        assert _refusal(host, ("host", "10.1.2.3:8090")) is None
        assert _refusal(host, ("host", "[fe80::1]:8090")) is None
        assert _refusal(host, ("host", "evil.example:8090")) == 421


def test_a_slow_name_service_does_not_hold_up_a_console_on_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    is_up, is_known = threading.Event(), threading.Event()

    class Names(HttpHosts):
        def _add_full_name(self) -> None:
            super()._add_full_name()
            is_known.set()

    def getfqdn() -> str:
        assert threading.current_thread() is not threading.main_thread()
        assert is_up.wait(60)
        return "machine.example"

    monkeypatch.setattr("duralog.console.access.HttpHosts", Names)

    monkeypatch.setattr(socket, "getfqdn", getfqdn)
    guarded = GuardedApplication(_nobody, host="")
    assert guarded.refusal([(b"host", b"localhost:8090")]) is None
    assert guarded.refusal([(b"host", b"machine.example")]) is not None
    is_up.set()
    assert is_known.wait(60)
    assert guarded.refusal([(b"host", b"machine.example")]) is None


def test_an_origin_must_be_the_host() -> None:
    host = ("host", "127.0.0.1:8090")
    assert _refusal("127.0.0.1", host, ("origin", "http://127.0.0.1:8090")) is None
    for origin in ("http://127.0.0.1:8091", "http://evil.example", "null", "http://[", ""):
        assert _refusal("127.0.0.1", host, ("origin", origin)) == 403
