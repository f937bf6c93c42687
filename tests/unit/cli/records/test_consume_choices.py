"""`duralog consume`: kcat's format and starts, several topics and patterns; addresses without a port."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import duralog
from duralog.cli.records.record_format import RecordFormat
from duralog.command_line import app
from duralog.format.record import Record, TimestampType
from duralog.operations.addresses import is_broker, with_ports


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("consume") / "data")
    with duralog.open(path) as store:
        for topic in ("orders", "pay.cards", "payments", "__hidden"):
            store.create_topic(topic, 2)
            for partition in range(2):
                store.partition(topic, partition).append(
                    [Record(key=b"k", value=b"%d" % number) for number in range(4)]
                )
    return path


def consume(data: str, *options: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["consume", data, *options], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


def test_the_last_records_of_each_partition(data: str) -> None:
    assert consume(data, "-t", "orders", "-o", "-1", "-f", r"%t %p %o %s\n") == "orders 0 3 3\norders 1 3 3\n"
    assert consume(data, "-t", "orders", "-p", "0", "-o", "end", "-f%s") == ""
    assert consume(data, "-t", "orders", "-p", "0", "-o", "beginning", "-f%s") == "0123"
    assert consume(data, "-t", "orders", "-p", "0", "-o", "2", "--format", "%s") == "23"
    assert "'soon' is not an offset: give a number, -N, beginning or end" in consume(
        data, "-t", "orders", "-o", "soon", code=2
    )


def test_several_topics_and_patterns(data: str) -> None:
    def topics(*options: str) -> list[str]:
        return consume(data, *options, "-p", "0", "-o", "-1", "-f", "%t ").split()

    assert topics("-t", "payments", "-t", "orders") == ["payments", "orders"]
    assert topics("-t", "pay*") == ["pay.cards", "payments"]
    assert topics("-t", "payments", "-t", "*") == ["payments", "orders", "pay.cards"]
    assert topics("-t", "__h*") == ["__hidden"]
    assert "no topic in" in consume(data, "-t", "x*", code=1)
    assert "did you mean orders?" in consume(data, "-t", "pay*", "-t", "order", code=1)
    assert "there is no partition 7 of orders" in consume(data, "-t", "orders", "-p", "7", code=1)


def test_a_partition_that_not_all_topics_of_a_pattern_have(tmp_path: Path) -> None:
    path = str(tmp_path)
    with duralog.open(path) as store:
        for topic, partitions in (("a", 1), ("b", 3)):
            store.create_topic(topic, partitions)
            store.partition(topic, partitions - 1).append([Record(value=b"v")])
    assert consume(path, "-t", "*", "-p", "2", "-f", "%t ") == "b "
    assert "there is no partition 2 of a in" in consume(path, "-t", "a", "-t", "*", "-p", "2", code=1)
    assert "there is no partition 7 of any topic in" in consume(path, "-t", "*", "-p", "7", code=1)


def test_dash_f_still_follows(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("duralog.cli.records.consumed_store.time.sleep", stop)
    assert "interrupted" in consume(data, "-t", "orders", "-f", code=130)


def test_a_format_is_the_only_style(data: str) -> None:
    assert "give one of --values, --json and --format" in consume(data, "-t", "orders", "-f", "%s", "--json", code=2)
    assert "%x in '%x' is unknown: there are %t %p" in consume(data, "-t", "orders", "-f", "%x", code=2)
    assert "% in 'x%' is unknown" in consume(data, "-t", "orders", "-f", "x%", code=2)


def test_what_a_format_writes() -> None:
    record = Record(
        key=None,
        value=b"\xff\n",
        offset=7,
        timestamp_ms=5,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=[("a", b"1"), ("b", None), ("c", b"")],
    )
    assert RecordFormat("%k|%K|%s|%S|%R|%h|%T|%%").render("t", 1, record) == (
        b"|-1|\xff\n|2|\x00\x00\x00\x02|a=1,b=NULL,c=|5|%"
    )
    assert RecordFormat(r"\t\r\n\\\q\x1f\011\65é").render("t", 1, record) == b"\t\r\n\\q\x1f\t" + b"A" + "é".encode()


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("localhost", "localhost:9092"),
        ("127.0.0.1", "127.0.0.1:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:19092", "[::1]:19092"),
        ("kafka1:", "kafka1:9092"),
        ("kafka1:9093,kafka2", "kafka1:9093,kafka2:9092"),
        ("kafka1:9093", "kafka1:9093"),
    ],
)
def test_a_broker_without_a_port_has_kafkas(place: str, address: str) -> None:
    assert is_broker(place)
    assert with_ports(place) == address


@pytest.mark.parametrize("place", ["data", "my.data", "a,b", "./localhost", "s3://bucket", "1.2.3", "x:y", "C:\\data"])
def test_names_of_directories_are_no_addresses(place: str) -> None:
    assert not is_broker(place)


def test_a_directory_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "localhost").mkdir()
    assert not is_broker("localhost")


def test_only_records_that_match(data: str) -> None:
    shown = ["--format", r"%t %p %o %s\n"]
    assert consume(data, "-t", "orders", "--where", "value = 2 or $ > 2", *shown) == (
        "orders 0 2 2\norders 0 3 3\norders 1 2 2\norders 1 3 3\n"
    )
    assert consume(data, "-t", "orders", "--where", "$ >= 1", "--limit", "2", *shown) == "orders 0 1 1\norders 0 2 2\n"
    assert consume(data, "-t", "orders", "--where", "key = none", *shown) == ""


def test_a_condition_that_cannot_be_read(data: str) -> None:
    assert "--where: expected a text or a number after >, found the end (at character 6)" in consume(
        data, "-t", "orders", "--where", "$.a >", code=2
    )
    assert "leave out --group" in consume("localhost:1", "-t", "orders", "--where", "x", "--group", "g", code=2)
