"""Where a broker listens and what it advertises, by Kafka's configs; and which configs are refused."""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import nullcontext
from typing import Any

import pytest

from duralog.broker.configs.settings import read_settings
from duralog.broker.net.listening import Address, Listening, bind, check_guarded, parse_address
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig


class TestAddresses:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
            (" localhost:0 ", Address("localhost", 0)),
            (":9092", Address("", 9092)),
            ("[::1]:9092", Address("::1", 9092)),
            ("[::]:65535", Address("::", 65535)),
        ],
    )
    def test_parsed(self, text: str, address: Address) -> None:
        assert parse_address(text) == address

    @pytest.mark.parametrize("text", ["", "9092", "host", "host:", "host:x", "host:70000", "::1:9092", "a:b:1", "h:-1"])
    def test_not_parsed(self, text: str) -> None:
        with pytest.raises(ValueError, match="HOST:PORT"):
            parse_address(text)

    def test_written(self) -> None:
        assert str(Address("::1", 1)) == "[::1]:1"
        assert str(Address("host", 1)) == "host:1"

    @pytest.mark.parametrize("host", ["127.0.0.1", "", "0.0.0.0", "localhost"])
    def test_bound(self, host: str) -> None:
        with bind(Address(host, 0)) as listener:
            listener.listen()
            with socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=60):
                pass

    @pytest.mark.parametrize("host", ["127.0.0.1", ""])
    def test_a_taken_port_is_named(self, host: str) -> None:
        with bind(Address(host, 0)) as listener:
            listener.listen()
            taken = Address(host, listener.getsockname()[1])
            with pytest.raises(OSError, match=f"cannot listen on {taken}"):
                bind(taken)

    def test_a_port_that_is_taken_for_ipv6_alone_is_taken(self) -> None:
        with socket.socket(socket.AF_INET6) as other:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            other.bind(("::", 0))
            other.listen()
            with pytest.raises(OSError, match="cannot listen on :"):
                bind(Address("", other.getsockname()[1]))

    @pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
    def test_a_system_without_ipv6(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        class Socket(socket.socket):
            def bind(self, address: Any) -> None:
                if self.family == socket.AF_INET6:
                    raise OSError(number, "no IPv6")
                super().bind(address)

        monkeypatch.setattr("duralog.broker.net.listening.socket.socket", Socket)
        with bind(Address("", 0)) as listener:
            assert listener.getsockname()[0] == "0.0.0.0"


class TestListeners:
    @pytest.mark.parametrize(
        ("configs", "bound", "advertised"),
        [
            ({"listeners": "PLAINTEXT://localhost:1"}, "localhost:1", "localhost:1"),
            ({"listeners": "plaintext://localhost:1"}, "localhost:1", "localhost:1"),
            ({"listeners": "PLAINTEXT://:1"}, ":1", f"{socket.gethostname()}:1"),
            ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "0.0.0.0:1", f"{socket.gethostname()}:1"),
            ({"listeners": "PLAINTEXT://[::1]:1"}, "[::1]:1", "[::1]:1"),
            (
                {"listeners": "PLAINTEXT://:1", "advertised.listeners": "PLAINTEXT://kafka.example:2"},
                ":1",
                "kafka.example:2",
            ),
            (
                {
                    "listeners": "CLIENTS://:1,CONTROLLER://:2",
                    "controller.listener.names": "CONTROLLER",
                    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:SSL",
                },
                ":1",
                f"{socket.gethostname()}:1",
            ),
        ],
    )
    def test_served(self, configs: dict[str, str], bound: str, advertised: str) -> None:
        (listener,) = Listening.of(BrokerConfig.of(configs)).listeners
        assert (str(listener.bound), str(listener.advertised)) == (bound, advertised)

    def test_several_for_clients_in_different_networks(self) -> None:
        configs = {
            "listeners": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092,OTHER://:1",
            "advertised.listeners": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:29092",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT, PLAINTEXT_HOST:PLAINTEXT,other:plaintext"
            ),
            "controller.listener.names": "CONTROLLER",
        }
        listening = Listening.of(BrokerConfig.of(configs))
        assert [(each.name, str(each.bound), str(each.advertised)) for each in listening.listeners] == [
            ("PLAINTEXT", "broker:29092", "broker:29092"),
            ("PLAINTEXT_HOST", "0.0.0.0:9092", "localhost:9092"),
            ("OTHER", ":1", f"{socket.gethostname()}:1"),
        ]
        with pytest.raises(InvalidConfig, match="not enough for 3 listeners"):
            listening.advertised_as(Address("elsewhere", 1))

    @pytest.mark.parametrize(
        ("configs", "reason"),
        [
            (
                {"listeners": "MINE://:1", "listener.security.protocol.map": "MINE:TLS"},
                "MINE wants TLS; a security protocol is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            ),
            ({"listeners": "MINE://:1"}, "does not say what MINE is"),
            ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "PLAINTEXT is given twice"),
            (
                {
                    "listeners": "PLAINTEXT://a:1,OTHER://b:1",
                    "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                },
                "its own port",
            ),
            ({"listener.security.protocol.map": "PLAINTEXT"}, "'PLAINTEXT' is not of the form NAME:PROTOCOL"),
            ({"listeners": "PLAINTEXT://host"}, "not of the form NAME://HOST:PORT"),
            ({"listeners": "PLAINTEXT://host:99999"}, "not of the form NAME://HOST:PORT"),
            ({"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"}, "none for clients"),
            ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "a wildcard address"),
            (
                {
                    "advertised.listeners": "OTHER://h:1",
                    "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                },
                "OTHER is not among the listeners",
            ),
        ],
    )
    def test_refused(self, configs: dict[str, str], reason: str) -> None:
        with pytest.raises(InvalidConfig, match=reason):
            Listening.of(BrokerConfig.of(configs))


class TestGuarded:
    @pytest.mark.parametrize(
        ("configs", "is_guarded"),
        [
            ({"listeners": "PLAINTEXT://127.0.0.1:1"}, True),
            ({"listeners": "PLAINTEXT://localhost:1"}, True),
            ({"listeners": "PLAINTEXT://[::1]:1"}, True),
            ({"listeners": "PLAINTEXT://:1"}, False),
            ({"listeners": "PLAINTEXT://0.0.0.0:1"}, False),
            ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://10.0.0.1:2"}, False),
            ({"listeners": "SSL://:1", "ssl.client.auth": "requested"}, False),
            ({"listeners": "SSL://:1", "ssl.client.auth": "required"}, True),
            ({"listeners": "SSL://:1", "listener.name.ssl.ssl.client.auth": "required"}, True),
            ({"listeners": "SASL_SSL://:1,SASL_PLAINTEXT://:2"}, True),
        ],
    )
    def test_listeners_beyond_loopback(self, configs: dict[str, str], is_guarded: bool) -> None:
        config = BrokerConfig.of(configs)
        refused = nullcontext() if is_guarded else pytest.raises(InvalidConfig, match="lets in everyone who reaches it")
        with refused:
            check_guarded(Listening.of(config), config)


class TestSettings:
    def test_overrides_count_instead_of_the_file(self) -> None:
        config = read_settings(b"num.partitions=3\nlog.retention.hours=1\n", {"num.partitions": "5"})
        assert (config.num_partitions, config.log_retention_hours) == (5, 1)

    @pytest.mark.parametrize(
        "properties",
        [
            b"config.providers=file",
            b"remote.log.storage.system.enable=true",
            b"create.topic.policy.class.name=x",
            b"max.connection.creation.rate=10",
            b"listener.name.outside.max.connection.creation.rate=10",
        ],
    )
    def test_what_would_guard_something_is_refused(self, properties: bytes) -> None:
        with pytest.raises(InvalidConfig, match="is not supported: "):
            read_settings(properties, {})

    def test_values_that_ask_for_nothing_are_not(self, caplog: pytest.LogCaptureFixture) -> None:
        lines = (
            b"remote.log.storage.system.enable=false",
            b"authorizer.class.name=",
            b"max.connection.creation.rate=2147483647",
        )
        read_settings(b"\n".join(lines), {})
        assert not caplog.records

    def test_one_line_names_all_that_have_no_effect(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            read_settings(b"ssl.provider=x\nmy.own=1\nnum.partitions=2\nprocess.roles=broker\n", {})
        assert [record.getMessage() for record in caplog.records] == [
            "these configs have no effect here: my.own, ssl.provider"
        ]

    def test_a_misspelled_config_is_named_with_the_one_that_was_meant(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            read_settings(b"log.retention.hour=1\nconfluent.log.retention.hours=1\nmy.own=1\n", {})
        assert [record.getMessage() for record in caplog.records] == [
            "there is no config log.retention.hour; did you mean log.retention.hours? It has no effect",
            "these configs have no effect here: confluent.log.retention.hours, my.own",
        ]

    def test_configs_of_all_listeners_have_no_effect_for_one(self, caplog: pytest.LogCaptureFixture) -> None:
        own = ("max.connections=1", "ssl.client.auth=none", "connections.max.idle.ms=1", "plain.sasl.jaas.config=x")
        with caplog.at_level(logging.WARNING):
            read_settings("\n".join(f"listener.name.outside.{each}" for each in own).encode(), {})
        assert [record.getMessage() for record in caplog.records] == [
            "these configs have no effect here: listener.name.outside.connections.max.idle.ms"
        ]

    def test_an_unknown_override_is_a_mistake(self) -> None:
        with pytest.raises(InvalidConfig, match=r"there is no config num\.partition; did you mean"):
            read_settings(b"", {"num.partition": "5"})
