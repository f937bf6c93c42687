"""`duralog serve` as a process: how it reports that it is ready, how it stops, and which files it leaves."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import duralog
from duralog.broker.ephemeral_folder import PREFIX
from duralog.cli.ready_file import ready_file
from duralog.command_line import app
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from oracle.kafka_server import reserved_ports
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

METADATA, CREATE_TOPICS = 3, 19
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
SECONDS = 60

Serve = Callable[..., "Process"]


class Process:
    """A broker in a process of its own."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duralog", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def port(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.fullmatch(r"duralog is ready on 127\.0\.0\.1:(\d+)\n", line)
        assert match is not None, (line, self.process.stderr and self.process.stderr.read())
        return int(match[1])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Returns the exit code, the rest of standard output, and standard error."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Process] = []

    def serve(*arguments: str, environment: dict[str, str] | None = None) -> Process:
        started.append(Process(*arguments, environment=environment))
        return started[-1]

    yield serve
    for each in started:
        if each.process.poll() is None:
            # Not killed: an ephemeral one would leave its directory.
            each.process.terminate()
        each.process.communicate(timeout=SECONDS)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """The command sets up logging and signals for its process, which is the test's."""
    logger = logging.getLogger("duralog")
    before = logger.handlers, logger.level, logger.propagate
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    logger.handlers, logger.level, logger.propagate = before
    for number, handler in handlers.items():
        signal.signal(number, handler)


def called(*arguments: str) -> tuple[int, str]:
    """Call the command in this process. Returns the exit code and standard error."""
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    return result.exit_code, result.stderr


def create_topic(port: int, name: str) -> None:
    with RawClient("127.0.0.1", port) as client:
        topics = [{"name": name, "num_partitions": 2, "replication_factor": 1}]
        answer = client.ask(CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 30_000})
        assert answer.topics[0].error_code == 0


def topic_names(port: int) -> list[str]:
    with RawClient("127.0.0.1", port) as client:
        return [topic.name for topic in client.ask(METADATA, 9, {"topics": None}).topics]


def test_free_ports_of_web_servers_are_named(serve: Serve) -> None:
    places = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--schema-registry", "0")
    process = serve("--ephemeral", *places)
    process.port()
    _, _, err = process.stop()
    assert re.search(r"INFO /metrics is served on 127\.0\.0\.1:[1-9]\d+\n", err)
    assert re.search(r"INFO the schema registry is served on 127\.0\.0\.1:[1-9]\d+\n", err)


class TestStoredConfigs:
    def test_a_directory_whose_configs_lock_out_all_clients(self, serve: Serve, tmp_path: Path) -> None:
        """As a broker that did not refuse them has left it: it starts, says what to do, and that helps."""
        data = str(tmp_path / "data")
        with duralog.open(data) as store:
            store.alter_configs_of(BROKER_RESOURCE, ALL_BROKERS, {"max.connections": "0"})
        process = serve("--data", data, "--listen", "127.0.0.1:0")
        port = process.port()
        assert topic_names(port) == []
        code, _, err = process.stop()
        assert code == 0
        (warning,) = (line for line in err.splitlines() if "WARNING" in line)
        assert "the stored config max.connections=0 is ignored" in warning
        assert warning.endswith(f"reset it with: duralog config reset 127.0.0.1:{port} max.connections")
        reset = CliRunner().invoke(app, ["config", "reset", data, "max.connections"])
        assert reset.exit_code == 0, reset.output
        process = serve("--data", data, "--listen", "127.0.0.1:0", "--override", "max.connections=1")
        port = process.port()
        with RawClient("127.0.0.1", port) as client, RawClient("127.0.0.1", port) as second:
            assert client.ask(METADATA, 9, {"topics": []}) is not None
            assert second.is_closed_by_peer()
        code, _, err = process.stop()
        assert (code, [line for line in err.splitlines() if "stored config" in line]) == (0, [])

    @pytest.mark.usefixtures("logging_as_before")
    @pytest.mark.parametrize(
        ("setting", "reason"),
        [
            ("max.connections=0", "every connection would be refused"),
            ("max.connections.per.ip.overrides=127.0.0.1:0", "allow no connection from 127.0.0.1"),
            ("socket.request.max.bytes=100", "too small for any request"),
            ("connections.max.idle.ms=0", "closed before a request arrives"),
        ],
    )
    def test_given_at_the_start(self, setting: str, reason: str, tmp_path: Path) -> None:
        code, err = called("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--override", setting)
        assert code == 1
        assert reason in err
        assert not (tmp_path / "data").exists()


class TestBeginningAndEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_ready_served_stopped_and_started_again(self, serve: Serve, tmp_path: Path, number: int) -> None:
        data, ready = tmp_path / "data", tmp_path / "ready"
        arguments = ("--data", str(data), "--listen", "127.0.0.1:0", "--ready-file", str(ready))
        process = serve(*arguments)
        port = process.port()
        create_topic(port, "orders")
        assert topic_names(port) == ["orders"]
        code, out, err = process.stop(number)
        assert (code, out) == (0, "")
        assert (data / CLEAN_SHUTDOWN).exists()
        assert not ready.exists()
        assert not [line for line in err.splitlines() if "ERROR" in line or "WARNING" in line]
        again = serve(*arguments)
        assert topic_names(again.port()) == ["orders"]
        assert not (data / CLEAN_SHUTDOWN).exists()

    def test_the_ready_file_is_there_whole_or_not_at_all(self, serve: Serve, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        process = serve("--ephemeral", "--listen", "127.0.0.1:0", "--ready-file", str(ready))
        port = process.port()
        wait_until(ready.exists)
        assert ready.read_text() == f"127.0.0.1:{port}\n"
        assert os.listdir(tmp_path) == ["ready"]
        process.stop()
        assert os.listdir(tmp_path) == []

    def test_a_killed_broker_leaves_no_marker_and_its_topics_are_there_again(
        self, serve: Serve, tmp_path: Path
    ) -> None:
        process = serve("--data", str(tmp_path), "--listen", "127.0.0.1:0")
        create_topic(process.port(), "orders")
        process.stop(signal.SIGKILL)
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert topic_names(serve("--data", str(tmp_path), "--listen", "127.0.0.1:0").port()) == ["orders"]

    def test_an_ephemeral_broker_leaves_nothing(self, serve: Serve, tmp_path: Path) -> None:
        process = serve("--ephemeral", "--listen", "127.0.0.1:0", environment={"TMPDIR": str(tmp_path)})
        create_topic(process.port(), "orders")
        assert len(os.listdir(tmp_path)) == 1
        assert process.stop()[0] == 0
        assert os.listdir(tmp_path) == []

    def test_what_a_killed_ephemeral_broker_leaves_is_removed_by_the_next(self, serve: Serve, tmp_path: Path) -> None:
        def begin() -> Process:
            process = serve("--ephemeral", "--listen", "127.0.0.1:0", environment={"TMPDIR": str(tmp_path)})
            create_topic(process.port(), "orders")
            return process

        others = {"duralog-of-somebody", f"{PREFIX}file", f"{PREFIX}link"}
        (tmp_path / "duralog-of-somebody").mkdir()
        (tmp_path / f"{PREFIX}file").touch()
        (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "duralog-of-somebody")
        begin().stop(signal.SIGKILL)
        (left,) = set(os.listdir(tmp_path)) - others
        running = begin()
        (of_running,) = set(os.listdir(tmp_path)) - others
        assert of_running != left
        begin().stop()
        assert set(os.listdir(tmp_path)) == {of_running, *others}
        assert running.stop()[0] == 0
        assert set(os.listdir(tmp_path)) == others

    def test_stopping_ends_connections_that_wait(self, serve: Serve) -> None:
        process = serve("--ephemeral", "--listen", "127.0.0.1:0")
        port = process.port()
        create_topic(port, "orders")
        with RawClient("127.0.0.1", port) as client:
            client.send_bytes(b"\0\0")
            assert process.stop()[0] == 0
            assert client.is_closed_by_peer()

    def test_every_line_on_standard_error_has_time_and_level(self, serve: Serve) -> None:
        process = serve("--ephemeral", "--listen", "127.0.0.1:0")
        with RawClient("127.0.0.1", process.port()) as client:
            client.send_bytes(b"\xff" * 8)
            assert client.is_closed_by_peer()
        _, _, err = process.stop()
        (line,) = [line for line in err.splitlines() if "WARNING" in line]
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING) .+"
        assert all(re.fullmatch(pattern, each) for each in err.splitlines())
        assert "the connection from 127.0.0.1 is closed: a request says it has -1 bytes" in line


class TestRetention:
    """A directory of old records, as a backup is. The first check of retention comes at once."""

    AT_ONCE = ("--override", "log.initial.task.delay.ms=0", "--override", "log.retention.check.interval.ms=20")

    @pytest.fixture
    def backup(self, tmp_path: Path) -> Path:
        data = tmp_path / "data"
        with duralog.open(data) as store:
            store.create_topic("orders", 1)
            store.partition("orders", 0).append([duralog.Record(value=b"v", timestamp_ms=1_577_836_800_000)] * 3)
        return data

    def test_old_records_are_held_and_a_warning_is_there_with_quiet_too(self, serve: Serve, backup: Path) -> None:
        process = serve(str(backup), "--listen", "127.0.0.1:0", "--quiet", *self.AT_ONCE)
        create_topic(process.port(), "later")
        code, _, err = process.stop()
        (line,) = err.splitlines()
        assert "WARNING" in line
        assert "orders (3 records, " in line
        for way in ("duralog retain", "log.retention.hours", "--apply-retention"):
            assert way in line
        assert code == 0
        with duralog.open(backup, read_only=True) as store:
            assert len([*store.partition("orders", 0).read(0)]) == 3

    @pytest.mark.parametrize("way", [("--apply-retention",), ("--override", "log.retention.hours=168")])
    def test_a_retention_that_was_chosen_applies(self, serve: Serve, backup: Path, way: tuple[str, ...]) -> None:
        process = serve(str(backup), "--listen", "127.0.0.1:0", "--quiet", *self.AT_ONCE, *way)
        process.port()
        wait_until(lambda: [path.name for path in backup.glob("orders-0/*.log")] == [f"{3:020}.log"])
        code, _, err = process.stop()
        assert (code, err) == (0, "")


@pytest.mark.usefixtures("logging_as_before")
class TestConfig:
    def test_a_server_properties_of_kafka(self, serve: Serve, tmp_path: Path) -> None:
        (reserved,) = reserved_ports(1)
        port = reserved.getsockname()[1]
        properties = tmp_path / "server.properties"
        properties.write_text(
            "process.roles=broker,controller\n"
            "node.id=7\n"
            "controller.quorum.bootstrap.servers=localhost:9093\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://:9093\n"
            "inter.broker.listener.name=PLAINTEXT\n"
            f"advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:9093\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
            f"log.dirs={tmp_path / 'logs'}\n"
            "num.partitions=3\n"
            "confluent.telemetry.enabled=true\n"
        )
        process = serve("--config", str(properties), "--override", "broker.rack=here")
        assert process.port() == port
        reserved.close()
        with RawClient("127.0.0.1", port) as client:
            answer = client.ask(METADATA, 9, {"topics": []})
            assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
                (7, "localhost", port, "here")
            ]
        code, _, err = process.stop()
        assert code == 0
        (warning,) = [line for line in err.splitlines() if "WARNING" in line]
        assert warning.endswith(
            "these configs have no effect here: confluent.telemetry.enabled, inter.broker.listener.name"
        )
        with duralog.open(tmp_path / "logs", read_only=True) as store:
            assert store.node_id == 7

    @pytest.mark.parametrize(
        ("setting", "reason"),
        [
            ("authorizer.class.name=com.example.Own", "empty or org.apache.kafka.metadata.authorizer.Standard"),
            ("super.users=root", "of the form User:NAME;User:NAME"),
            ("listeners=SSL://127.0.0.1:0", "a TLS listener needs listener.name.ssl.ssl.keystore.location"),
            ("listeners=PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:1", "does not say what SECOND is"),
            ("num.partitions=0", "must be a whole number"),
            ("no.such.config=1", "there is no config no.such.config"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, setting: str, reason: str) -> None:
        code, err = called("--data", str(tmp_path / "data"), "--override", setting)
        assert code == 1
        (line,) = err.splitlines()
        assert reason in line
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ((), "Give DIR or --data DIR, --ephemeral"),
            (("--ephemeral", "--data", "x"), "leave out DIR and --data"),
            (("--ephemeral", "--listen", "9092"), "not of the form HOST:PORT"),
            (("--ephemeral", "--listen", "127.0.0.1:70000"), "not of the form HOST:PORT"),
            (("--ephemeral", "--override", "x"), "not of the form NAME=VALUE"),
            (
                ("--ephemeral", "--listen", "127.0.0.1:0", "--override", "listeners=nonsense"),
                "--listen and --override listeners contradict each other: leave one of them out",
            ),
            (
                ("--ephemeral", "--listen", "127.0.0.1:0", "--override", "advertised.listeners=PLAINTEXT://a:1"),
                "or use --advertise instead",
            ),
            (
                ("--ephemeral", "--advertise", "a:1", "--override", "advertised.listeners=PLAINTEXT://a:1"),
                "--advertise and --override advertised.listeners contradict each other",
            ),
        ],
    )
    def test_wrong_calls(self, arguments: tuple[str, ...], reason: str) -> None:
        code, err = called(*arguments)
        assert code == 2
        assert reason in err

    @pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0"])
    @pytest.mark.parametrize("option", ["--metrics", "--schema-registry"])
    def test_small_servers_for_everyone(self, option: str, address: str) -> None:
        code, err = called("--ephemeral", "--listen", "127.0.0.1:0", option, address)
        assert code == 1
        assert f"give {option}-users FILE" in err
        assert "or say --insecure" in err

    def test_a_registry_past_the_access_control_lists(self) -> None:
        authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        code, err = called("--ephemeral", "--listen", "127.0.0.1:0", "--override", authorizer, "--schema-registry", "0")
        assert code == 1
        assert "bypass the access control lists: give --schema-registry-users FILE" in err

    def test_an_address_that_is_taken(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            code, err = called("--data", str(tmp_path), "--listen", address)
        assert code == 1
        assert f"cannot listen on {address}" in err
        assert "another process listens there: stop it, or give another port, such as --listen 127.0.0.1:0" in err

    def test_a_ready_file_that_a_killed_broker_left(self, tmp_path: Path) -> None:
        ready = tmp_path / "ready"
        ready.write_text("127.0.0.1:1\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            arguments = ("--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
            result = CliRunner().invoke(app, ["serve", *arguments, "--ready-file", str(ready)])
        assert result.exit_code == 1
        assert not ready.exists()

    def test_a_ready_file_of_a_broker_that_runs(self, tmp_path: Path) -> None:
        path = str(tmp_path / "ready")
        with ready_file(path, "127.0.0.1:1\n"):
            code, err = called("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--ready-file", path)
            assert (code, Path(path).read_text()) == (1, "127.0.0.1:1\n")
        assert "a running server uses this --ready-file" in err
        assert list(tmp_path.iterdir()) == []

    def test_a_ready_file_that_another_has_written_since_stays(self, tmp_path: Path) -> None:
        ready, other = tmp_path / "ready", tmp_path / "other"
        with ready_file(str(ready), "127.0.0.1:1\n"):
            other.write_text("127.0.0.1:2\n")
            other.replace(ready)
        assert ready.read_text() == "127.0.0.1:2\n"

    def test_a_ready_file_that_is_none(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        code, err = called("--ephemeral", "--listen", "127.0.0.1:0", "--ready-file", str(tmp_path / "pipe"))
        assert (code, (tmp_path / "pipe").is_fifo()) == (1, True)
        assert "is not a regular file" in err

    def test_a_ready_file_that_cannot_be_written(self, tmp_path: Path) -> None:
        ready = tmp_path / "missing" / "ready"
        result = CliRunner().invoke(app, ["serve", "--ephemeral", "-l", "127.0.0.1:0", "--ready-file", str(ready)])
        assert result.exit_code == 1
        assert "is ready" not in result.stdout
        assert f"{ready}." in result.stderr

    def test_a_directory_that_is_in_use(self, tmp_path: Path) -> None:
        with duralog.open(tmp_path):
            code, err = called("--data", str(tmp_path), "--listen", "127.0.0.1:0")
        assert code == 1
        (line,) = err.splitlines()
        assert f"{tmp_path} is in use by " in line
        assert "stop it first" in line

    def test_another_address_for_clients(self, serve: Serve) -> None:
        process = serve("--ephemeral", "--listen", "127.0.0.1:0", "--advertise", "kafka.example:19092")
        with RawClient("127.0.0.1", process.port()) as client:
            (node,) = client.ask(METADATA, 9, {"topics": []}).brokers
        assert (node.host, node.port) == ("kafka.example", 19092)


def test_neither_arrow_nor_spark_are_loaded() -> None:
    """They would double the time to start and the memory."""
    code = (
        "import sys; from duralog.broker.broker import Broker\n"
        "with Broker(None) as broker: broker.run_pending()\n"
        "print([name for name in ('pyarrow', 'pyspark', 'hypothesis', 'prometheus_client') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert found.stdout == "[]\n"
