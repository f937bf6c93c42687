"""A real Kafka broker on a given log directory, for as long as a test needs it.

It is its own controller and the only voter, listens on loopback only, on ports that were free, and takes the directory
as it is: `format_directory` makes a new one. `stop` ends it cleanly, `kill` as a crash would. Questions go through a
`KafkaProcess`, whose JVM runs Kafka's own clients.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from duralog.format.filenames import META_PROPERTIES, MetadataSnapshotFile
from duralog.format.properties import decode_meta_properties
from oracle.kafka_jars import class_archive
from oracle.kafka_process import Json, KafkaProcess, KafkaRefusedError
from oracle.raw_produce import Produced, produce_batch
from oracle.server_process import ServerProcess

CLUSTER_ID = "duralog-test-cluster-A"
_FIRST_SNAPSHOT = f"__cluster_metadata-0/{MetadataSnapshotFile(0, 0).name}"
QUICK_TO_START = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx512m")
AS_KAFKA_STARTS = ("java", "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The first is for tests. The second has the memory and the collector of Kafka's own start script, for benchmarks."""
_LOADED_AGAIN = "because the partition is not online or is no longer the leader"
_BUSY_MACHINE = (
    "Exceptionally slow controller event",
    "controller event queue overloaded",
    "channel manager timed out before sending the request",
)
_NO_CONTROLLER_YET = "errors.NotControllerException"
"""The reason of an error is in the line after it."""


class KafkaServer(ServerProcess):
    """A running broker. Use it as a context manager: the end of the block stops it."""

    def __init__(
        self,
        kafka: KafkaProcess,
        directory: Path,
        *,
        configs: Mapping[str, object] | None = None,
        java: Sequence[str] | None = None,
    ) -> None:
        """Start a broker, in a JVM that starts quickly by default. It answers once `topics` or another returns."""
        super().__init__("Kafka")
        self._kafka = kafka
        self._reserved = reserved_ports(2)
        broker_port, controller_port = (each.getsockname()[1] for each in self._reserved)
        self.address = ("127.0.0.1", broker_port)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        settings = server_settings(directory, node_id_of(directory), broker_port, controller_port) | dict(configs or {})
        properties = self.folder / "server.properties"
        write_properties(properties, settings)
        if java is None:
            java = (*QUICK_TO_START, *archived_classes(kafka))
        self.start([*java, "-cp", kafka.class_path, "kafka.Kafka", str(properties)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, traceback)
        finally:
            for each in self._reserved:
                each.close()

    @property
    def errors(self) -> list[str]:
        """What went wrong. Not that a coordinator was loading when the start gave its partition a new epoch.

        That happens on a directory that another broker served before: Kafka loads the partition again at once. Nor that
        the machine was busy, nor that the broker in this process asked before the controller in it was elected.
        """
        lines = self.log.splitlines()
        told = [line for line, reason in pairwise([*lines, ""]) if _NO_CONTROLLER_YET not in reason]
        errors = [line for line in told if line.startswith(("ERROR ", "FATAL "))]
        return [line for line in errors if not any(each in line for each in (_LOADED_AGAIN, *_BUSY_MACHINE))]

    def topics(self) -> Json:
        """Each topic's `id`, number of `partitions` and own `configs`, by name, once every partition has a leader."""
        topics: Json = self._ask("topics")["topics"]
        return topics

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._ask("create", topic=name, partitions=partitions, configs=dict(configs or {}))

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Json],
        settings: Mapping[str, str] | None = None,
        *,
        transaction: str = "",
    ) -> list[int | str]:
        """Append records (`key` and `value` in hex, perhaps `timestamp`). Returns each one's offset, or the refusal.

        As a transaction that ends with "commit", with "abort", or stays "open"; `settings` then has `transactional.id`.
        """
        answer = self._ask(
            "produce",
            topic=topic,
            partition=partition,
            records=list(records),
            settings=dict(settings or {}),
            transaction=transaction,
        )
        offsets: list[int | str] = answer["offsets"]
        return offsets

    def produce_batch(self, topic: str, partition: int, batch: bytes) -> Produced:
        """Send a batch as it is, whatever its producer id and sequence: no client of Kafka's does that."""
        self._wait_until_it_listens()
        return produce_batch(self.address, topic, partition, batch)

    def consume(self, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> Json:
        """The partition's `start` and `end` offsets and all its `records`, keys and values in hex."""
        return self._ask("consume", topic=topic, partition=partition, isolation=isolation)

    def offsets(self, topic: str, partition: int, *asked: str | int) -> list[Json]:
        """`offset`, `timestamp` and `leader_epoch` for each of "earliest", "latest", "max_timestamp", or a time."""
        answers: list[Json] = self._ask("offsets", topic=topic, partition=partition, asked=asked)["offsets"]
        return answers

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Let a partition start at this offset. Returns where it starts now."""
        start: int = self._ask("delete_records", topic=topic, partition=partition, before_offset=before_offset)["start"]
        return start

    def producers(self, topic: str, partition: int) -> dict[int, Json]:
        """What the partition remembers of each producer, by its id."""
        answer = self._ask("producers", topic=topic, partition=partition)["producers"]
        return {int(producer_id): state for producer_id, state in answer.items()}

    def _ask(self, command: str, **arguments: object) -> Json:
        self._wait_until_it_listens()
        return self._kafka.ask(command=command, bootstrap=self.bootstrap, **arguments)

    def _wait_until_it_listens(self) -> None:
        """So that clients need not try in vain, and a broker that gave up is told of at once."""
        try:
            self.wait_for(self._listens, every_seconds=0.05)
        except RuntimeError as error:
            raise KafkaRefusedError(str(error)) from None

    def _listens(self) -> bool | None:
        with socket.socket() as probe:
            return True if probe.connect_ex(self.address) == 0 else None


def archived_classes(kafka: KafkaProcess) -> tuple[str, ...]:
    """The option of `java` that lets a broker with this class path start in two thirds of the time."""
    return (f"-XX:SharedArchiveFile={class_archive(lambda path: _archive_classes(kafka, path))}",)


def _archive_classes(kafka: KafkaProcess, path: Path) -> None:
    """By a broker that is used a little. Its JVM writes the file when it ends."""
    with tempfile.TemporaryDirectory(prefix="duralog-kafka-") as work:
        directory = Path(work) / "data"
        format_directory(kafka, directory)
        java = (*QUICK_TO_START, f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable")
        with KafkaServer(kafka, directory, java=java) as server:
            server.create_topic("t")
            server.produce("t", 0, [{"key": "00", "value": "00"}])
            server.consume("t", 0)


def format_directory(kafka: KafkaProcess, directory: Path, *, node_id: int = 1) -> None:
    """Make a new log directory with Kafka's own tool."""
    with tempfile.TemporaryDirectory(prefix="duralog-kafka-") as work:
        properties = Path(work) / "server.properties"
        write_properties(properties, server_settings(directory, node_id, *free_ports(2)))
        kafka.ask(command="format", arguments=["format", "-t", CLUSTER_ID, "-c", str(properties)])


def server_settings(directory: Path, node_id: int, broker_port: int, controller_port: int) -> dict[str, object]:
    """The least that a broker needs to run alone on a directory, without waiting for anyone."""
    controller = f"127.0.0.1:{controller_port}"
    if (directory / _FIRST_SNAPSHOT).exists():
        # The voters are in the metadata: the directory was formatted for a quorum that can change.
        quorum = {"controller.quorum.bootstrap.servers": controller}
    else:
        quorum = {"controller.quorum.voters": f"{node_id}@{controller}"}
    return {
        "node.id": node_id,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directory,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        **quorum,
    }


def node_id_of(directory: Path) -> int:
    """Who the directory belongs to."""
    node_id = decode_meta_properties((directory / META_PROPERTIES).read_bytes()).node_id
    assert node_id is not None
    return node_id


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="latin-1")


def reserved_ports(count: int) -> list[socket.socket]:
    """Sockets on ports of loopback that nobody else is given while they are open.

    They do not listen, so a server that reuses addresses, as Kafka does, can listen there in the meantime.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    return sockets


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = reserved_ports(count)
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
