"""`duralog produce` and `duralog consume` on a directory; tests/broker has them on a broker."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import pytest

from duralog.cli.records import record_input
from duralog.cli.records.consumed_store import from_store
from duralog.client.consuming import ConsumeRequest
from duralog.format.murmur2 import partition_of_key
from duralog.format.record import Record
from duralog.storage.store import Store
from tests.support.commands import objects, run
from tests.support.places import GOLDEN


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store(str(tmp_path / "data")) as store:
        store.create_topic("t", 3)
        store.create_topic("one", 1)
    return tmp_path / "data"


def test_lines_become_records(directory: Path) -> None:
    written = objects("produce", directory, "-t", "one", given="first\n\nthird without a newline")
    assert written == [
        {"kind": "written", "topic": "one", "partition": 0, "records": 3, "first_offset": 0, "last_offset": 2}
    ]
    assert run("consume", directory, "-t", "one", "--values").stdout == "first\n\nthird without a newline\n"


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_kafkas_own_topics_are_not_written_to(directory: Path, topic: str) -> None:
    result = run("produce", directory, "--topic", topic, "--key", "k", "--value", "v", code=1)
    assert f"{topic} is an internal topic of Kafka" in result.stderr


def test_keys_go_where_kafkas_clients_put_them(directory: Path) -> None:
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(50))
    run("produce", directory, "-t", "t", "--key-separator", ":", given=lines)
    shown = objects("consume", directory, "-t", "t")
    assert len(shown) == 50
    for record in shown:
        assert record["partition"] == partition_of_key(record["key"].encode(), 3)
        assert record["value"] == record["key"].replace("key", "value")


def test_one_record_with_everything(directory: Path) -> None:
    run(
        "produce",
        directory,
        "-t",
        "one",
        "-k",
        "k",
        "-v",
        "0x00ff",
        "-H",
        "a=b",
        "-H",
        "c=0x01",
        "--time",
        "1700000000000",
    )
    run("produce", directory, "-t", "one", "-k", "k", "--tombstone", "--codec", "zstd")
    first, second = objects("consume", directory, "-t", "one")
    assert first == {
        "topic": "one",
        "partition": 0,
        "offset": 0,
        "timestamp": 1700000000000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value_base64": "AP8=",
        "headers": [{"key": "a", "value": "b"}, {"key": "c", "value": "\x01"}],
    }
    assert second["key"] == "k"
    assert second["value"] is None
    assert "\x1b" not in run("consume", directory, "-t", "one").stdout


def test_the_json_of_one_is_the_input_of_the_other(directory: Path) -> None:
    run("produce", directory, "-t", "t", "-k", "a", "-v", "0xff00", "-H", "h=0xfe")
    run("produce", directory, "-t", "t", "-k", "b", "--tombstone")
    piped = run("consume", directory, "-t", "t", "--json").stdout
    run("topic", "create", directory, "-t", "copy", "--partitions", 3)
    run("produce", directory, "-t", "copy", "--from-json", given=piped)
    original, copy = objects("consume", directory, "-t", "t"), objects("consume", directory, "-t", "copy")
    assert [{**record, "topic": "t"} for record in copy] == original


def test_documents_as_values(directory: Path) -> None:
    run("produce", directory, "-t", "one", "--from-json", given='{"key": "k", "value": {"ä": [1, 2]}}\n')
    (record,) = objects("consume", directory, "-t", "one")
    assert record["value"] == '{"ä":[1,2]}'


def test_documents_as_values_keep_the_digits_of_their_numbers(directory: Path) -> None:
    numbers = '{"a":0.10000000000000000001,"b":[1E+400,-2.50],"c":12345678901234567890123}'
    run("produce", directory, "-t", "one", "--from-json", given=f'{{"value": {numbers}}}\n')
    (record,) = objects("consume", directory, "-t", "one")
    assert record["value"] == numbers


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"headers": [{"key": "\\ud800"}]}', "has half a character"),
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a JSON object"),
        ('{"vlaue": "x"}', "line 2: unknown field 'vlaue'"),
        ('{"value_base64": "?"}', "line 2: value_base64: not base64"),
        ('{"partition": "0"}', "line 2: partition: expected a number"),
        ('{"timestamp": -5}', "line 2: timestamp: expected a number"),
        ('{"timestamp": 1.5}', "line 2: timestamp: expected a number from 0 on, found"),
        ('{"value": {"a": NaN}}', "line 2: not JSON: NaN is not a number"),
        ('{"headers": {"a": "b"}}', "line 2: headers: expected a list"),
        ('{"headers": [{"value": "b"}]}', "line 2: headers: expected a list"),
        ('{"partition": 7}', "there is no partition 7"),
    ],
)
def test_a_line_that_is_no_record(directory: Path, line: str, complaint: str) -> None:
    result = run("produce", directory, "-t", "one", "--from-json", given=f'{{"value": "good"}}\n{line}\n', code=1)
    assert complaint in result.stderr


def test_what_came_before_a_bad_line_is_written(directory: Path) -> None:
    lines = "a=1\nb=2\nnothing\nc=3\n"
    result = run("produce", directory, "-t", "one", "--key-separator", "=", given=lines, code=1)
    assert "line 3: no '='" in result.stderr
    assert result.stdout == "one-0: 2 records, offsets 0 to 1\n"
    assert [record["value"] for record in objects("consume", directory, "-t", "one")] == ["1", "2"]


def test_what_came_before_a_partition_that_is_not_there_is_written(directory: Path) -> None:
    lines = '{"value": "1", "partition": 2}\n{"value": "2", "partition": 7}\n{"value": "3", "partition": 2}\n'
    result = run("produce", directory, "-t", "t", "--from-json", "--json", given=lines, code=1)
    assert "there is no partition 7 of t" in result.stderr
    (written,) = map(json.loads, result.stdout.splitlines())
    assert (written["partition"], written["records"], written["last_offset"]) == (2, 1, 0)
    assert [record["value"] for record in objects("consume", directory, "-t", "t")] == ["1"]


def test_what_came_before_a_read_that_fails_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if line := super().readline(size):
                return line
            raise OSError(errno.EIO, "Input/output error")

    plain = record_input.LineFormat(key=None, key_separator=None, headers=(), timestamp_ms=None, from_json=False)
    monkeypatch.setattr(record_input._ReadAhead, "is_empty", False)  # The error is there before the group is given.
    groups = iter(record_input.RecordLines("-", Failing(b"one\ntwo\n"), plain))
    assert [record.value for _, record in next(groups)] == [b"one", b"two"]
    with pytest.raises(OSError, match="Input/output error"):
        next(groups)


@pytest.mark.parametrize(
    "options",
    [
        ("-v", "x", "--tombstone", "-k", "k"),
        ("--tombstone",),
        ("-v", "x", "--from-json"),
        ("-k", "k", "--key-separator", ":"),
        ("--key-separator", ""),
        ("-H", "no-equals"),
        ("--time", "yesterday"),
    ],
)
def test_options_that_do_not_go_together(directory: Path, options: tuple[str, ...]) -> None:
    run("produce", directory, "-t", "one", *options, given="", code=2)


def test_documents_with_half_characters_stay_what_they_were(directory: Path) -> None:
    run("produce", directory, "-t", "one", "--from-json", given='{"value": {"a": "\\ud800"}}\n')
    (record,) = objects("consume", directory, "-t", "one")
    assert record["value"] == '{"a":"\\ud800"}'


def test_records_cannot_move_the_cursor_of_a_terminal(directory: Path) -> None:
    run("produce", directory, "-t", "one", given="a\x1b[1m\x7f\x9b31m\u202e\U000e0001b\n")
    assert r'"a\u001b[1m\u007f\u009b31m\u202e\udb40\udc01b"' in run("consume", directory, "-t", "one").stdout


@pytest.mark.slow
def test_a_command_that_fails_does_not_wait_for_its_input(directory: Path) -> None:
    command = [sys.executable, "-c", "from duralog.command_line import main; main()"]
    arguments = ["produce", str(directory), "--topic", "one", "--partition", "99"]
    with subprocess.Popen([*command, *arguments], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a line\n")
        process.stdin.flush()
        assert process.wait(60) == 1
        assert process.stderr.read().startswith(b"duralog: error: there is no partition 99")


def test_what_is_read_ahead_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "_READ_AHEAD_BYTES", 100)
    lines = record_input._ReadAhead()
    for _ in range(2):
        lines.put(bytes(60))
    is_there = threading.Event()

    def put() -> None:
        lines.put(b"third")
        is_there.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not is_there.wait(0.05)
    assert lines.get() == bytes(60)
    assert is_there.wait(60)
    thread.join()
    assert [lines.get(), lines.get(), lines.is_empty] == [bytes(60), b"third", True]


def test_a_topic_that_is_not_there(directory: Path, tmp_path: Path) -> None:
    assert "nothing" in run("produce", directory, "-t", "nothing", given="x\n", code=1).stderr
    assert "nothing" in run("consume", directory, "-t", "nothing", code=1).stderr
    assert "no such directory" in run("consume", tmp_path / "no", "-t", "t", code=1).stderr
    run("produce", directory, "-t", "one", "--codec", "brotli", given="x\n", code=2)


def test_where_to_begin_and_where_to_stop(directory: Path) -> None:
    with Store(str(directory)) as store:
        store.partition("one", 0).append(
            [Record(value=b"%d" % number, timestamp_ms=1_700_000_000_000 + number) for number in range(10)]
        )

    def values(*options: object) -> list[int]:
        return [int(line) for line in run("consume", directory, "-t", "one", "--values", *options).stdout.splitlines()]

    assert values() == list(range(10))
    assert values("--offset", 7) == [7, 8, 9]
    assert values("--offset", 10) == []
    assert values("--time", 1_700_000_000_004) == list(range(4, 10))
    assert values("--time", "2100-01-01") == []
    assert values("--tail", 2) == [8, 9]
    assert values("--limit", 3) == [0, 1, 2]
    assert values("--limit", 0) == []
    assert "past the end" in run("consume", directory, "-t", "one", "-p", 0, "--offset", 11, code=1).stderr
    run("consume", directory, "-t", "one", "--offset", 1, "--tail", 1, code=2)
    run("consume", directory, "-t", "one", "--values", "--json", code=2)
    run("consume", directory, "-t", "one", "--group", "g", code=2)


def test_transactions_of_kafka() -> None:
    everything = objects("consume", GOLDEN / "store", "-t", "txn")
    committed = objects("consume", GOLDEN / "store", "-t", "txn", "--committed")
    assert 0 < len(committed) < len(everything)


def test_following_a_directory_that_grows(directory: Path) -> None:
    """What is appended, and partitions that are added, appear without opening anything again."""
    with Store(str(directory)) as store:
        store.partition("one", 0).append([Record(value=b"old")])
        waits = 0

        def grow() -> None:
            nonlocal waits
            waits += 1
            if waits == 1:
                store.partition("one", 0).append([Record(value=b"new")])
            elif waits == 2:
                store.add_partitions("one", 2)
                store.partition("one", 1).append([Record(value=b"beside")])

        request = ConsumeRequest(
            topics=["one"],
            partition=None,
            offset=None,
            timestamp_ms=None,
            tail=None,
            group=None,
            committed=False,
            follow=True,
        )
        records = from_store(str(directory), request, before_waiting=grow)
        seen = [next(records) for _ in range(3)]
    assert [(number, record.offset, record.value) for _, number, record in seen] == [
        (0, 0, b"old"),
        (0, 1, b"new"),
        (1, 0, b"beside"),
    ]


def test_an_address_is_not_taken_for_a_directory() -> None:
    assert "no broker answers" in run("consume", "127.0.0.1:1", "-t", "t", code=1).stderr
