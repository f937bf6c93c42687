"""Commands on a broker that wants TLS and a log-in, with `--config-file`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.client.profiles import use_profile
from duralog.config import BrokerConfig
from duralog.console.command import _places
from duralog.console.sources.opening import open_source
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from tests.support import commands
from tests.support.broker.certificates import Authority

MODULES = "org.apache.kafka.common.security"
PASSWORD = 'pencil, "sharp"'
QUOTED = PASSWORD.replace('"', '\\\\"')


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[Broker]:
    server = authority.sign()
    config = BrokerConfig.of(
        {
            "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.certificate.chain": server.certificate_pem,
            "ssl.keystore.key": server.key_pem(),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.truststore.certificates": authority.pem,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required"
            ' user_alice="plain";',
            "connection.failed.authentication.delay.ms": "5",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    with Broker(None, config=config, listening=Listening.of(config)) as broker:
        broker.store.alter_scram_credentials(
            {("carol", each): ScramCredential.of_password(each, PASSWORD) for each in ScramMechanism}
        )
        yield broker.start()


@pytest.fixture
def profile(tmp_path: Path, authority: Authority) -> Path:
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "client.pem").write_text(authority.sign().pem())
    return tmp_path / "client.properties"


run = partial(commands.run, columns=200)


def log_in(profile: Path, mechanism: str, password: str = QUOTED) -> None:
    module, user = ("plain.Plain", "alice") if mechanism == "PLAIN" else ("scram.Scram", "carol")
    profile.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULES}.{module}LoginModule required username="{user}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={profile.parent}/ca.pem\n"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "a certificate"])
def test_commands_log_in(guarded: Broker, profile: Path, mechanism: str) -> None:
    if mechanism == "a certificate":
        store = f"{profile.parent}/client.pem"
        trusted = f"ssl.ca.location={profile.parent}/ca.pem"
        profile.write_text(f"security.protocol=SSL\n{trusted}\nssl.keystore.location={store}\n")
    else:
        log_in(profile, mechanism, "plain" if mechanism == "PLAIN" else QUOTED)
    listener = "SSL" if mechanism == "a certificate" else "SASL_SSL"
    place = (f"localhost:{guarded.addresses[listener].port}", "--config-file", profile)
    topic = mechanism.replace(" ", "-")
    run("topic", "create", *place, "-t", topic)
    run("produce", *place, "-t", topic, given="one\ntwo\n")
    assert run("consume", *place, "-t", topic, "--values").stdout == "one\ntwo\n"
    assert run("consume", *place, "-t", topic, "-g", topic, "-n", 1, "--values").stdout == "one\n"
    assert (
        "reset from 1 to 2" in run("group", "reset", *place, "-g", topic, "-t", topic, "--latest", "--execute").stdout
    )
    assert topic in run("topic", "list", *place).stdout
    assert "num.partitions" in run("config", "get", *place, "num.partitions").stdout


def test_the_console_logs_in(guarded: Broker, profile: Path) -> None:
    log_in(profile, "SCRAM-SHA-256")
    guarded.store.create_topic("seen-by-console")
    address = f"localhost:{guarded.addresses['SASL_SSL'].port}"
    place, _ = _places(address, None, str(profile))
    source = open_source(place, start=False)
    try:
        source.step()
        assert "seen-by-console" in {topic.name for topic in source.overview().topics}
    finally:
        source.close()
        use_profile(address, {})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_not_printed(guarded: Broker, profile: Path, mechanism: str) -> None:
    log_in(profile, mechanism, "SECRET")
    place = (f"localhost:{guarded.addresses['SASL_SSL'].port}", "--config-file", profile)
    for command in (("topic", "list"), ("config", "list")):
        refused = run(*command, *place, code=1)
        assert "refuses the log-in" in refused.stderr
        assert "SECRET" not in refused.output


def test_a_broker_that_is_not_trusted(guarded: Broker, profile: Path) -> None:
    log_in(profile, "PLAIN", "plain")
    (profile.parent / "ca.pem").write_text(Authority("another").pem)
    place = (f"localhost:{guarded.addresses['SASL_SSL'].port}", "--config-file", profile)
    for command in (("topic", "list"), ("config", "list")):
        assert "certificate" in run(*command, *place, code=1).stderr
