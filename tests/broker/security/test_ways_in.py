"""No config leaves a broker without a way in: such values are refused, and those that are stored have no effect."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import duralog
from duralog.broker.broker import Broker
from duralog.broker.configs.settings import read_settings
from duralog.broker.net.listening import Address, Listening
from duralog.broker.wire import error_codes as codes
from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.errors import InvalidConfig
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from tests.broker.conftest import QUICK
from tests.support.broker.admin_desk import (
    ALTER_CONFIGS,
    BROKER,
    DELETE,
    SET,
    alter,
    config_values,
    describe_configs,
)
from tests.support.broker.raw_client import RawClient

MAX = "max.connections"
PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
RATE = "max.connection.creation.rate"
ANYWHERE = Listening.at(Address("0.0.0.0", 0), Address("127.0.0.1", 0))
KAFKAS_REFUSAL = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)


@contextmanager
def serving(
    folder: Path, given: dict[str, object] | None = None, listening: Listening | None = None
) -> Iterator[Broker]:
    config = BrokerConfig.of({**QUICK, **(given or {})})
    with Broker(str(folder), config=config, listening=listening) as broker:
        yield broker.start()


def store_configs(folder: Path, name: str = ALL_BROKERS, **configs: str) -> None:
    """As a broker that did not refuse them has left them."""
    with duralog.open(str(folder)) as store:
        texts = {key.replace("_", "."): value for key, value in configs.items()}
        store.alter_configs_of(BROKER_RESOURCE, name, texts)


def connected(broker: Broker) -> RawClient:
    return RawClient("127.0.0.1", broker.address.port)


def settings(**configs: str) -> list[tuple[str, int, str]]:
    return [(name.replace("_", "."), SET, value) for name, value in configs.items()]


@pytest.fixture(scope="module")
def shared_client() -> Iterator[RawClient]:
    """Of a broker for requests that change nothing."""
    with Broker(None, config=BrokerConfig.of(QUICK)) as broker, connected(broker.start()) as client:
        yield client


class TestRefusedAsByKafka:
    """Kafka 4.3.1 refuses these, too: with its code and in its words."""

    @pytest.mark.parametrize("resource", ["", "1"])
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            (MAX, "0", KAFKAS_REFUSAL.format("Invalid max.connections 0")),
            (MAX, "-1", "Invalid value -1 for configuration max.connections: Value must be at least 0"),
            (RATE, "0", KAFKAS_REFUSAL.format("Invalid max.connection.creation.rate 0")),
            (RATE, "x", "Invalid value x for configuration max.connection.creation.rate: Not a number of type INT"),
            (RATE, "-1", "Invalid value -1 for configuration max.connection.creation.rate: Value must be at least 0"),
            (f"listener.name.plaintext.{MAX}", "0", KAFKAS_REFUSAL.format("Invalid max.connections 0")),
            (f"listener.name.plaintext.{RATE}", "0", KAFKAS_REFUSAL.format("Invalid max.connection.creation.rate 0")),
            (
                f"listener.name.plaintext.{MAX}",
                "-1",
                "Invalid value -1 for configuration max.connections: Value must be at least 0",
            ),
            (
                "listener.name.plaintext.num.network.threads",
                "0",
                "Invalid value 0 for configuration num.network.threads: Value must be at least 1",
            ),
            (
                PER_IP,
                "0",
                f"requirement failed: {PER_IP} can be set to zero only if {OVERRIDES} property is set.",
            ),
            ("num.io.threads", "0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
            (
                "num.replica.fetchers",
                "0",
                "Invalid value 0 for configuration num.replica.fetchers: Value must be at least 1",
            ),
            (
                "num.io.threads",
                "3",
                KAFKAS_REFUSAL.format(
                    "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half"
                    " the current value 8"
                ),
            ),
            (
                "num.recovery.threads.per.data.dir",
                "2147483647",
                KAFKAS_REFUSAL.format(
                    "Dynamic thread count update validation failed for num.recovery.threads.per.data.dir=2147483647,"
                    " value should not be greater than double the current value 2"
                ),
            ),
            ("queued.max.requests", "0", "Cannot update these configs dynamically: [queued.max.requests]"),
            ("socket.request.max.bytes", "1", "Cannot update these configs dynamically: [socket.request.max.bytes]"),
            ("connections.max.idle.ms", "0", "Cannot update these configs dynamically: [connections.max.idle.ms]"),
        ],
    )
    def test_refused(self, shared_client: RawClient, resource: str, name: str, value: str, message: str) -> None:
        assert alter(shared_client, BROKER, resource, (name, SET, value)) == (codes.INVALID_REQUEST, message)
        assert name not in dynamic_names(shared_client)

    def test_overrides_are_not_taken_back_while_nothing_else_lets_clients_in(self, client: RawClient) -> None:
        assert alter(client, BROKER, "", (PER_IP, SET, "0"), (OVERRIDES, SET, "127.0.0.1:5")) == (0, None)
        code, message = alter(client, BROKER, "", (OVERRIDES, DELETE, None))
        assert (code, message and PER_IP in message) == (codes.INVALID_REQUEST, True)
        assert alter(client, BROKER, "", (OVERRIDES, DELETE, None), (PER_IP, DELETE, None)) == (0, None)


def dynamic_names(client: RawClient) -> set[str]:
    return {
        config.name
        for name in ("", "1")
        for config in describe_configs(client, BROKER, name).configs
        if config.config_source in (2, 3)
    }


class TestRefusedHere:
    """Kafka accepts these, and locks out all clients."""

    @pytest.mark.parametrize("text", ["127.0.0.1:0", "127.0.0.1:-3", "localhost:0", "::ffff:127.0.0.1:0"])
    def test_no_connection_from_where_all_clients_come_from(self, shared_client: RawClient, text: str) -> None:
        code, message = alter(shared_client, BROKER, "", (OVERRIDES, SET, text))
        assert code == codes.INVALID_CONFIG
        assert message == (
            f"{PER_IP} and {OVERRIDES} allow no connection from 127.0.0.1, and the broker can only be reached from"
            f" there: add 127.0.0.1:10 to {OVERRIDES}"
        )
        assert OVERRIDES not in dynamic_names(shared_client)

    @pytest.mark.parametrize("text", ["10.0.0.1:5", "127.0.0.1:0", "localhost:0,10.0.0.1:5", "build.example:5"])
    def test_nor_from_any_address_but_others(self, shared_client: RawClient, text: str) -> None:
        code, _ = alter(shared_client, BROKER, "1", (PER_IP, SET, "0"), (OVERRIDES, SET, text))
        assert code == codes.INVALID_CONFIG

    @pytest.mark.parametrize("text", ["127.0.0.1:0", "10.0.0.1:0,10.0.0.2:-1", "build.example:5"])
    def test_of_a_broker_that_listens_everywhere(self, tmp_path: Path, text: str) -> None:
        with serving(tmp_path, listening=ANYWHERE) as broker, connected(broker) as client:
            code, message = alter(client, BROKER, "", (PER_IP, SET, "0"), (OVERRIDES, SET, text))
            assert code == codes.INVALID_CONFIG
            assert message is not None
            assert message.endswith("a name does not count, it may not be resolved")

    @pytest.mark.parametrize("text", ["10.0.0.1:5", "127.0.0.1:0,10.0.0.1:5", "::1:1"])
    def test_some_address_is_enough_there(self, tmp_path: Path, text: str) -> None:
        with serving(tmp_path, listening=ANYWHERE) as broker, connected(broker) as client:
            assert alter(client, BROKER, "", (PER_IP, SET, "0"), (OVERRIDES, SET, text)) == (0, None)

    def test_by_two_changes(self, client: RawClient) -> None:
        assert alter(client, BROKER, "1", (PER_IP, SET, "0"), (OVERRIDES, SET, "127.0.0.1:5")) == (0, None)
        assert alter(client, BROKER, "1", (OVERRIDES, SET, "10.0.0.1:5"))[0] == codes.INVALID_CONFIG

    def test_by_the_configs_of_all_brokers_and_of_one(self, client: RawClient) -> None:
        assert alter(client, BROKER, "", (OVERRIDES, SET, "10.0.0.1:5")) == (0, None)
        assert alter(client, BROKER, "1", (PER_IP, SET, "0"))[0] == codes.INVALID_CONFIG

    def test_by_the_older_request(self, shared_client: RawClient) -> None:
        configs = [{"name": OVERRIDES, "value": "127.0.0.1:0"}]
        resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
        (answer,) = shared_client.ask(ALTER_CONFIGS, 2, {"resources": [resource], "validate_only": False}).responses
        assert answer.error_code == codes.INVALID_CONFIG

    def test_when_only_checked(self, shared_client: RawClient) -> None:
        code, _ = alter(shared_client, BROKER, "", (OVERRIDES, SET, "127.0.0.1:0"), validate_only=True)
        assert code == codes.INVALID_CONFIG

    def test_the_fewest_that_are_allowed(self, broker: Broker, client: RawClient) -> None:
        assert alter(client, BROKER, "", (MAX, SET, "2"), (OVERRIDES, SET, "127.0.0.1:2")) == (0, None)
        with connected(broker) as other:
            assert alter(other, BROKER, "", (MAX, DELETE, None)) == (0, None)


class TestGiven:
    """At the start, too: in `server.properties`, on the command line, from Python."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (MAX, "0"),
            (PER_IP, "0"),
            ("socket.request.max.bytes", "511"),
            ("connections.max.idle.ms", "0"),
            ("connections.max.idle.ms", "100"),
            ("queued.max.requests", "0"),
            ("num.network.threads", "0"),
        ],
    )
    def test_refused(self, name: str, value: str) -> None:
        for read in (
            lambda: BrokerConfig.of({name: value}),
            lambda: read_settings(f"{name}={value}".encode(), {}),
            lambda: read_settings(b"", {name: value}),
        ):
            with pytest.raises(InvalidConfig, match=name):
                read()

    @pytest.mark.parametrize(
        ("name", "value"),
        [("socket.request.max.bytes", "512"), ("connections.max.idle.ms", "101"), ("connections.max.idle.ms", "-1")],
    )
    def test_accepted(self, name: str, value: str) -> None:
        assert BrokerConfig.of({name: value}).text(name) == value

    def test_no_connection_from_where_all_clients_come_from(self) -> None:
        config = BrokerConfig.of({OVERRIDES: "127.0.0.1:0"})
        with pytest.raises(InvalidConfig, match=r"allow no connection from 127\.0\.0\.1"):
            Broker(None, config=config)
        Broker(None, config=config, listening=ANYWHERE)
        Broker(None, config=config, listening=Listening.at(Address("::1", 0)))

    @pytest.mark.parametrize(
        ("hosts", "sources"),
        [
            (["127.0.0.1"], {"127.0.0.1"}),
            (["127.0.0.9", "localhost"], {"127.0.0.1"}),
            (["::1"], {"::1"}),
            (["127.0.0.1", "::1"], {"127.0.0.1", "::1"}),
            (["127.0.0.1", "10.0.0.1"], set()),
            ([""], set()),
            (["0.0.0.0"], set()),
            (["::"], set()),
            (["broker.example"], set()),
        ],
    )
    def test_where_clients_come_from(self, hosts: list[str], sources: set[str]) -> None:
        listening = Listening(tuple(Listening.at(Address(host, 1)).listeners[0] for host in hosts))
        assert listening.reached_from == sources


class TestStored:
    """Left by a broker that did not refuse them."""

    @pytest.mark.parametrize("resource", [ALL_BROKERS, "1"])
    def test_ignored_with_a_warning_that_says_how_to_reset_it(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, resource: str
    ) -> None:
        store_configs(tmp_path, resource, max_connections="0", log_retention_ms="700")
        with serving(tmp_path) as broker, connected(broker) as client:
            assert broker.config.log_retention_ms == 700
            (line,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
            assert line == (
                "the stored config max.connections=0 is ignored: max.connections is 0, so every connection would be"
                f" refused: set 1 or more; reset it with: duralog config reset 127.0.0.1:{broker.address.port}"
                " max.connections"
            )
            (config,) = describe_configs(client, BROKER, "1", [MAX], synonyms=True).configs
            assert (config.value, config.config_source) == ("2147483647", 5)
            assert [(each.value, each.source) for each in config.synonyms] == [
                ("2147483647", 5),
                ("0", 3 if resource == ALL_BROKERS else 2),
            ]
            assert alter(client, BROKER, resource, ("log.retention.ms", SET, "800")) == (0, None)
            assert alter(client, BROKER, resource, (OVERRIDES, SET, "127.0.0.1:0"))[0] == codes.INVALID_CONFIG
            assert alter(client, BROKER, resource, (MAX, DELETE, None)) == (0, None)
        caplog.clear()
        with serving(tmp_path):
            assert [record for record in caplog.records if record.levelno == logging.WARNING] == []

    def test_every_way_at_once(self, tmp_path: Path) -> None:
        store_configs(
            tmp_path,
            max_connections="0",
            max_connections_per_ip="0",
            max_connections_per_ip_overrides="127.0.0.1:0",
            socket_request_max_bytes="1",
            connections_max_idle_ms="0",
            queued_max_requests="0",
            log_retention_ms="700",
        )
        with serving(tmp_path) as broker, connected(broker) as client:
            assert config_values(client, BROKER, "1", MAX, "log.retention.ms") == {
                MAX: "2147483647",
                "log.retention.ms": "700",
            }
            assert broker.config.ignored.keys() == {
                MAX,
                OVERRIDES,
                PER_IP,
                "socket.request.max.bytes",
                "connections.max.idle.ms",
                "queued.max.requests",
            }

    @pytest.mark.parametrize("order", [1, -1])
    def test_configs_that_admit_clients_stay_in_force_next_to_others(self, tmp_path: Path, order: int) -> None:
        configs = {"max_connections_per_ip": "0", "max_connections_per_ip_overrides": "127.0.0.1:7"}
        store_configs(tmp_path, max_connections="0", **dict([*configs.items()][::order]))
        with serving(tmp_path) as broker:
            assert broker.config.ignored.keys() == {MAX}
            assert broker.server.limits.allowed("127.0.0.1") == 7
            assert broker.server.limits.allowed("10.0.0.1") == 0


class TestOverrides:
    """`--override` wins over what is stored."""

    @contextmanager
    def serving(self, folder: Path, **overrides: str) -> Iterator[Broker]:
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        with Broker(str(folder), config=read_settings(b"log.segment.bytes=2000000", named)) as broker:
            yield broker.start()

    @pytest.mark.parametrize("resource", [ALL_BROKERS, "1"])
    def test_over_the_file_and_over_what_is_stored(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, resource: str
    ) -> None:
        store_configs(tmp_path, resource, max_connections="0", log_segment_bytes="3000000")
        with self.serving(tmp_path, max_connections="50") as broker, connected(broker) as client:
            assert broker.config.max_connections == 50
            assert broker.config.log_segment_bytes == 3_000_000
            lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            assert lines == [
                "the stored config max.connections=0 is not in force: an override given at the start wins; reset it"
                f" with: duralog config reset 127.0.0.1:{broker.address.port} max.connections"
            ]
            (config,) = describe_configs(client, BROKER, "1", [MAX], synonyms=True).configs
            assert (config.value, config.config_source) == ("50", 4)
            assert alter(client, BROKER, resource, (MAX, SET, "0"))[0] != 0
            assert broker.config.max_connections == 50

    def test_until_a_client_changes_it(self, tmp_path: Path) -> None:
        store_configs(tmp_path, log_retention_ms="700", log_roll_ms="800")
        given = {"log_retention_hours": "2", "log_roll_ms": "900"}
        with self.serving(tmp_path, **given) as broker, connected(broker) as client:
            assert alter(client, BROKER, "", ("log.retention.ms", SET, "1000")) == (0, None)
            assert broker.config.topic_defaults().retention_ms == 1000
            assert broker.config.log_roll_ms == 900
            (config,) = describe_configs(client, BROKER, "1", ["log.retention.ms"]).configs
            assert (config.value, config.config_source) == ("1000", 3)
        with self.serving(tmp_path, **given) as broker, connected(broker) as client:
            assert broker.config.topic_defaults().retention_ms == 7_200_000
            assert alter(client, BROKER, "", ("log.retention.ms", DELETE, None)) == (0, None)
            assert broker.config.topic_defaults().retention_ms == 7_200_000

    def test_in_another_unit(self, tmp_path: Path) -> None:
        store_configs(tmp_path, log_retention_ms="700", log_roll_ms="800", log_flush_interval_ms="900")
        given = {"log_retention_hours": "2", "log_flush_scheduler_interval_ms": "1000"}
        with self.serving(tmp_path, **given) as broker:
            defaults = broker.config.topic_defaults()
            assert (defaults.retention_ms, defaults.segment_ms, defaults.flush_ms) == (7_200_000, 800, 900)


@pytest.mark.parametrize("direction", [1, -1], ids=["largest", "smallest"])
def test_whatever_a_client_can_set_a_client_can_reset(tmp_path: Path, direction: int) -> None:
    """The most extreme values that are accepted, all at once: the broker starts, and they can be taken back."""
    values = ("-1", "0", "1", "2147483647", "9223372036854775807", "1e300")[::direction]
    extreme: set[str] = set()
    with serving(tmp_path) as broker, connected(broker) as client:
        for name in sorted(BROKER_CONFIGS):
            for value in values:
                if alter(client, BROKER, "", (name, SET, value))[0] == 0:
                    extreme.add(name)
        assert len(extreme) > 30
    with serving(tmp_path) as broker, connected(broker) as client:
        for name in extreme:
            alter(client, BROKER, "", (name, DELETE, None))
        assert dynamic_names(client) <= {"min.insync.replicas"}
