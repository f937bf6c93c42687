"""Kafka's own command-line tools, and so its Java clients, against `duralog serve`. All but one run in one JVM."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import QUICK_TO_START
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool(kafka: KafkaProcess, serving: ServedDirectory) -> Tool:
    """Runs a tool that must end well, and returns what it printed."""

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        address = ("--bootstrap-server", serving.bootstrap)
        status, printed, complaints = kafka.tool(name, *address, *arguments, stdin=stdin)
        assert status == 0, f"{name} {arguments}: exit code {status}\n{printed}\n{complaints}"
        return printed

    return run


@pytest.fixture(scope="module")
def topics(tool: Tool) -> Tool:
    def run(*arguments: str) -> str:
        return tool(f"{TOOLS}.TopicCommand", *arguments)

    return run


def console_producer(tool: Tool, topic: str, lines: list[str], *arguments: str) -> None:
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, *arguments, stdin="\n".join(lines) + "\n")


def console_consumer(tool: Tool, topic: str, count: int, *arguments: str) -> list[str]:
    asked = ("--topic", topic, "--max-messages", str(count), "--timeout-ms", "60000", "--from-beginning")
    return tool(f"{TOOLS}.consumer.ConsoleConsumer", *asked, *arguments).splitlines()


def test_topics(topics: Tool) -> None:
    topics("--create", "--topic", "tools-topics", "--partitions", "3", "--config", "retention.ms=86400000")
    assert "tools-topics" in topics("--list").splitlines()
    described = topics("--describe", "--topic", "tools-topics")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    topics("--alter", "--topic", "tools-topics", "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", "--topic", "tools-topics")
    topics("--delete", "--topic", "tools-topics")
    assert "tools-topics" not in topics("--list").splitlines()


def test_configs(tool: Tool, topics: Tool) -> None:
    topics("--create", "--topic", "tools-configs")
    entity = ("--entity-type", "topics", "--entity-name", "tools-configs")
    tool(
        "kafka.admin.ConfigCommand",
        "--alter",
        *entity,
        "--add-config",
        "cleanup.policy=[compact,delete],segment.ms=9999",
    )
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "cleanup.policy=compact,delete" in described
    assert "segment.ms=9999" in described
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool("kafka.admin.ConfigCommand", "--describe", *entity)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    tool("kafka.admin.ConfigCommand", "--alter", *broker, "--add-config", "log.cleaner.backoff.ms=12345")
    assert "log.cleaner.backoff.ms=12345" in tool("kafka.admin.ConfigCommand", "--describe", *broker)
    tool("kafka.admin.ConfigCommand", "--alter", *broker, "--delete-config", "log.cleaner.backoff.ms")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(tool: Tool, topics: Tool, codec: str) -> None:
    topic = f"tools-console-{codec}"
    topics("--create", "--topic", topic)
    lines = [f"{number}:{'value ' * 20}{number}" for number in range(50)]
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    console_producer(tool, topic, lines, "--compression-codec", codec, *properties)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    assert console_consumer(tool, topic, 50, *shown) == lines


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_groups(tool: Tool, topics: Tool, protocol: str) -> None:
    topic, group = f"tools-groups-{protocol}", f"tools-group-{protocol}"
    topics("--create", "--topic", topic, "--partitions", "2")
    console_producer(tool, topic, [str(number) for number in range(30)])
    joined = ("--group", group, "--command-property", f"group.protocol={protocol}")
    assert len(console_consumer(tool, topic, 30, *joined)) == 30
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert group in tool(command, "--list").split()
    lags = _columns(tool(command, "--describe", "--group", group), "TOPIC", "LAG")
    assert [lag for named, lag in lags if named == topic] == ["0", "0"] or lags == [(topic, "0")]
    assert group in tool(command, "--describe", "--state", "--group", group)
    rewound = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
    tool(command, *rewound)
    lags = _columns(tool(command, "--describe", "--group", group), "TOPIC", "LAG")
    assert sum(int(lag) for _, lag in lags) == 30
    tool(command, "--delete-offsets", "--group", group, "--topic", topic)
    tool(command, "--delete", "--group", group)
    assert group not in tool(command, "--list").split()


LONG_TOPIC = "tools-plans-a-name-of-more-than-24-characters"


@pytest.fixture(scope="module")
def planned_groups(tool: Tool, topics: Tool) -> tuple[str, str]:
    """Two groups without members, with offsets of two topics."""
    for topic in ("tools-plans", LONG_TOPIC):
        topics("--create", "--topic", topic, "--partitions", "2")
        console_producer(tool, topic, [f"{number % 2}:{number}" for number in range(20)], *KEYED)
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    for group, topic in (("plans 1", "tools-plans"), ("plans 1", LONG_TOPIC), ("plans-2", "tools-plans")):
        tool(command, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "5", "--execute")
    return "plans 1", "plans-2"


KEYED = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
SCENARIOS = [
    ("--topic", "tools-plans", "--to-earliest"),
    ("--topic", f"{LONG_TOPIC}:1", "--topic", "tools-plans", "--to-latest"),
    ("--all-topics", "--shift-by", "2"),
    ("--all-topics", "--shift-by", "-100"),
    ("--all-topics", "--to-offset", "1000000"),
    ("--all-topics", "--to-current"),
    ("--topic", "tools-plans", "--to-datetime", "2001-01-01T00:00:00.000"),
    ("--topic", "tools-plans", "--to-datetime", "2100-01-01T00:00:00.000+02:00"),
    ("--topic", "tools-plans", "--by-duration", "P1DT2H30M"),
    ("--topic", "tools-plans", "--by-duration", "PT0S"),
]


def test_plans_of_a_reset_are_those_of_kafkas_tool(
    tool: Tool, serving: ServedDirectory, planned_groups: tuple[str, str], tmp_path: Path
) -> None:
    def by_kafka(*options: str) -> list[str]:
        printed = tool(f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--reset-offsets", *options)
        return sorted(line for line in printed.splitlines() if line.count(",") >= 2)

    def by_duralog(*options: str) -> list[str]:
        done = CliRunner().invoke(app, ["group", "reset", serving.bootstrap, *options])
        assert done.exit_code == 0, done.output
        return sorted(done.stdout.splitlines())

    both = [word for name in planned_groups for word in ("--group", name)]
    for scenario in SCENARIOS:
        for groups in (both[:2], both):
            asked = (*groups, *scenario, "--export", "--dry-run")
            expected = by_kafka(*asked)
            assert expected
            assert by_duralog(*asked) == expected, scenario
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(by_kafka(*both, "--all-topics", "--to-offset", "3", "--export", "--dry-run")) + "\n")
    by_duralog(*both, "--from-file", str(plan), "--execute")
    current = (*both, "--all-topics", "--to-current", "--export", "--dry-run")
    assert by_kafka(*current) == plan.read_text().splitlines() == by_duralog(*current)
    plan.write_text("\n".join(by_duralog(*both[:2], "--all-topics", "--shift-by", "1", "--export")) + "\n")
    tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand",
        "--reset-offsets",
        *both[:2],
        "--from-file",
        str(plan),
        "--execute",
    )
    assert by_duralog(*both[:2], "--all-topics", "--to-current", "--export") == plan.read_text().splitlines()


def _columns(table: str, *names: str) -> list[tuple[str, ...]]:
    """Columns of the table that a tool printed."""
    rows = [line.split() for line in table.splitlines() if line.strip()]
    (heading,) = [row for row in rows if names[0] in row]
    places = [heading.index(name) for name in names]
    return [
        tuple(row[place] for place in places) for row in rows[rows.index(heading) + 1 :] if len(row) >= len(heading)
    ]


def test_producer_and_consumer_perf(tool: Tool, topics: Tool) -> None:
    topics("--create", "--topic", "tools-perf", "--partitions", "2")
    sizes = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = tool(f"{TOOLS}.ProducerPerformance", "--topic", "tools-perf", *sizes)
    assert printed.startswith("20000 records sent") or "\n20000 records sent" in printed
    asked = ("--topic", "tools-perf", "--num-records", "20000", "--timeout", "60000")
    printed = tool(f"{TOOLS}.ConsumerPerformance", *asked)
    heading, values = printed.splitlines()[-2:]
    row = dict(zip((name.strip() for name in heading.split(",")), values.split(","), strict=True))
    assert int(row["data.consumed.in.nMsg"]) >= 20_000


@pytest.fixture(scope="module")
def in_transactions(tool: Tool, topics: Tool) -> str:
    """What the perf tool printed that wrote to `tools-perf-transactions`, in transactions of `tools-perf`."""
    topics("--create", "--topic", "tools-perf-transactions")
    sizes = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    transactions = ("--transactional-id", "tools-perf", "--transaction-duration-ms", "50")
    return tool(f"{TOOLS}.ProducerPerformance", "--topic", "tools-perf-transactions", *sizes, *transactions)


def test_producer_perf_in_transactions(tool: Tool, in_transactions: str) -> None:
    assert "2000 records sent" in in_transactions
    committed = ("--isolation-level", "read_committed")
    assert len(console_consumer(tool, "tools-perf-transactions", 2000, *committed)) == 2000


def test_verifiable_producer_and_consumer(
    kafka: KafkaProcess, serving: ServedDirectory, tool: Tool, topics: Tool
) -> None:
    topics("--create", "--topic", "tools-verifiable")
    # The producer sends its last records when its JVM ends, so it gets one.
    producer = [*QUICK_TO_START, "-cp", kafka.class_path, f"{TOOLS}.VerifiableProducer"]
    producer += ["--bootstrap-server", serving.bootstrap, "--topic", "tools-verifiable"]
    producer += ["--max-messages", "500", "--acks", "-1"]
    printed = subprocess.run(producer, stdout=subprocess.PIPE, text=True, check=True).stdout
    events = [json.loads(line) for line in printed.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    group = ("--group-id", "tools-verifiable", "--reset-policy", "earliest")
    printed = tool(f"{TOOLS}.VerifiableConsumer", "--topic", "tools-verifiable", "--max-messages", "500", *group)
    events = [json.loads(line) for line in printed.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits[-1]["success"] is True
    assert commits[-1]["offsets"] == [{"topic": "tools-verifiable", "partition": 0, "offset": 500}]


@pytest.mark.usefixtures("in_transactions")
def test_transactions(tool: Tool) -> None:
    command = f"{TOOLS}.TransactionsCommand"
    assert "tools-perf" in tool(command, "list")
    described = tool(command, "describe", "--transactional-id", "tools-perf")
    assert "CompleteCommit" in described
    printed = tool(command, "describe-producers", "--topic", "tools-perf-transactions", "--partition", "0")
    assert len(printed.splitlines()) == 2
    assert len(tool(command, "find-hanging", "--broker-id", "1").splitlines()) == 1


def test_delete_records_and_get_offsets(tool: Tool, topics: Tool, tmp_path: Path) -> None:
    topics("--create", "--topic", "tools-records", "--partitions", "2")
    console_producer(tool, "tools-records", [str(number) for number in range(40)])
    offsets = tool(f"{TOOLS}.GetOffsetShell", "--topic", "tools-records").split()
    ends = dict(line.rsplit(":", 1) for line in offsets)
    assert sum(map(int, ends.values())) == 40
    partition = next(name for name, end in ends.items() if int(end) > 3).rpartition(":")[2]
    asked = {"version": 1, "partitions": [{"topic": "tools-records", "partition": int(partition), "offset": 3}]}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(asked))
    assert "low_watermark: 3" in tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
    starts = tool(f"{TOOLS}.GetOffsetShell", "--topic", "tools-records", "--time", "earliest").split()
    assert f"tools-records:{partition}:3" in starts


def test_log_dirs(tool: Tool, topics: Tool) -> None:
    topics("--create", "--topic", "tools-log-dirs", "--partitions", "2")
    console_producer(tool, "tools-log-dirs", ["a"])
    printed = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "tools-log-dirs")
    described = json.loads(printed.splitlines()[-1])
    (broker,) = described["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    assert {each["partition"] for each in directory["partitions"]} == {"tools-log-dirs-0", "tools-log-dirs-1"}
    assert sum(each["size"] for each in directory["partitions"]) > 0


def test_api_versions(tool: Tool) -> None:
    printed = tool(f"{TOOLS}.BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "ConsumerGroupHeartbeat(68): 0 to 1 [usable: 1]" in printed


def test_leader_election(tool: Tool, topics: Tool) -> None:
    topics("--create", "--topic", "tools-election", "--partitions", "2")
    command, preferred = f"{TOOLS}.LeaderElectionCommand", ("--election-type", "preferred")
    printed = tool(command, *preferred, "--topic", "tools-election", "--partition", "1")
    assert "Valid replica already elected for partitions tools-election-1" in printed
    tool(command, *preferred, "--all-topic-partitions")


def test_reassign_partitions(tool: Tool, topics: Tool, serving: ServedDirectory, tmp_path: Path) -> None:
    topics("--create", "--topic", "tools-reassign")
    command = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    move, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    move.write_text(json.dumps({"version": 1, "topics": [{"topic": "tools-reassign"}]}))
    printed = tool(command, "--generate", "--topics-to-move-json-file", str(move), "--broker-list", "1")
    present, proposed = (line for line in printed.splitlines() if line.startswith("{"))
    for assignment in (present, proposed):
        plan.write_text(assignment)
        assert "Successfully started" in tool(command, "--execute", "--reassignment-json-file", str(plan))
        assert "is completed" in tool(command, "--verify", "--reassignment-json-file", str(plan))
        assert "are active" in tool(command, "--cancel", "--reassignment-json-file", str(plan))
    assert "No partition reassignments found." in tool(command, "--list")


def test_metadata_quorum(tool: Tool) -> None:
    command = f"{TOOLS}.MetadataQuorumCommand"
    assert "LeaderId:               1" in tool(command, "describe", "--status")
    assert "Leader" in tool(command, "describe", "--replication").splitlines()[-1]


def test_features(tool: Tool) -> None:
    command = f"{TOOLS}.FeatureCommand"
    (line,) = (each for each in tool(command, "describe").splitlines() if "metadata.version" in each)
    assert line.split()[-3:-2] == ["4.3-IV0"]
    assert "upgraded to 2" in tool(command, "upgrade", "--feature", "transaction.version=2")
    printed = tool(command, "downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "can be downgraded to 1" in printed


def test_quotas(tool: Tool) -> None:
    command = "kafka.admin.ConfigCommand"
    for entity, quota, shown in (
        (("clients", "--entity-name", "tools"), "producer_byte_rate=1048576", "client-id 'tools'"),
        (("clients", "--entity-default"), "request_percentage=500", "the default client-id"),
        (("ips", "--entity-name", "192.0.2.1"), "connection_creation_rate=9", "ip '192.0.2.1'"),
    ):
        named = ("--entity-type", *entity)
        tool(command, "--alter", *named, "--add-config", quota)
        described = tool(command, "--describe", *named)
        assert f"Quota configs for {shown} are {quota}" in described
        tool(command, "--alter", *named, "--delete-config", quota.partition("=")[0])
        assert quota not in tool(command, "--describe", *named)


@pytest.mark.parametrize("kind", ["topics", "brokers", "groups", "client-metrics"])
def test_all_configs_of_a_kind(tool: Tool, kind: str) -> None:
    tool("kafka.admin.ConfigCommand", "--describe", "--entity-type", kind)


def test_client_metrics(tool: Tool) -> None:
    for action in ("--list", "--describe"):
        assert tool(f"{TOOLS}.ClientMetricsCommand", action).strip() == ""
