"""Log-in by SASL: every state, every mechanism but tokens, and what a client gets when it fails."""

from __future__ import annotations

import random
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.broker.security.salt_key import salt_key
from duralog.broker.security.scram import MadeUpCredentials, ScramLogin
from duralog.broker.wire import messages
from duralog.broker.wire.principal import Principal
from duralog.config import BrokerConfig
from duralog.format.filenames import SCRAM_SALT_KEY
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism, ScramUser
from tests.support.broker.logins import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SOFTWARE,
    ScramClient,
    authenticate,
    handshake,
    plain_token,
    scram_log_in,
)
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.waiting import wait_until

METADATA = 3
FAILED, ILLEGAL_STATE, UNSUPPORTED_MECHANISM = 58, 34, 33
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SHORT://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_alice="s3 cr\\"et" user_bob=other;',
    "listener.name.short.plain.sasl.jaas.config": f'{JAAS} user_alice="x" user_bob="y";',
    "listener.name.short.connections.max.reauth.ms": "3600000",
    "connection.failed.authentication.delay.ms": "5",
    "sasl.server.max.receive.size": "4096",
}
PASSWORD = 's3 cr"et'
Connect = Callable[..., RawClient]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    config = BrokerConfig.of(CONFIG)
    with Broker(None, config=config, listening=Listening.of(config)) as broker:
        broker.store.alter_scram_credentials(
            {
                (user, mechanism): ScramCredential.of_password(mechanism, "pencil")
                for user in ("carol", "c,=é")
                for mechanism in ScramMechanism
            }
        )
        yield broker.start()


@pytest.fixture
def connect(guarded: Broker) -> Iterator[Connect]:
    clients: list[RawClient] = []

    def connect(listener: str = "SASL_PLAINTEXT") -> RawClient:
        clients.append(RawClient("127.0.0.1", guarded.addresses[listener].port))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Connect) -> RawClient:
    return connect()


def is_served(client: RawClient) -> bool:
    return bool(client.ask(METADATA, 1, {"topics": []}).controller_id >= 0)


class TestPlain:
    @pytest.mark.parametrize("version", range(3))
    def test_right(self, guarded: Broker, client: RawClient, version: int) -> None:
        assert client.ask(API_VERSIONS, 3, SOFTWARE).error_code == 0
        shaken = handshake(client, "PLAIN")
        assert (shaken.error_code, shaken.mechanisms) == (0, MECHANISMS)
        answer = authenticate(client, plain_token("alice", PASSWORD), version)
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
        assert is_served(client)
        assert Principal("alice") in [connection.principal for connection in guarded.server.connections]

    @pytest.mark.parametrize(
        ("token", "message"),
        [
            (plain_token("alice", "wrong"), "Authentication failed: Invalid username or password"),
            (plain_token("nobody", PASSWORD), "Authentication failed: Invalid username or password"),
            (
                plain_token("alice", PASSWORD, "bob"),
                "Authentication failed: Client requested an authorization id that is different from username",
            ),
            (plain_token("", "x"), "Authentication failed: username not specified"),
            (plain_token("alice", ""), "Authentication failed: password not specified"),
            (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
            (b"a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
            (b"\0alice\0x\0y", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
            (b"\xff" * 100, "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ],
    )
    def test_wrong(self, client: RawClient, token: bytes, message: str) -> None:
        handshake(client, "PLAIN")
        answer = authenticate(client, token)
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (FAILED, message, b"")
        assert client.is_closed_by_peer()

    def test_the_name_may_be_asked_for_again(self, client: RawClient) -> None:
        handshake(client, "PLAIN")
        assert authenticate(client, plain_token("bob", "other", "bob")).error_code == 0


class TestScram:
    @pytest.mark.parametrize("mechanism", MECHANISMS[1:])
    @pytest.mark.parametrize("user", ["carol", "c,=é"])
    def test_right(self, client: RawClient, mechanism: str, user: str) -> None:
        assert scram_log_in(client, mechanism, user, "pencil").error_code == 0
        assert is_served(client)

    @pytest.mark.parametrize("mechanism", MECHANISMS[1:])
    @pytest.mark.parametrize("user", ["carol", "nobody"])
    def test_wrong_users_and_passwords_look_alike(self, client: RawClient, mechanism: str, user: str) -> None:
        answer = scram_log_in(client, mechanism, user, "wrong")
        assert (answer.error_code, answer.error_message) == (FAILED, f"{INVALID} {mechanism}")
        assert client.is_closed_by_peer()

    def test_the_salt_of_an_unknown_user_is_always_the_same(self, connect: Connect) -> None:
        salts = set()
        for _ in range(3):
            client = connect()
            handshake(client, "SCRAM-SHA-256")
            answer = authenticate(client, ScramClient("SCRAM-SHA-256", "nobody", "").first()).auth_bytes
            salts.add(answer.split(b",")[1])
        assert len(salts) == 1

    def test_another_nonce(self, client: RawClient) -> None:
        handshake(client, "SCRAM-SHA-256")
        scram = ScramClient("SCRAM-SHA-256", "carol", "pencil")
        answer = authenticate(client, scram.first())
        assert authenticate(client, scram.final(answer.auth_bytes, nonce_suffix="x")).error_code == FAILED

    @pytest.mark.parametrize(
        "first",
        [b"", b"n,,", b"y,,n=carol,r=x", b"p=x,,n=carol,r=x", b"n,,n=car=ol,r=x", b"n,,n=carol,r=", b"\xff"],
    )
    def test_messages_that_are_none(self, client: RawClient, first: bytes) -> None:
        handshake(client, "SCRAM-SHA-256")
        answer = authenticate(client, first)
        assert (answer.error_code, answer.error_message) == (FAILED, f"{INVALID} SCRAM-SHA-256")

    @pytest.mark.parametrize(
        ("user", "password", "message"),
        [
            ("carol", "pencil", "an authorization id that is different from username"),
            ("carol", "wrong", f"{INVALID} SCRAM-SHA-256"),
            ("nobody", "pencil", f"{INVALID} SCRAM-SHA-256"),
        ],
    )
    def test_a_user_of_someone_else(self, client: RawClient, user: str, password: str, message: str) -> None:
        handshake(client, "SCRAM-SHA-256")
        scram = ScramClient("SCRAM-SHA-256", user, password, authorization_id="alice")
        first = authenticate(client, scram.first())
        assert first.error_code == 0
        answer = authenticate(client, scram.final(first.auth_bytes))
        assert answer.error_code == FAILED
        assert message in (answer.error_message or "")


def test_the_salt_of_an_unknown_user_survives_a_restart(tmp_path: Path) -> None:
    config = BrokerConfig.of(CONFIG)

    def salts() -> list[bytes]:
        with Broker(str(tmp_path / "data"), config=config, listening=Listening.of(config)) as broker:
            broker.start()
            found = []
            for user in ("nobody", "none"):
                client = RawClient("127.0.0.1", broker.address.port)
                handshake(client, "SCRAM-SHA-256")
                answer = authenticate(client, ScramClient("SCRAM-SHA-256", user, "").first()).auth_bytes
                found.append(answer.split(b",")[1])
                client.close()
            return found

    before = salts()
    assert before == salts()
    assert before[0] != before[1]
    file = tmp_path / "data" / SCRAM_SALT_KEY
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"cut")
    assert before != salts()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_directory_that_takes_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / SCRAM_SALT_KEY).mkdir()
    assert salt_key(str(tmp_path)) != salt_key(str(tmp_path))
    assert "clients can find out which SCRAM users exist" in caplog.text


def test_unknown_users_have_the_iterations_and_salts_of_most() -> None:
    sha_256 = ScramMechanism.SCRAM_SHA_256

    def answer(user: str, credentials: dict[ScramUser, ScramCredential]) -> tuple[int, bytes]:
        login = ScramLogin(sha_256, credentials, MadeUpCredentials(sha_256, lambda: b"key"))
        _, salt, iterations = login.evaluate(f"n,,n={user},r=x".encode()).split(b",")
        return len(b64decode(salt[2:])), iterations

    def credential(salt_bytes: int, iterations: int) -> ScramCredential:
        return ScramCredential(b"s" * salt_bytes, b"k" * 32, b"k" * 32, iterations)

    stored = {(name, sha_256): credential(26, 8192) for name in "abc"}
    stored |= {("d", sha_256): credential(20, 4096), ("weak", sha_256): credential(20, 1)}
    stored |= {(name, ScramMechanism.SCRAM_SHA_512): credential(20, 4096) for name in "abcdef"}
    assert answer("a", stored) == answer("nobody", stored) == answer("weak", stored) == (26, b"i=8192")
    assert answer("nobody", {}) == (20, b"i=4096")


class TestStates:
    def test_a_mechanism_that_is_not_enabled(self, client: RawClient) -> None:
        answer = handshake(client, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (UNSUPPORTED_MECHANISM, MECHANISMS)
        assert client.is_closed_by_peer()

    @pytest.mark.parametrize("before", [[], [API_VERSIONS]])
    def test_a_request_before_the_handshake_has_no_answer(self, client: RawClient, before: list[int]) -> None:
        for api_key in before:
            client.ask(api_key, 0)
        client.send(METADATA, 1, {"topics": []})
        assert client.is_closed_by_peer()

    def test_a_request_after_the_handshake_is_refused(self, client: RawClient) -> None:
        handshake(client, "PLAIN")
        answer = client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert answer.error_code == ILLEGAL_STATE
        assert client.is_closed_by_peer()

    def test_a_large_one_is_refused_without_decoding_it(
        self, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoded: list[int] = []
        decode = messages.decode_request

        def noted(api_key: int, version: int, body: Any) -> Any:
            decoded.append(api_key)
            return decode(api_key, version, body)

        monkeypatch.setattr(messages, "decode_request", noted)
        handshake(client, "PLAIN")
        client.send(METADATA, 9, {"topics": [{"name": "t"}] * 1000})
        assert client.is_closed_by_peer()
        assert METADATA not in decoded

    def test_authenticate_before_the_handshake(self, client: RawClient) -> None:
        client.send(SASL_AUTHENTICATE, 2, {"auth_bytes": b"x"})
        assert client.is_closed_by_peer()

    def test_versions_twice(self, client: RawClient) -> None:
        client.ask(API_VERSIONS, 0)
        client.send(API_VERSIONS, 0)
        assert client.is_closed_by_peer()

    def test_versions_may_be_asked_for_again_after_an_unknown_one(self, client: RawClient) -> None:
        client.send_bytes(struct.pack(">ihhih", 10, API_VERSIONS, 99, 1, -1))
        client.receive_frame()
        assert client.ask(API_VERSIONS, 3, SOFTWARE).error_code == 0
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0

    def test_after_the_log_in_there_is_no_other(self, client: RawClient) -> None:
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        assert handshake(client, "PLAIN").error_code == ILLEGAL_STATE
        answer = authenticate(client, b"x")
        after = "SaslAuthenticate request received after successful authentication"
        assert (answer.error_code, answer.error_message) == (ILLEGAL_STATE, after)
        assert is_served(client)

    def test_requests_are_small_before_the_log_in(self, client: RawClient) -> None:
        client.send_bytes(struct.pack(">i", 4097))
        assert client.is_closed_by_peer()

    def test_and_not_after_it(self, client: RawClient) -> None:
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        names = [{"name": f"{number:0100}"} for number in range(100)]
        assert len(client.ask(METADATA, 1, {"topics": names}).topics) == 100

    def test_everything_in_one_packet(self, client: RawClient) -> None:
        frames = [(API_VERSIONS, 0, b""), (SASL_HANDSHAKE, 1, b"\0\5PLAIN")]
        token = plain_token("alice", PASSWORD)
        frames += [(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token), (METADATA, 1, b"\0\0\0\0")]
        data = b"".join(request_frame(key, version, 1, body) for key, version, body in frames)
        client.send_bytes(data)
        for key, version, _ in frames:
            client.receive(key, version)

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_bare_tokens_after_a_handshake_of_version_0(self, client: RawClient, mechanism: str) -> None:
        def exchange(token: bytes) -> bytes:
            client.send_bytes(struct.pack(">i", len(token)) + token)
            return client.receive_frame()

        assert handshake(client, mechanism, version=0).error_code == 0
        if mechanism == "PLAIN":
            assert exchange(plain_token("alice", PASSWORD)) == b""
        else:
            scram = ScramClient(mechanism, "carol", "pencil")
            assert exchange(scram.final(exchange(scram.first()))).startswith(b"v=")
        assert is_served(client)

    def test_a_wrong_bare_token_has_no_answer(self, client: RawClient) -> None:
        handshake(client, "PLAIN", version=0)
        client.send_bytes(struct.pack(">i", 3) + b"a\0b")
        assert client.is_closed_by_peer()

    def test_a_client_that_is_gone_before_its_failure(self, guarded: Broker, client: RawClient) -> None:
        handshake(client, "PLAIN")
        client.send(SASL_AUTHENTICATE, 2, {"auth_bytes": b"x"})
        client.break_off()
        wait_until(lambda: not guarded.server.connections)

    @pytest.mark.parametrize("error", [ValueError("secret"), RecursionError()])
    def test_an_unexpected_error_is_a_failed_log_in(
        self, client: RawClient, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def evaluate(*_: object) -> bytes:
            raise error

        monkeypatch.setattr("duralog.broker.security.scram.ScramLogin.evaluate", evaluate)
        handshake(client, "SCRAM-SHA-256")
        answer = authenticate(client, b"n,,n=carol,r=abc")
        assert (answer.error_code, answer.error_message) == (FAILED, f"{INVALID} SCRAM-SHA-256")
        assert client.is_closed_by_peer()

    def test_a_slow_log_in_ends(self, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("duralog.broker.net.connection.LOGIN_MS", 20)
        client = connect()
        assert client.is_closed_by_peer()

    def test_mutated_log_ins_end_or_fail(self, guarded: Broker, connect: Connect) -> None:
        """No bytes let anyone in, none keeps a connection, and none is an unexpected error."""
        chance = random.Random(1)
        token = plain_token("alice", "wrong")
        body = struct.pack(">i", len(token)) + token
        first = ScramClient("SCRAM-SHA-256", "carol", "").first()
        conversations = [
            [(SASL_HANDSHAKE, b"\0\5PLAIN"), (SASL_AUTHENTICATE, body)],
            [(SASL_HANDSHAKE, b"\0\x0dSCRAM-SHA-256"), (SASL_AUTHENTICATE, struct.pack(">i", len(first)) + first)],
        ]
        for _ in range(150):
            frames = b"".join(request_frame(key, 1, 1, body) for key, body in chance.choice(conversations))
            data = bytearray(frames)
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            client = connect()
            client.send_bytes(bytes(data) + request_frame(METADATA, 1, 9, b"\xff\xff\xff\xff"))
            client.break_off() if chance.random() < 0.3 else client.close()
        wait_until(lambda: not guarded.server.connections)
        assert guarded.server.closed["unexpected"] == 0
        assert guarded.server.memory.used_bytes == 0


class TestSessions:
    def test_the_lifetime(self, connect: Connect) -> None:
        client = connect("SHORT")
        answer = scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil")
        assert answer.session_lifetime == 3_600_000
        assert is_served(client)

    def test_logging_in_again(self, connect: Connect) -> None:
        client = connect("SHORT")
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        answer = scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil", version=1)
        assert (answer.error_code, answer.session_lifetime) == (0, 3_600_000)
        assert is_served(client)
        # Not again within a second.
        assert handshake(client, "SCRAM-SHA-256").error_code == ILLEGAL_STATE

    def test_requests_are_small_while_logging_in_again(self, connect: Connect) -> None:
        client = connect("SHORT")
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        assert handshake(client, "SCRAM-SHA-256").error_code == 0
        client.send_bytes(struct.pack(">i", 4097))
        assert client.is_closed_by_peer()

    def test_and_not_afterwards(self, connect: Connect) -> None:
        client = connect("SHORT")
        for _ in range(2):
            assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        assert len(client.ask(METADATA, 1, {"topics": [{"name": "x" * 249}] * 40}).topics) == 1

    def test_not_as_someone_else(self, connect: Connect) -> None:
        client = connect("SHORT")
        handshake(client, "PLAIN")
        assert authenticate(client, plain_token("alice", "x")).error_code == 0
        handshake(client, "PLAIN")
        answer = authenticate(client, plain_token("bob", "y"))
        message = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert (answer.error_code, answer.error_message) == (FAILED, message)

    def test_not_by_another_mechanism(self, connect: Connect) -> None:
        client = connect("SHORT")
        handshake(client, "PLAIN")
        assert authenticate(client, plain_token("alice", "x")).error_code == 0
        assert handshake(client, "SCRAM-SHA-256").error_code == 0
        client.send(SASL_AUTHENTICATE, 2, {"auth_bytes": b"n,,n=carol,r=x"})
        assert client.is_closed_by_peer()

    def test_with_a_wrong_password(self, connect: Connect) -> None:
        client = connect("SHORT")
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        answer = scram_log_in(client, "SCRAM-SHA-256", "carol", "wrong")
        assert answer.error_message == INVALID.replace("during auth", "during re-auth") + " SCRAM-SHA-256"
        assert client.is_closed_by_peer()

    def test_the_end_of_a_session(self, guarded: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        client = connect("SHORT")
        assert scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code == 0
        now = guarded.server.now_ms
        monkeypatch.setattr(guarded.server, "now_ms", lambda: now() + 3_600_001)
        client.send(METADATA, 1, {"topics": []})
        assert client.is_closed_by_peer()


def test_no_secret_is_logged_or_shown(guarded: Broker, client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    handshake(client, "PLAIN")
    authenticate(client, plain_token("alice", "wr0ng"))
    client.is_closed_by_peer()
    credentials = guarded.store.scram_credentials
    for text in (caplog.text, repr(guarded.config), repr(credentials), str(vars(guarded.config))):
        for secret in (PASSWORD, "wr0ng", "pencil", "user_bob"):
            assert secret not in text
    assert all(credential.salt.hex() not in repr(credential) for credential in credentials.values())
