"""`duralog user` on a directory, the credentials in the metadata log, and the JAAS configurations of users."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duralog.broker.broker import Broker
from duralog.cli.dump.typed_records import _without_secrets
from duralog.command_line import app
from duralog.config.jaas import jaas_options
from duralog.errors import CorruptRecord, InvalidConfig, InvalidRecord
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism, apply_removal
from duralog.storage.store import Store
from tests.support.broker.raw_client import RawClient

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SHA_256, SHA_512 = ScramMechanism
ALTER_CREDENTIALS, RESOURCE_NOT_FOUND = 51, 91
SERVER_SIGNATURE = b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
CLIENT_PROOF = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def run(*words: str, stdin: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["user", *words], input=stdin)
    return result.exit_code, result.stdout


def test_a_dump_shows_no_secret(tmp_path: Path) -> None:
    secret = "s3cret"
    with Store(str(tmp_path / "data")) as store:
        credential = ScramCredential.of_password(SHA_256, secret)
        store.alter_scram_credentials({("alice", SHA_256): credential})
        name = "listener.name.a.ssl.keystore.password"
        store.alter_configs_of(4, "", {name: secret, "log.retention.ms": "77"})
    keys = [b64encode(each).decode() for each in (credential.salt, credential.stored_key, credential.server_key)]
    dump = ["dump", str(tmp_path / "data" / "__cluster_metadata-0"), "--records", "--json"]
    printed = CliRunner().invoke(app, dump).stdout
    assert '"name":"alice"' in printed
    assert name in printed
    assert '"77"' in printed
    assert printed.count("[hidden]") == 4
    assert not any(each in printed for each in (secret, *keys))
    assert secret in CliRunner().invoke(app, [*dump, "--raw"]).stdout


def test_a_dump_shows_no_credential_of_a_later_version() -> None:
    later = {"type": "USER_SCRAM_CREDENTIAL_RECORD", "version": 9, "value": "c2VjcmV0"}
    assert _without_secrets(later) == {**later, "value": "[hidden]"}
    assert _without_secrets({"type": 999, "version": 0, "value": "eA=="})["value"] == "eA=="


class TestCommand:
    def test_before_the_first_start(self, tmp_path: Path) -> None:
        place = str(tmp_path / "data")
        code, _ = run("add", place, "--user", "alice", "--password-file", "-", stdin="secret\n")
        assert code == 0
        code, printed = run("list", place, "--json")
        assert [json.loads(line) for line in printed.splitlines()] == [
            {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
            {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        ]
        with Store(place, read_only=True) as store:
            held = store.scram_credentials["alice", SHA_256]
        assert held == ScramCredential.of_password(SHA_256, "secret", salt=held.salt)

    def test_one_mechanism(self, tmp_path: Path) -> None:
        place, password = str(tmp_path / "data"), tmp_path / "password"
        password.write_text("first line\nsecond\n")
        given = ("--mechanism", "scram-sha-512", "--iterations", "8192", "--password-file", str(password))
        assert run("add", place, "--user", "bob", *given)[0] == 0
        with Store(place, read_only=True) as store:
            ((name, mechanism), held) = next(iter(store.scram_credentials.items()))
        assert (name, mechanism, held.iterations) == ("bob", SHA_512, 8192)
        assert run("delete", place, "--user", "bob", "--mechanism", "SCRAM-SHA-256", "--yes")[0] == 1
        assert run("delete", place, "--user", "bob", "--yes")[0] == 0
        assert "There are no users" in run("list", place)[1]

    def test_a_directory_that_a_broker_has_open(self, tmp_path: Path) -> None:
        place = str(tmp_path / "data")
        with Store(place):
            words = ["user", "add", place, "--user", "a", "--password-file", "-"]
            refused = CliRunner().invoke(app, words, input="x\n")
        assert refused.exit_code == 1
        assert "To do this through the running broker, give its HOST:PORT" in " ".join(refused.stderr.split())

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("add", "--user", ""), 2),
            (("add", "--user", "a"), 2),
            (("add", "--user", "a", "--iterations", "100"), 2),
            (("add", "--user", "a", "--mechanism", "PLAIN", "--password-file", "-"), 1),
            (("delete", "--user", "nobody", "--yes"), 1),
            (("delete", "--user", "a"), 2),
        ],
    )
    def test_wrong_usage(self, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
        with Store(str(tmp_path / "data")):
            pass
        command, *rest = words
        assert run(command, str(tmp_path / "data"), *rest, stdin="x\n")[0] == code


class TestCredentials:
    def test_they_are_there_after_opening_again(self, tmp_path: Path) -> None:
        credential = ScramCredential.of_password(SHA_256, "pencil", salt=b"salt", iterations=5000)
        with Store(str(tmp_path)) as store:
            store.alter_scram_credentials({("a", SHA_256): credential, ("b", SHA_512): credential})
            store.alter_scram_credentials({("b", SHA_512): None})
            store.alter_scram_credentials({})
        with Store(str(tmp_path)) as store:
            assert store.scram_credentials == {("a", SHA_256): credential}

    def test_the_example_of_the_rfc(self) -> None:
        """RFC 7677: the signature of the server, and the proof of the client, from the stored keys."""
        held = ScramCredential.of_password(SHA_256, "pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
        nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
        first = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        signed = f"{first},c=biws,r={nonce}".encode()
        assert b64encode(hmac.digest(held.server_key, signed, "sha256")) == SERVER_SIGNATURE
        signature = hmac.digest(held.stored_key, signed, "sha256")
        client_key = bytes(a ^ b for a, b in zip(signature, b64decode(CLIENT_PROOF), strict=True))
        assert hashlib.sha256(client_key).digest() == held.stored_key

    def test_nothing_is_shown(self) -> None:
        shown = repr(ScramCredential.of_password(SHA_256, "pencil"))
        assert shown == "ScramCredential(iterations=4096)"

    @pytest.mark.parametrize("iterations", [0, 4095, 16385])
    def test_iterations_that_kafka_refuses(self, iterations: int) -> None:
        with pytest.raises(InvalidConfig, match="from 4096 to 16384"):
            ScramCredential.of_password(SHA_256, "pencil", iterations=iterations)

    def test_what_does_not_exist_cannot_be_removed(self, tmp_path: Path) -> None:
        credential = ScramCredential.of_password(SHA_256, "pencil")
        with Store(str(tmp_path)) as store:
            store.alter_scram_credentials({("a", SHA_256): credential, ("b", SHA_256): credential})
            store.alter_scram_credentials({("a", SHA_256): None})
            with pytest.raises(InvalidRecord, match="the user a has no credential for SCRAM-SHA-256"):
                store.alter_scram_credentials({("b", SHA_256): None, ("a", SHA_256): None})
            store.alter_scram_credentials({("c", SHA_512): credential})
        with Store(str(tmp_path)) as store:
            assert set(store.scram_credentials) == {("b", SHA_256), ("c", SHA_512)}

    def test_clients_that_remove_one_user_at_the_same_time(
        self, broker: Broker, connect: Callable[[], RawClient]
    ) -> None:
        clients = [connect() for _ in range(4)]
        user = {"name": "a", "mechanism": 1}
        removal = {"deletions": [user], "upsertions": []}
        added = user | {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
        for _ in range(10):
            clients[0].ask(ALTER_CREDENTIALS, 0, {"deletions": [], "upsertions": [added]})
            for client in clients:
                client.send(ALTER_CREDENTIALS, 0, removal)
            results = [client.receive(ALTER_CREDENTIALS, 0).results[0] for client in clients]
            assert sorted(result.error_code for result in results) == [0] + [RESOURCE_NOT_FOUND] * 3
        assert broker.store.scram_credentials == {}

    def test_a_removal_of_nothing_is_skipped(self, caplog: pytest.LogCaptureFixture) -> None:
        apply_removal({}, {"name": "a\n", "mechanism": 1})
        assert "removes a SCRAM-SHA-256 credential of the user 'a\\n', who has none" in caplog.messages[0]
        with pytest.raises(CorruptRecord, match="a later Kafka"):
            apply_removal({}, {"name": "a", "mechanism": 3})


class TestJaas:
    @pytest.mark.parametrize(
        ("options", "parsed"),
        [
            ("", {}),
            ('user_a="x"', {"user_a": "x"}),
            ("user_a=x\n  user_b='y z'", {"user_a": "x", "user_b": "y z"}),
            ('user_a="q\\"\\\\;=" user_b=""', {"user_a": 'q"\\;=', "user_b": ""}),
            ('user_a@b.c="1"', {"user_a@b.c": "1"}),
        ],
    )
    def test_options(self, options: str, parsed: dict[str, str]) -> None:
        assert jaas_options("x", f"{MODULE} required {options};", MODULE) == parsed

    @pytest.mark.parametrize(
        "text",
        [
            "",
            ";",
            MODULE,
            f"{MODULE} required",
            f"{MODULE} always;",
            f"{MODULE} required user_a=secret1",
            f'{MODULE} required user_a="secret1;',
            f"{MODULE} required user_a=secret1; {MODULE} required user_b=secret1;",
            "org.example.OtherModule required user_a=secret1;",
        ],
    )
    def test_what_is_refused_is_not_shown(self, text: str) -> None:
        with pytest.raises(InvalidConfig, match=r"listener\.x") as raised:
            jaas_options("listener.x", text, MODULE)
        assert "secret1" not in str(raised.value)
