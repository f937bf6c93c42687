"""The common mistakes: each is one sentence that says what to do next, with the right exit code and no traceback."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog import Record
from duralog.client.unknown_names import unknown_partition, unknown_topic
from duralog.command_line import app
from duralog.config.error_text import describe
from duralog.errors import MissingExtra
from duralog.storage.store import Store


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes") / "data"
    with Store(str(path)) as store:
        store.create_topic("orders", 3, {})
        store.create_topic("customers", 1, {"cleanup.policy": "compact"})
        store.partition("orders", 0).append([Record(value=b"v")])
    (path.parent / "file").write_text("")
    (path.parent / "empty").mkdir()
    return path


def told(*arguments: object, code: int) -> str:
    """What is said on standard error, in one line."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.startswith("duralog: error: ")
        assert result.stderr.count("\n") == 1
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["verify", "repair", "compact", "retain", "topic list", "group list", "stats"])
def test_a_place_that_is_not_there(directory: Path, command: str) -> None:
    missing = directory.parent / "missing"
    assert f"{missing}: there is no such directory: check the path" in told(*command.split(), missing, code=1)
    assert "this is a file, not a directory: give" in told(*command.split(), directory.parent / "file", code=1)
    assert not missing.exists()


@pytest.mark.parametrize("command", ["topic create -t new", "serve --listen 127.0.0.1:0"])
def test_a_file_where_a_directory_would_be_made(directory: Path, command: str) -> None:
    assert "this is a file, not a directory: give" in told(*command.split(), directory.parent / "file", code=1)


@pytest.mark.parametrize(
    "command",
    ["verify", "repair", "compact", "retain", "stats", "doctor", "serve", "lookup --offset 0", "job verify"],
)
def test_a_broker_where_a_directory_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is the address of a broker" in told(*command.split(), "127.0.0.1:9092", code=2)
    assert [*tmp_path.iterdir()] == [], "no directory is made of it"


@pytest.mark.parametrize(
    "command",
    [
        *("topic create -t t", "produce -t t -v v", "serve --listen 127.0.0.1:0"),
        *("doctor", "verify", "compact", "stats", "console"),
    ],
)
def test_a_url_where_a_directory_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert "'s3://bucket/logs' is a URL" in told(*command.split(), "s3://bucket/logs", code=2)
    assert [*tmp_path.iterdir()] == [], "no directory is made of it"


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "-t", "\udcff"),
        ("topic", "create", "-t", "t", "-c", "retention.ms=\udcff"),
        ("topic", "list", "-t", "\udcff"),
        ("produce", "-t", "\udcff", "-v", "v"),
        ("produce", "-t", "t", "-v", "v", "-H", "\udcff=v"),
        ("consume", "-t", "t", "-g", "\udcff"),
        ("group", "describe", "-g", "\udcff"),
    ],
    ids=lambda words: " ".join(words).encode("unicode_escape").decode(),
)
def test_names_that_are_no_text_reach_no_client(words: Sequence[str]) -> None:
    assert "it must be UTF-8" in told(*words, "--data", "127.0.0.1:1", code=2)


def test_a_job_reports_it_before_it_starts_spark(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.cli.voice.engine.on_spark", None)
    assert "no such directory: check the path" in told("job", "verify", directory.parent / "missing", code=1)


@pytest.mark.parametrize(
    "command",
    [
        ["verify"],
        ["retain", "--dry-run"],
        ["compact", "--explain"],
        ["lookup", "-o", "0"],
        ["topic", "list"],
        ["topic", "describe"],
        ["topic", "alter", "-c", "retention.ms=1"],
        ["topic", "delete", "--yes"],
        ["consume"],
        ["produce", "-v", "x"],
        ["repair", "--dry-run"],
        ["dump"],
        ["stats"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_slip_in_a_topics_name(directory: Path, command: Sequence[str]) -> None:
    assert "did you mean orders?" in told(*command, "-d", directory, "-t", "ordres", code=1)


@pytest.mark.parametrize(
    "command",
    [["verify"], ["lookup", "-o", "0"], ["consume"], ["produce", "-v", "x"], ["repair", "-n"], ["dump"], ["stats"]],
    ids=lambda command: command[0],
)
def test_a_partition_that_is_not_there(directory: Path, command: Sequence[str]) -> None:
    said = told(*command, directory, "-t", "orders", "-p", 7, code=1)
    assert "there is no partition 7 of orders" in said
    assert "there are 0 to 2" in said


def test_names_that_are_not_near() -> None:
    assert str(unknown_topic("data", "x", ["orders", "customers"])) == (
        "there is no topic x in data: there are customers, orders"
    )
    assert str(unknown_topic("data", "Orders", ["orders"])).endswith("did you mean orders?")
    assert str(unknown_topic("data", "codecs", ["orders"])).endswith("there is only orders")
    assert "duralog topic create data --topic x" in str(unknown_topic("data", "x", ["__consumer_offsets"]))
    assert "duralog topic list data" in str(unknown_topic("data", "zzz", [f"topic-{n}" for n in range(50)]))
    assert str(unknown_partition("data", "orders", 5, [0])).endswith("there is only 0")
    assert str(unknown_partition("data", None, 5, [0, 4])).endswith("of any topic in data: there are 0, 4")


def test_what_is_not_said(directory: Path) -> None:
    assert "choose a topic (customers, orders)" in told("lookup", directory, "-o", 0, code=1)
    assert "choose a partition" in told("lookup", directory, "-t", "orders", "-o", 0, code=1)
    assert "give one of --offset, --time and --key" in told("lookup", directory, "-t", "orders", code=2)
    assert "--yes" in told("topic", "delete", directory, "-t", "orders", code=2)
    assert "--topic" in told("consume", directory, code=2)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["lookup", "-t", "orders", "-p", "0", "--time", "yesterday"], "an age like 90s"),
        (["consume", "-t", "orders", "--time", "12h30"], "ISO 8601"),
        (["consume", "-t", "orders", "-o", "abc"], "--offset"),
        (["dump", "--offsets", "7-9"], "give A:B"),
        (["dump", "--key-hex", "xyz"], "hexadecimal"),
        (["dump", "--to", "out.xlsx"], ".parquet"),
        (["produce", "-t", "orders", "-v", "x", "--codec", "zip"], "none, gzip, snappy, lz4, zstd"),
        (["produce", "-t", "orders", "--tombstone"], "--key"),
        (["compact", "--map-bytes", "many"], "--map-bytes"),
        (["topic", "create", "-t", "x", "-c", "retention.ms"], "NAME=VALUE"),
        (["verify", "--topics", "orders"], "--topic"),
    ],
)
def test_values_that_cannot_be(directory: Path, words: list[str], advice: str) -> None:
    assert advice in told(*words, "--data", directory, code=2)


def test_a_command_with_a_slip() -> None:
    assert "Did you mean 'verify'?" in told("verfy", code=2)


def test_configs_and_topics(directory: Path) -> None:
    def create(*words: str) -> str:
        return told("topic", "create", directory, *words, code=1)

    assert "did you mean retention.ms" in create("-t", "x", "-c", "retention.mss=5")
    assert "it must be a whole number" in create("-t", "x", "-c", "retention.ms=soon")
    assert "letters, digits" in create("-t", "bad name")
    said = create("-t", "orders")
    assert "the topic orders exists already" in said
    assert "topic alter" in said
    assert "--config cleanup.policy=compact" in told("compact", directory, "-t", "orders", code=1)
    assert "check --server-properties" in told("retain", directory, "--server-properties", "none", "-n", code=1)
    properties = directory.with_name("server.properties")
    properties.write_text("log.dirs=a\\u12")
    for command in (("retain", "-n"), ("serve",)):
        said = told(*command, directory, "--server-properties", properties, code=1)
        assert f"{properties}: position 0" in said
    assert "its offsets are 0 to 0" in told("lookup", directory, "-t", "orders", "-p", 0, "-o", 99, code=1)
    assert "give the log directory that it is in" in told("topic", "list", directory / "orders-0", code=1)
    assert "duralog group list" in told("group", "describe", directory, "-g", "nobody", code=1)


def test_a_directory_that_another_process_has(directory: Path) -> None:
    with Store(str(directory)):
        said = told("produce", directory, "-t", "orders", "-v", "x", code=1)
    assert "is in use by" in said
    assert "stop it first" in said


def test_a_broker_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = told("topic", "list", address, code=1)
    assert f"{address}: no broker answers there: check the address" in said


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("confluent_kafka", ["topic", "list", "localhost:1"], "kafka"),
        ("pyspark", ["job", "verify"], "spark"),
    ],
)
def test_an_extra_that_is_missing(
    directory: Path, module: str, words: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == module or name == "duralog.spark.session":
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    said = told(*words, *([] if "localhost:1" in words else [directory]), code=1)
    assert f"pip install 'duralog[{extra}]'" in said


def test_the_broker_names_its_extra(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duralog.cli.serve.find_spec", lambda name: None if name == "kio" else object())
    assert told("serve", directory, code=1).endswith(str(MissingExtra("to serve clients", "kio", extra="broker")))


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "run it as the user"),
        (errno.EROFS, "mounted read-only"),
        (errno.ENOSPC, "free some space"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOTDIR, "give a directory"),
        (errno.ENOENT, "check the path"),
    ],
)
def test_what_the_system_refuses(number: int, advice: str) -> None:
    said = describe(OSError(number, os.strerror(number), "/data/\x1borders-0"))
    assert said.startswith("/data/\\x1borders-0: ")
    assert advice in said


@pytest.mark.parametrize(
    "command",
    ["compact", "retain", "repair", "repair --restore", "topic delete --yes -t x", "topic alter -t x", "produce -t x"],
)
def test_a_directory_that_is_none_of_a_log_does_not_become_one(tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    options = ["-c", "retention.ms=1"] if "alter" in command else ["--value", "v"] if "produce" in command else []
    result = CliRunner().invoke(app, [*command.split(), str(tmp_path), *options])
    assert result.exit_code == 1
    assert f"{tmp_path}: no log files in here" in result.stderr
    assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize(
    "command", ["stats", "consume -t orders", "group list", "topic list", "lookup --offset 0 -t orders -p 0"]
)
def test_warnings_of_the_store_have_the_same_form(directory: Path, tmp_path: Path, command: str) -> None:
    copy = tmp_path / "a\x1b[31mb"
    shutil.copytree(directory, copy)
    (copy / "log-start-offset-checkpoint").write_bytes(b"\xff")
    told = CliRunner().invoke(app, [*command.split(), str(copy)]).stderr
    assert "duralog: warning: ignored a damaged checkpoint: " in told
    assert "\x1b" not in told
    assert all(line.startswith("duralog: ") for line in told.splitlines())


@pytest.mark.parametrize(
    "command", ["repair", "repair --dry-run", "retain --retention-ms 1", "topic delete -t orders -y"]
)
def test_a_locked_directory_is_reported_with_its_process(tmp_path: Path, command: str) -> None:
    with Store(str(tmp_path)) as store:
        store.create_topic("orders", 1, {})
        said = told(*command.split(), tmp_path, code=1)
    assert f"{tmp_path} is in use by " in said
    assert "stop it first" in said


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("serve data --port 9093", "No such option: --port: give --listen HOST:PORT"),
        ("topic list --bootstrap-server localhost:9092", "give the broker's HOST:PORT as the argument"),
        ("consume data -t orders --from-beginning", "it begins there unless --offset, --time, --tail or --group is"),
        ("topic --create data -t orders", "create is a command: leave out the hyphens"),
        ("verify --log-dir data", "give the directory as the argument"),
        ("topic delete data -t orders --force", "give --yes"),
        ("serve data --lisen x", "Possible options: --listen"),
    ],
)
def test_an_option_of_another_tool(command: str, advice: str) -> None:
    assert advice in told(*command.split(), code=2)


def test_no_advice_that_the_command_does_not_take() -> None:
    assert "--listen" not in told(*["produce", "localhost", "-t", "orders", "--port", "9093"], code=2)
    assert "--yes" not in told(*["compact", "data", "--force"], code=2)


@pytest.mark.parametrize(
    "command", ["topic create -t t", "topic alter -t orders -c retention.ms=1", "produce -t orders -v v"]
)
def test_a_directory_of_a_running_broker_is_changed_through_it(directory: Path, command: str) -> None:
    with Store(str(directory)):
        assert "To do this through the running broker, give its HOST:PORT" in told(*command.split(), directory, code=1)
