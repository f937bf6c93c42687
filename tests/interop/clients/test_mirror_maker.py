"""MirrorMaker 2 copies duralog's topics and groups to Kafka and Kafka's to duralog, and has nothing to complain of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory
from oracle.mirror_maker.mirror_maker import MirrorMaker
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
CONFIGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
PATIENCE_SECONDS = 120
"""Only a MirrorMaker that hangs takes that long."""

Server = KafkaServer | ServedDirectory
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def servers(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    folder: Path = tmp_path_factory.mktemp("mirrored")
    format_directory(kafka, folder / "theirs")
    with (
        KafkaServer(kafka, folder / "theirs", configs=CONFIGS) as theirs,
        ServedDirectory(folder / "ours", configs=CONFIGS) as ours,
    ):
        theirs.topics()
        yield {"ours": ours, "theirs": theirs}
        assert theirs.errors == []
        assert ours.errors == []


def test_both_directions_without_an_error(kafka: KafkaProcess, servers: dict[str, Server]) -> None:
    def tool(name: str, command: str, *arguments: str, stdin: str = "") -> str:
        where = ("--bootstrap-server", servers[name].bootstrap)
        status, printed, complaints = kafka.tool(f"{TOOLS}.{command}", *where, *arguments, stdin=stdin)
        assert status == 0, f"{command} {arguments}: exit code {status}\n{printed}\n{complaints}"
        return printed

    for name in servers:
        topic = f"from-{name}"
        tool(name, "TopicCommand", "--create", "--topic", topic, "--config", "retention.ms=86400000")
        tool(name, "ConsoleProducer", "--topic", topic, stdin="".join(f"record {n}\n" for n in range(20)))
        asked = ("--from-beginning", "--max-messages", "20", "--timeout-ms", "60000", "--group", f"group-of-{name}")
        assert len(tool(name, "consumer.ConsoleConsumer", "--topic", topic, *asked).splitlines()) == 20
    with MirrorMaker({name: server.bootstrap for name, server in servers.items()}) as mirror:
        for source, target in (("ours", "theirs"), ("theirs", "ours")):
            copied = f"{source}.from-{source}"
            wait_for(mirror, partial(has_records, tool, target, copied, 20))
            wait_for(mirror, partial(is_read, tool, target, copied, f"group-of-{source}"))
            described = tool(target, "TopicCommand", "--describe", "--topic", copied)
            assert "retention.ms=86400000" in described
            tool(source, "ConsoleProducer", "--topic", f"from-{source}", stdin="one more\n")
            wait_for(mirror, partial(has_records, tool, target, copied, 21))
        assert mirror.errors == []


def has_records(tool: Tool, server: str, topic: str, count: int) -> bool:
    return f"{topic}:0:{count}" in tool(server, "GetOffsetShell").split()


def is_read(tool: Tool, server: str, topic: str, group: str) -> bool:
    """Whether the group of the source is known here, with the first 20 records of the copy read."""
    if group not in tool(server, "consumer.group.ConsumerGroupCommand", "--list").split():
        return False
    rows = tool(server, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group).splitlines()
    return any(row.split()[:4] == [group, topic, "0", "20"] for row in rows)


def wait_for(mirror: MirrorMaker, sign: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not sign():
        assert mirror.is_running, mirror.log
        assert time.monotonic() < deadline, mirror.log
        time.sleep(0.2)
