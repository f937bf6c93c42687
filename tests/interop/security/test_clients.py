"""Clients of all makers against a guarded `duralog serve`: SASL_SSL by every mechanism, and client certificates."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from duralog.cli.user.users import opened_users
from duralog.storage.metadata.scram import ScramMechanism
from oracle.kafka_process import KafkaProcess
from tests.support.broker.certificates import Authority
from tests.support.interop.served_directory import ServedDirectory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as kafka_python
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")]

PASSWORD = 'p,=" ä'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOOLS = "org.apache.kafka.tools"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer"
BEARER_PROPERTIES = "org.apache.kafka.sasl.oauthbearer"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass
class Guarded:
    server: ServedDirectory
    folder: Path
    token: Callable[[], str]

    @property
    def sasl(self) -> str:
        return self.server.bootstraps[0]

    @property
    def mutual(self) -> str:
        return self.server.bootstraps[1]

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem)
    authority.sign().written(folder / "broker.pem")
    carol = authority.sign((NameOID.COMMON_NAME, "carol"), (NameOID.ORGANIZATION_NAME, "Acme"))
    carol.written(folder / "carol.pem")
    (folder / "carol.p12").write_bytes(carol.pkcs12("secret"))
    authority.sign((NameOID.COMMON_NAME, "late"), days=-1).written(folder / "expired.pem")
    Authority("other").sign((NameOID.COMMON_NAME, "carol")).written(folder / "foreign.pem")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "1", "use": "sig"}]}))

    def token() -> str:
        now = int(time.time())
        claims = {"sub": "alice", "iss": "test", "aud": "logs", "iat": now, "exp": now + 600}
        return jwt.encode(claims, key, "RS256", headers={"kid": "1"})

    with opened_users(str(folder / "data"), read_only=False, create=True, quiet=True) as users:
        users.set("alice", [*ScramMechanism], PASSWORD, 4096)
    quoted = PASSWORD.replace('"', '\\"')
    configs = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/L,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{quoted}";',
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": "test",
        "sasl.oauthbearer.expected.audience": "logs",
        "group.initial.rebalance.delay.ms": 0,
    }
    with ServedDirectory(folder / "data", configs=configs, listen=None) as server:
        yield Guarded(server, folder, token)
        assert server.errors == []
        assert PASSWORD not in server.log


class TestConfluent:
    def settings(self, guarded: Guarded, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": guarded.sasl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": guarded.file("ca.pem"),
            "sasl.mechanism": mechanism,
            "log_level": 0,
        }
        if mechanism == "OAUTHBEARER":
            return {**settings, "oauth_cb": lambda _: (guarded.token(), time.time() + 600)}
        return {**settings, "sasl.username": "alice", "sasl.password": password}

    def mutual(self, guarded: Guarded, certificate: str | None) -> dict[str, Any]:
        settings = {
            "bootstrap.servers": guarded.mutual,
            "security.protocol": "SSL",
            "ssl.ca.location": guarded.file("ca.pem"),
            "log_level": 0,
        }
        if certificate is None:
            return settings
        path = guarded.file(certificate)
        return {**settings, "ssl.certificate.location": path, "ssl.key.location": path}

    def errors(self, settings: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        given: dict[str, Any] = {**settings, "error_cb": found.append}
        admin = confluent_kafka.admin.AdminClient(given)
        deadline = time.monotonic() + 30
        while not found and time.monotonic() < deadline:
            admin.poll(0.05)
        return found[:1]

    @pytest.mark.parametrize("mechanism", [*MECHANISMS, "certificate"])
    def test_round_trip(self, guarded: Guarded, mechanism: str) -> None:
        settings = (
            self.mutual(guarded, "carol.pem") if mechanism == "certificate" else self.settings(guarded, mechanism)
        )
        topic = f"confluent-{mechanism}"
        producer = confluent_kafka.Producer(settings)
        value = b"x" * 100_000
        for _ in range(20):
            producer.produce(topic, value)
        assert producer.flush(60) == 0
        group = {"group.id": topic, "auto.offset.reset": "earliest"}
        with closing(confluent_kafka.Consumer({**settings, **group})) as consumer:
            consumer.subscribe([topic])
            found: list[bytes | None] = []
            while len(found) < 20:
                record = consumer.poll(60)
                assert record is not None
                assert record.error() is None
                found.append(record.value())
        assert found == [value] * 20

    @pytest.mark.parametrize("mechanism", MECHANISMS[:3])
    def test_a_wrong_password(self, guarded: Guarded, mechanism: str) -> None:
        wrong = self.settings(guarded, mechanism, "wrong")
        assert [error.code() for error in self.errors(wrong)] == [confluent_kafka.KafkaError._AUTHENTICATION]

    @pytest.mark.parametrize(
        ("certificate", "alert"),
        [(None, "certificate required"), ("expired.pem", "certificate expired"), ("foreign.pem", "unknown ca")],
    )
    def test_certificates(self, guarded: Guarded, certificate: str | None, alert: str) -> None:
        (error,) = self.errors(self.mutual(guarded, certificate))
        assert f"alert {alert}" in error.str()

    def test_users(self, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = tmp_path / "client.properties"
        settings = self.settings(guarded, "SCRAM-SHA-512")
        names = ("security.protocol", "ssl.ca.location", "sasl.mechanism", "sasl.username")
        lines = [f"{name}={settings[name]}" for name in names]
        config.write_text("\n".join([*lines, 'sasl.password=p,\\=" \\u00e4']))
        monkeypatch.setenv("DURALOG_CLIENT_CONFIG", str(config))
        with opened_users(guarded.sasl, read_only=False) as users:
            users.set("zoe", [*ScramMechanism], "first", 5000)
            assert ("zoe", ScramMechanism.SCRAM_SHA_512, 5000) in users.list()
            users.delete("zoe", [ScramMechanism.SCRAM_SHA_256])
            assert [each for name, each, _ in users.list() if name == "zoe"] == [ScramMechanism.SCRAM_SHA_512]


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded

    async def token(self) -> str:
        return self._guarded.token()


class _PlainTokens(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded

    def token(self) -> str:
        return self._guarded.token()


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "certificate"])
def test_aiokafka(guarded: Guarded, mechanism: str) -> None:
    context = ssl.create_default_context(cafile=guarded.file("ca.pem"))
    settings: dict[str, Any] = {"ssl_context": context}
    if mechanism == "certificate":
        context.load_cert_chain(guarded.file("carol.pem"))
        settings |= {"bootstrap_servers": guarded.mutual, "security_protocol": "SSL"}
    else:
        settings |= {"bootstrap_servers": guarded.sasl, "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _Tokens(guarded)
        else:
            settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    topic = f"aiokafka-{mechanism}"

    async def talk() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return bytes((await consumer.getone()).value)

    assert asyncio.run(asyncio.wait_for(talk(), 60)) == b"value"


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "certificate"])
def test_kafka_python(guarded: Guarded, mechanism: str) -> None:
    settings: dict[str, Any] = {"ssl_cafile": guarded.file("ca.pem"), "ssl_check_hostname": False}
    if mechanism == "certificate":
        certificate = {"ssl_certfile": guarded.file("carol.pem"), "ssl_keyfile": guarded.file("carol.pem")}
        settings |= {"bootstrap_servers": guarded.mutual, "security_protocol": "SSL", **certificate}
    else:
        settings |= {"bootstrap_servers": guarded.sasl, "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _PlainTokens(guarded)
        else:
            settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    topic = f"kafka-python-{mechanism}"
    with closing(kafka_python.KafkaProducer(**settings)) as producer:
        producer.send(topic, b"value").get(60)
    consumer = kafka_python.KafkaConsumer(topic, auto_offset_reset="earliest", **settings)
    with closing(consumer):
        assert next(consumer).value == b"value"


class TestJava:
    def properties(self, guarded: Guarded, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": guarded.file("ca.pem")}
        if mechanism == "certificate":
            store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": guarded.file("carol.p12")}
            return {"security.protocol": "SSL", **trust, **store, "ssl.keystore.password": "secret"}
        if mechanism == "OAUTHBEARER":
            login = {
                "sasl.jaas.config": f"{BEARER}.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_file(guarded).as_uri(),
            }
            return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **trust, **login}
        quoted = password.replace('"', '\\"')
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        jaas = f'{module} required username="alice" password="{quoted}";'
        return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **trust, "sasl.jaas.config": jaas}

    def token_file(self, guarded: Guarded) -> Path:
        path = guarded.folder / "token.jwt"
        path.write_text(guarded.token())
        return path

    def tool(
        self,
        guarded: Guarded,
        kafka: KafkaProcess,
        mechanism: str,
        *asked: str,
        password: str = PASSWORD,
        stdin: str = "",
    ) -> tuple[int, str, str]:
        path = guarded.folder / "java.properties"
        lines = [f"{name}={value}" for name, value in self.properties(guarded, mechanism, password).items()]
        path.write_text("\n".join(lines).replace("\\", "\\\\").replace("ä", "\\u00e4"))
        name, *arguments = asked
        address = guarded.mutual if mechanism == "certificate" else guarded.sasl
        return kafka.tool(
            f"{TOOLS}.{name}",
            *("--bootstrap-server", address, "--command-config", str(path)),
            *arguments,
            stdin=stdin,
            # Kafka's clients ask only addresses for tokens that are listed here.
            properties={f"{BEARER_PROPERTIES}.allowed.urls": (guarded.folder / "token.jwt").as_uri()},
        )

    @pytest.mark.parametrize("mechanism", [*MECHANISMS, "certificate"])
    def test_round_trip(self, guarded: Guarded, kafka: KafkaProcess, mechanism: str) -> None:
        topic = f"java-{mechanism}"
        to_topic = ("--topic", topic)
        status, printed, complaints = self.tool(
            guarded, kafka, mechanism, "ConsoleProducer", *to_topic, stdin="first\nsecond\n"
        )
        assert status == 0, f"{printed}\n{complaints}"
        wanted = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
        status, printed, complaints = self.tool(
            guarded, kafka, mechanism, "consumer.ConsoleConsumer", *to_topic, *wanted
        )
        assert (status, printed.splitlines()) == (0, ["first", "second"]), complaints

    def test_a_wrong_password(self, guarded: Guarded, kafka: KafkaProcess) -> None:
        asked = ("TopicCommand", "--list")
        status, printed, complaints = self.tool(guarded, kafka, "SCRAM-SHA-256", *asked, password="wrong")
        assert status != 0
        assert "Authentication failed during authentication due to invalid credentials" in printed + complaints


def test_an_unsigned_token(guarded: Guarded) -> None:
    unsigned = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=") + "." + guarded.token().split(".")[1] + "."
    settings = TestConfluent().settings(guarded, "OAUTHBEARER")
    settings["oauth_cb"] = lambda _: (unsigned, time.time() + 600)
    (error,) = TestConfluent().errors(settings)
    assert error.code() == confluent_kafka.KafkaError._AUTHENTICATION
