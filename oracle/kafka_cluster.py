"""Real Kafka brokers that form a cluster on loopback, each with two log directories.

Every node is a broker and a voter. `kill` ends a node as a crash would and `start` brings it back on the same ports and
directories. Questions go through a `KafkaProcess`, to the nodes that run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import CLUSTER_ID, archived_classes, reserved_ports, write_properties
from oracle.server_process import ServerProcess

_SMALL_JVM = (
    "java",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xss512k",
    "-Xms64m",
    "-Xmx256m",
)
_PATIENCE_SECONDS = 90
_TOOLS = "org.apache.kafka.tools"
_CORE_TOOLS = "kafka.admin"
_NODE_LISTS = ("Replicas", "Isr")
"""In the description of a partition."""
_CONFIGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    # High watermarks reach the disk soon, followers that are gone leave the ISR soon, and dead nodes are fenced soon.
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "replica.lag.time.max.ms": 2_000,
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 400,
    "controller.quorum.election.timeout.ms": 800,
    "controller.quorum.fetch.timeout.ms": 1_500,
    "unclean.leader.election.interval.ms": 300,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.index.size.max.bytes": 64 << 10,
    "auto.create.topics.enable": "false",
    "num.network.threads": 1,
    "num.io.threads": 2,
}


class KafkaCluster:
    """Use it as a context manager: the end of the block kills what runs."""

    def __init__(self, kafka: KafkaProcess, folder: Path, *, nodes: int = 3, configs: Mapping[str, object] = _CONFIGS):
        self._kafka = kafka
        self._folder = folder
        self._configs = configs
        self.nodes = range(1, nodes + 1)
        self._reserved = reserved_ports(2 * nodes)
        ports = [each.getsockname()[1] for each in self._reserved]
        self._ports = dict(zip(self.nodes, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self._running: dict[int, ServerProcess] = {}
        for node in self.nodes:
            properties = self._properties(node)
            kafka.ask(command="format", arguments=["format", "-t", CLUSTER_ID, "-c", str(properties)])

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node, server in list(self._running.items()):
            if error is not None:
                error.add_note(f"node {node}:\n{server.end_of_log}")
            self.kill(node)
        for each in self._reserved:
            each.close()

    def directories(self, node: int) -> list[Path]:
        return [self._folder / f"broker-{node}" / f"data{number}" for number in (1, 2)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[node][0]}" for node in self._running)

    def start(self, *nodes: int) -> None:
        for node in nodes:
            server = ServerProcess(f"Kafka-{node}")
            java = [*_SMALL_JVM, *archived_classes(self._kafka)]
            server.start([*java, "-cp", self._kafka.class_path, "kafka.Kafka", str(self._properties(node))])
            self._running[node] = server

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            server = self._running.pop(node)
            server.kill()
            server.__exit__(None, None, None)

    def stop(self, node: int) -> None:
        """End a node as an operator does. REQUIRES: the others are a majority."""
        server = self._running.pop(node)
        server.stop()
        server.__exit__(None, None, None)

    def tool(self, name: str, *arguments: str) -> str:
        package = _CORE_TOOLS if name == "ConfigCommand" else _TOOLS
        status, printed, complaints = self._kafka.tool(
            f"{package}.{name}", "--bootstrap-server", self.bootstrap, *arguments
        )
        if status:
            raise RuntimeError(f"{name} {' '.join(arguments)}: {printed}{complaints}")
        return printed

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]], **configs: object) -> None:
        """`replicas` has the nodes of each partition. Configs are named with underscores for dots.

        REQUIRES: the nodes run. It waits until they are registered.
        """
        assignment = ",".join(":".join(map(str, nodes)) for nodes in replicas)
        options = [each for key, value in configs.items() for each in ("--config", f"{key.replace('_', '.')}={value}")]
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                self.tool("TopicCommand", "--create", "--topic", name, "--replica-assignment", assignment, *options)
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def delete_topic(self, name: str) -> None:
        self.tool("TopicCommand", "--delete", "--topic", name)

    def alter_topic(self, name: str, *configs: str) -> None:
        """Configs are `name=value`."""
        entity = ("--entity-type", "topics", "--entity-name", name)
        self.tool("ConfigCommand", "--alter", *entity, "--add-config", ",".join(configs))

    def lead(self, topic: str, partition: int) -> None:
        """Let the first replica lead."""
        one = ("--topic", topic, "--partition", str(partition))
        self.tool("LeaderElectionCommand", "--election-type", "preferred", *one)

    def wait_for_partition(self, topic: str, partition: int, wanted: Callable[[int, set[int]], bool]) -> None:
        """Wait until `wanted` returns True for its leader (-1 for none) and its ISR."""
        self._wait_for(topic, partition, lambda leader, _, isr: wanted(leader, isr))

    def wait_in_sync(self, topic: str, partition: int) -> None:
        """Wait until all replicas are in the ISR."""
        self._wait_for(topic, partition, lambda _, replicas, isr: replicas == isr)

    def _wait_for(self, topic: str, partition: int, wanted: Callable[[int, set[int], set[int]], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        described = ""
        while time.monotonic() < deadline:
            try:
                described = self.tool("TopicCommand", "--describe", "--topic", topic)
            except RuntimeError as error:
                # After a start, brokers may not know the topics yet.
                described = str(error)
            for line in described.splitlines():
                fields = dict(field.split(": ", 1) for field in line.strip().split("\t") if ": " in field)
                if fields.get("Partition") == str(partition):
                    leader = fields["Leader"]
                    replicas, isr = ({int(node) for node in fields[name].split(",") if node} for name in _NODE_LISTS)
                    if wanted(int(leader) if leader.lstrip("-").isdigit() else -1, replicas, isr):
                        return
            time.sleep(0.2)
        raise TimeoutError(f"{topic}-{partition} did not get there:\n{described}")

    def produce(
        self, topic: str, partition: int, records: Sequence[Json], *, transaction: str = "", **settings: object
    ) -> list[int | str]:
        offsets: list[int | str] = self._kafka.ask(
            command="produce",
            bootstrap=self.bootstrap,
            topic=topic,
            partition=partition,
            records=list(records),
            settings={key.replace("_", "."): str(value) for key, value in settings.items()},
            transaction=transaction,
        )["offsets"]
        return offsets

    def consume(self, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> Json:
        return self._kafka.ask(
            command="consume", bootstrap=self.bootstrap, topic=topic, partition=partition, isolation=isolation
        )

    def _properties(self, node: int) -> Path:
        broker_port, controller_port = self._ports[node]
        voters = ",".join(f"{each}@127.0.0.1:{self._ports[each][1]}" for each in self.nodes)
        path = self._folder / f"node-{node}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {
            "node.id": node,
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": ",".join(map(str, self.directories(node))),
            **self._configs,
        }
        write_properties(path, settings)
        return path
