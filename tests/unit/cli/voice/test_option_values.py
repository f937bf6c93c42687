"""How times, ranges, keys and sizes are written on the command line."""

from __future__ import annotations

import pytest

from duralog.cli.voice.option_values import OffsetRange, parse_offsets
from duralog.config.byte_sizes import parse_bytes
from duralog.config.key_text import parse_hex, parse_key
from duralog.config.times import format_time, parse_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14 22:13:20.123", NOW_MS + 123),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14", 1_699_920_000_000),
        ("1700000000000", NOW_MS),
        ("-1", -1),
        ("90s", NOW_MS - 90_000),
        ("30m", NOW_MS - 1_800_000),
        ("2h", NOW_MS - 7_200_000),
        ("7d", NOW_MS - 604_800_000),
        ("1w", NOW_MS - 604_800_000),
        ("250ms", NOW_MS - 250),
        ("1969-12-31T23:59:59.999Z", -1),
        ("20241301", 20_241_301),
        ("30240501", 30_240_501),
        ("20240501T1200", 1_714_564_800_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text, now_ms=NOW_MS) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2h30", "-2h", "2023-13-01", "12.5", "99999999999999999999", "9" * 30 + "w"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_time(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("digits", "date", "milliseconds"),
    [
        ("20240501", "2024-05-01", "1970-01-01T05:37:20.501Z"),
        ("20240501113000", "2024-05-01T11:30:00", "2611-05-26T01:25:13.000Z"),
    ],
)
def test_digits_that_could_be_a_date(digits: str, date: str, milliseconds: str) -> None:
    with pytest.raises(ValueError, match=f"give the time as {date}, or the milliseconds as {milliseconds}"):
        parse_time(digits, now_ms=NOW_MS)
    assert parse_time(milliseconds, now_ms=NOW_MS) == int(digits)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (NOW_MS, "2023-11-14T22:13:20.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "-"),
        (-2, "1969-12-31T23:59:59.998Z"),
        (2**62, str(2**62)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times_as_text(milliseconds: int, text: str) -> None:
    assert format_time(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5:10", OffsetRange(5, 10)),
        ("5:", OffsetRange(5)),
        (":10", OffsetRange(0, 10)),
        (":", OffsetRange()),
        ("7", OffsetRange(7, 8)),
        ("3:3", OffsetRange(3, 3)),
    ],
)
def test_ranges_of_offsets(text: str, expected: OffsetRange) -> None:
    assert parse_offsets(text) == expected


@pytest.mark.parametrize("text", ["", "a:b", "10:5", "-1:5", "1:2:3", str(2**63)])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"offsets|ends before"):
        parse_offsets(text)


def test_keys() -> None:
    assert parse_key("order-1") == b"order-1"
    assert parse_key("é") == "é".encode()
    assert parse_key("0x00ff") == b"\x00\xff"
    assert parse_hex("00FF") == b"\x00\xff"
    with pytest.raises(ValueError, match="hexadecimal"):
        parse_key("0x0")


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64k", 65536), ("512MiB", 512 << 20), ("2g", 2 << 30), ("1 TB", 1 << 40), ("10b", 10)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "0", "1.5g", "1x", "9999999999g"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)
