"""`--config-file`: what becomes of settings of Kafka's clients, what is refused, and that no secret is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from duralog.client.connection import client_settings
from duralog.client.profiles import default_profile, profile_of, read_profile, use_profile
from duralog.command_line import app
from duralog.errors import DuralogError

MODULES = "org.apache.kafka.common.security"
PLAIN = f"sasl.jaas.config={MODULES}.plain.PlainLoginModule required"


@pytest.fixture(autouse=True)
def _no_default_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configs"))
    monkeypatch.delenv("DURALOG_CLIENT_CONFIG", raising=False)


def profile(tmp_path: Path, *lines: str) -> Path:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines).replace("HERE", str(tmp_path)))
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], {"security.protocol": "PLAINTEXT"}),
        (
            [
                *("security.protocol=sasl_ssl", "sasl.mechanism=PLAIN", f'{PLAIN} username="u" password="p\\\\"q";'),
                *("ssl.truststore.type=PEM", "ssl.truststore.location=HERE/ca.pem"),
                *("ssl.truststore.password=unused", "ssl.endpoint.identification.algorithm="),
            ],
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "u",
                "sasl.password": 'p"q',
                "ssl.ca.location": "HERE/ca.pem",
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (
            ["security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=SCRAM-SHA-256", "sasl.username=u", "sasl.password=p"],
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "SCRAM-SHA-256",
                "sasl.username": "u",
                "sasl.password": "p",
            },
        ),
        (
            [
                *("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER", "ssl.ca.location=HERE/ca.pem"),
                f"sasl.jaas.config={MODULES}.oauthbearer.OAuthBearerLoginModule required"
                ' clientId="i" clientSecret="s" scope="all";',
                "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token",
            ],
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "all",
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
                "ssl.ca.location": "HERE/ca.pem",
            },
        ),
        (
            ["security.protocol=SSL", "ssl.keystore.location=HERE/ca.pem", "ssl.key.password=k"],
            {
                "security.protocol": "SSL",
                "ssl.certificate.location": "HERE/ca.pem",
                "ssl.key.location": "HERE/ca.pem",
                "ssl.key.password": "k",
            },
        ),
        (
            [
                *("security.protocol=SSL", "ssl.keystore.type=PKCS12", "ssl.keystore.location=HERE/store.jks"),
                *("ssl.keystore.password=k", "ssl.truststore.certificates=PEM"),
            ],
            {
                "security.protocol": "SSL",
                "ssl.keystore.location": "HERE/store.jks",
                "ssl.keystore.password": "k",
                "ssl.ca.pem": "PEM",
            },
        ),
    ],
)
def test_settings_are_translated(tmp_path: Path, lines: list[str], expected: dict[str, str]) -> None:
    here = {name: value.replace("HERE", str(tmp_path)) for name, value in expected.items()}
    assert read_profile(str(profile(tmp_path, *lines))) == here


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["security.protocol=TLS"], "security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (["security.protocol=SASL_SSL"], "sasl.mechanism is missing"),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.password=SECRET"],
            "PLAIN needs sasl.jaas.config, or sasl.username and sasl.password",
        ),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", f'{PLAIN} password="SECRET";'],
            "sasl.jaas.config: username is missing",
        ),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", f'{PLAIN} username="u" password="SECRET"'],
            "ends with a semicolon",
        ),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-256", f'{PLAIN} username="u" password="SECRET";'],
            "expected the login module org.apache.kafka.common.security.scram.ScramLoginModule",
        ),
        (["security.protocol=SSL", "ssl.truststore.location=HERE/store.jks"], "store.jks is not a PEM file"),
        (["security.protocol=SSL", "ssl.truststore.location=HERE/none.pem"], "none.pem: No such file"),
        (["security.protocol=SSL", "ssl.keystore.location=HERE/store.jks"], "ssl.keystore.type=PKCS12"),
        (["security.protocol=SSL", "ssl.ca.location=HERE/none.pem"], "ssl.ca.location: HERE/none.pem: No such file"),
        (["security.protocol=SSL", "ssl.ca.location=HERE/store.jks"], "store.jks is not a PEM file"),
        (["security.protocol=SSL", "ssl.key.location=HERE/none.pem"], "ssl.key.location: HERE/none.pem: No such file"),
        (
            ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-1", "sasl.username=u", "sasl.password=SECRET"],
            "SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, found SCRAM-SHA-1",
        ),
        (["ssl.provider=SECRET"], "ssl.provider is not supported"),
        (["sasl.pasword=SECRET"], "sasl.pasword is not supported; did you mean sasl.password"),
    ],
)
def test_what_is_refused(tmp_path: Path, lines: list[str], told: str) -> None:
    path = profile(tmp_path, *lines)
    result = CliRunner().invoke(app, ["topic", "list", "127.0.0.1:1", "--config-file", str(path)])
    assert result.exit_code == 1
    assert told.replace("HERE", str(tmp_path)) in result.stderr
    assert str(path) in result.stderr
    assert "SECRET" not in result.output


def test_settings_without_a_meaning_are_named(tmp_path: Path) -> None:
    notes: list[str] = []
    path = profile(tmp_path, "group.id=x", "bootstrap.servers=elsewhere:1", "client.id=me")
    assert read_profile(str(path), notes.append) == {"security.protocol": "PLAINTEXT", "client.id": "me"}
    assert notes == [f"{path}: not used: bootstrap.servers, group.id"]


def test_a_port_that_is_none() -> None:
    for command in ("topic", "group", "config"):
        result = CliRunner().invoke(app, [command, "list", "127.0.0.1:1,127.0.0.1:99999"])
        assert result.exit_code == 1
        assert "'127.0.0.1:99999' is not an address: give HOST:PORT, with a port up to 65535" in result.stderr


def test_a_profile_is_for_one_address(tmp_path: Path) -> None:
    use_profile("profiled:1", {"client.id": "me"})
    assert client_settings("profiled:1")["client.id"] == "me"
    assert client_settings("other:1")["client.id"] == "duralog"
    assert client_settings("profiled:1", **{"group.id": "g"})["bootstrap.servers"] == "profiled:1"


def test_the_default_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_profile() is None
    (tmp_path / "configs" / "duralog").mkdir(parents=True)
    usual = tmp_path / "configs" / "duralog" / "client.properties"
    usual.write_text("client.id=usual")
    assert profile_of("any:1")["client.id"] == "usual"
    named = profile(tmp_path, "client.id=named")
    monkeypatch.setenv("DURALOG_CLIENT_CONFIG", str(named))
    assert profile_of("any:1")["client.id"] == "named"
    monkeypatch.setenv("DURALOG_CLIENT_CONFIG", str(tmp_path / "missing"))
    with pytest.raises(DuralogError, match="there is no such file: check --config-file and DURALOG_CLIENT_CONFIG"):
        profile_of("any:1")


def test_a_directory_needs_no_profile(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["topic", "list", str(tmp_path), "--config-file", "x"], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert "--config-file is for a broker" in result.stderr
