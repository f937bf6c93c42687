"""OAUTHBEARER: signed tokens with keys from a file and an address, and every token that must be refused."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.broker.security.failures import LoginFailed
from duralog.broker.security.oauthbearer import OauthbearerLogin, UnsecuredTokens
from duralog.broker.security.token_keys import TokenKeys
from duralog.config import BrokerConfig
from duralog.errors import DuralogError, InvalidConfig
from tests.support.broker.logins import authenticate, handshake
from tests.support.broker.raw_client import RawClient

METADATA, FAILED, ILLEGAL_STATE = 3, 58, 34
INVALID = '{"status":"invalid_token"}'
OF = "org.apache.kafka.common.security.oauthbearer."


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    return {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "foreign": ec.generate_private_key(ec.SECP256R1()),
    }


def key_set(keys: dict[str, Any]) -> dict[str, Any]:
    rsa_key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(keys["rsa"].public_key()))
    ec_key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(keys["ec"].public_key()))
    secret = {"kty": "oct", "kid": "secret", "k": base64.urlsafe_b64encode(b"x" * 32).decode(), "alg": "HS256"}
    return {"keys": [{**rsa_key, "kid": "rsa", "use": "sig", "alg": "RS256"}, {**ec_key, "kid": "ec"}, secret]}


@pytest.fixture(scope="module")
def guarded(keys: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps(key_set(keys)))
    config = BrokerConfig.of(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,OPEN://127.0.0.1:0",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka,logs",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.clock.skew.seconds": "10",
            "listener.name.open.oauthbearer.sasl.server.callback.handler.class": OF
            + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
            "connection.failed.authentication.delay.ms": "1",
        }
    )
    with Broker(None, config=config, listening=Listening.of(config)) as broker:
        yield broker.start()


@pytest.fixture
def connect(guarded: Broker) -> Iterator[Callable[..., RawClient]]:
    clients: list[RawClient] = []

    def connect(listener: str = "SASL_PLAINTEXT") -> RawClient:
        clients.append(RawClient("127.0.0.1", guarded.addresses[listener].port))
        assert handshake(clients[-1], "OAUTHBEARER").error_code == 0
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 600, **changed}
    return {name: value for name, value in made.items() if value is not None}


def response(token: str, user: str = "") -> bytes:
    return f"n,{f'a={user}' if user else ''},\1auth=Bearer {token}\1\1".encode()


def unsigned(fields: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    def encoded(part: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    return f"{encoded(header or {'alg': 'none'})}.{encoded(fields)}."


@pytest.mark.parametrize(("key", "algorithm"), [("rsa", "RS256"), ("rsa", "RS512"), ("ec", "ES256")])
@pytest.mark.parametrize("user", ["", "alice"])
def test_signed(
    guarded: Broker, connect: Callable[..., RawClient], keys: dict[str, Any], key: str, algorithm: str, user: str
) -> None:
    client = connect()
    token = jwt.encode(claims(scope=["a", "b"]), keys[key], algorithm, headers={"kid": key})
    answer = authenticate(client, response(token, user))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert 590_000 < answer.session_lifetime <= 600_000
    assert client.ask(METADATA, 1, {"topics": []}).controller_id >= 0
    assert "User:alice" in [str(connection.principal) for connection in guarded.server.connections]


def wrong_tokens(keys: dict[str, Any]) -> dict[str, str]:
    now = int(time.time())
    sign = partial(jwt.encode, key=keys["ec"], algorithm="ES256", headers={"kid": "ec"})
    public = keys["rsa"].public_key()
    right = sign(claims())
    return {
        "ended": sign(claims(exp=now - 11)),
        "issued in the future": sign(claims(iat=now + 100)),
        "no end": sign(claims(exp=None)),
        "no issue time": sign(claims(iat=None)),
        "no user": sign(claims(sub=None)),
        "empty user": sign(claims(sub="")),
        "other issuer": sign(claims(iss="https://other")),
        "other audience": sign(claims(aud="other")),
        "no audience": sign(claims(aud=None)),
        "scope of numbers": sign(claims(scope=[1])),
        "foreign key": jwt.encode(claims(), keys["foreign"], "ES256", headers={"kid": "ec"}),
        "unknown key": jwt.encode(claims(), keys["ec"], "ES256", headers={"kid": "none"}),
        "no key id": jwt.encode(claims(), keys["ec"], "ES256"),
        "another key's id": jwt.encode(claims(), keys["ec"], "ES256", headers={"kid": "rsa"}),
        "shared secret": jwt.encode(claims(), b"x" * 32, "HS256", headers={"kid": "secret"}),
        "public key as secret": jwt.encode(claims(), str(public.public_numbers().n), "HS256", headers={"kid": "rsa"}),
        "unsigned": unsigned(claims()),
        "unsigned with a key id": unsigned(claims(), {"alg": "none", "kid": "ec"}),
        "signature cut off": right.rpartition(".")[0] + ".",
        "changed claims": ".".join(
            [right.split(".")[0], unsigned(claims(sub="root")).split(".")[1], right.split(".")[2]]
        ),
        "nothing": "x",
    }


CASES = """ended|issued in the future|no end|no issue time|no user|empty user|other issuer|other audience|no audience|
scope of numbers|foreign key|unknown key|no key id|another key's id|shared secret|public key as secret|unsigned|
unsigned with a key id|signature cut off|changed claims|nothing""".replace("\n", "").split("|")


def test_the_reason_is_for_the_log_and_not_for_the_client() -> None:
    login = OauthbearerLogin(UnsecuredTokens())
    assert login.evaluate(response("x")) == INVALID.encode()
    with pytest.raises(LoginFailed) as raised:
        login.evaluate(b"\1")
    assert (str(raised.value), raised.value.reason) == (INVALID, "the token is not a JWT")


@pytest.mark.parametrize("case", CASES)
def test_wrong(connect: Callable[..., RawClient], keys: dict[str, Any], case: str) -> None:
    tokens = wrong_tokens(keys)
    assert sorted(tokens) == sorted(CASES)
    client = connect()
    answer = authenticate(client, response(tokens[case]))
    assert (answer.error_code, answer.auth_bytes) == (0, INVALID.encode())
    answer = authenticate(client, b"\1")
    assert (answer.error_code, answer.error_message) == (FAILED, INVALID)
    assert client.is_closed_by_peer()


def test_a_refused_token_lets_no_one_in(connect: Callable[..., RawClient]) -> None:
    client = connect()
    authenticate(client, response("x"))
    assert client.ask(36, 2, {"auth_bytes": b"\1"}).error_code == FAILED


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"n,,\1\1", b"n,,\1auth=Basic x\1\1", b"n,,\1auth=Bearer \1\1", b"\xff" * 50]
)
def test_messages_that_are_none(connect: Callable[..., RawClient], data: bytes) -> None:
    answer = authenticate(connect(), data)
    assert answer.error_code == FAILED
    assert "due to invalid credentials with SASL mechanism OAUTHBEARER" in answer.error_message


def test_another_user_than_the_tokens(connect: Callable[..., RawClient], keys: dict[str, Any]) -> None:
    token = jwt.encode(claims(), keys["ec"], "ES256", headers={"kid": "ec"})
    answer = authenticate(connect(), response(token, "root"))
    assert answer.error_code == FAILED
    assert (
        "an authorization id (root) that is different from the token's principal name (alice)" in answer.error_message
    )


class TestUnsecured:
    def test_on_loopback_if_asked_for(self, connect: Callable[..., RawClient], keys: dict[str, Any]) -> None:
        assert authenticate(connect("OPEN"), response(unsigned(claims()))).error_code == 0
        signed = jwt.encode(claims(), keys["ec"], "ES256", headers={"kid": "ec"})
        for token in (unsigned(claims(exp=1)), unsigned({"sub": "a"}), signed, "a.b.", "x"):
            assert authenticate(connect("OPEN"), response(token)).auth_bytes == INVALID.encode()

    @pytest.mark.parametrize(
        ("host", "handler", "reason"),
        [
            ("0.0.0.0", "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler", "on loopback only"),
            ("127.0.0.1", "OAuthBearerValidatorCallbackHandler", "needs sasl.oauthbearer.jwks.endpoint.url"),
            ("127.0.0.1", "Own", "is a Java class, which cannot run here"),
            ("127.0.0.1", None, "needs sasl.oauthbearer.jwks.endpoint.url"),
        ],
    )
    def test_what_is_refused(self, host: str, handler: str | None, reason: str) -> None:
        configs = {"listeners": f"SASL_PLAINTEXT://{host}:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
        if handler is not None:
            configs["listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"] = OF + handler
        config = BrokerConfig.of(configs)
        with pytest.raises(InvalidConfig, match=reason):
            Broker(None, config=config, listening=Listening.of(config)).open()


class _Issuer(BaseHTTPRequestHandler):
    keys: dict[str, Any] = {}  # noqa: RUF012
    asked = 0
    status = 200

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "file:///etc/passwd")
        self.end_headers()
        self.wfile.write(json.dumps(self.keys).encode())

    def log_message(self, *_: Any) -> None:
        pass


class TestKeysFromAnAddress:
    @pytest.fixture
    def issuer(self, keys: dict[str, Any]) -> Iterator[HTTPServer]:
        _Issuer.asked, _Issuer.status, _Issuer.keys = 0, 200, key_set(keys)
        with HTTPServer(("127.0.0.1", 0), _Issuer) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            yield server
            server.shutdown()
            thread.join()

    def test_they_are_fetched_when_they_are_needed(self, issuer: HTTPServer) -> None:
        now = 0.0
        found = TokenKeys(f"http://127.0.0.1:{issuer.server_port}/", 60_000, clock=lambda: now)
        assert _Issuer.asked == 0
        assert found.find("ec").key_type == "EC"
        assert found.find("rsa").key_type == "RSA"
        assert _Issuer.asked == 1
        for _ in range(5):  # Not more than once in ten seconds, whatever tokens say.
            with pytest.raises(DuralogError, match="not known"):
                found.find("none")
        assert _Issuer.asked == 1
        now = 11.0
        with pytest.raises(DuralogError, match="not known"):
            found.find("secret")
        assert _Issuer.asked == 2
        now, _Issuer.status = 100.0, 500
        assert found.find("ec").key_type == "EC"
        assert _Issuer.asked == 3

    def test_one_slow_fetch_holds_up_no_known_key(self, issuer: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0
        found = TokenKeys(f"http://127.0.0.1:{issuer.server_port}/", 60_000, clock=lambda: now)
        found.find("ec")
        now = 100.0
        begun, may_end = threading.Event(), threading.Event()

        def slow(_: str) -> Any:
            begun.set()
            may_end.wait(30)
            raise InvalidConfig("no keys")

        monkeypatch.setattr("duralog.broker.security.token_keys._fetched", slow)
        thread = threading.Thread(target=found.find, args=("rsa",))
        thread.start()
        try:
            assert begun.wait(30)
            assert found.find("ec").key_type == "EC"
        finally:
            may_end.set()
            thread.join()

    @pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (1 << 20) + b"{}"])
    def test_an_answer_that_is_none_leaves_the_keys(
        self, issuer: HTTPServer, monkeypatch: pytest.MonkeyPatch, answer: bytes
    ) -> None:
        now = 0.0
        found = TokenKeys(f"http://127.0.0.1:{issuer.server_port}/", 60_000, clock=lambda: now)
        found.find("ec")
        now = 100.0
        monkeypatch.setattr(_Issuer, "do_GET", lambda handler: handler.wfile.write(answer))
        assert found.find("ec").key_type == "EC"

    def test_redirects_are_not_followed(self, issuer: HTTPServer) -> None:
        _Issuer.status = 302
        with pytest.raises(DuralogError, match="not known"):
            TokenKeys(f"http://127.0.0.1:{issuer.server_port}/", 60_000).find("ec")

    @pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://x/", "/etc/keys.json"])
    def test_addresses_that_could_be_forged(self, url: str) -> None:
        with pytest.raises(InvalidConfig, match="is not an https or file URL"):
            TokenKeys(url, 1)

    def test_one_that_is_unknown_does_not_disable_the_others(
        self, keys: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "jwks.json"
        good = key_set(keys)["keys"]
        for_encryption = {**good[0], "kid": "enc", "alg": "RSA-OAEP"}
        for_encryption.pop("use")
        curve = {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA", "kid": "curve"}
        path.write_text(json.dumps({"keys": [curve, *good, for_encryption]}))
        assert TokenKeys(path.as_uri(), 1000).find("rsa").key_id == "rsa"
        (line,) = [each.getMessage() for each in caplog.records]
        assert "2 keys of" in line
        assert "'curve'" in line
        assert "'enc'" in line

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "RSA"}]}', '{"keys": 1}'])
    def test_files_that_hold_none(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "jwks.json"
        path.write_text(text)
        with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
            TokenKeys(path.as_uri(), 1)
