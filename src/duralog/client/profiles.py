"""How to reach brokers that want TLS or a log-in: a file in the names of Kafka's clients or of librdkafka.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem

Certificates are PEM files, or for the client's own one also PKCS#12; librdkafka reads no JKS. Errors name settings,
never values: some are secrets. A profile holds for one address, for the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from duralog.config.jaas import jaas_options
from duralog.errors import CorruptRecord, DuralogError, InvalidConfig
from duralog.format.java_properties import decode_properties
from duralog.storage.disk.file_source import read_small

CLIENT_CONFIG = "DURALOG_CLIENT_CONFIG"
"""The environment variable with the path of the default profile."""
PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = "sasl.jaas.config"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_SAME = frozenset(
    {
        *("sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location"),
        *("ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.cipher.suites"),
        *("enable.ssl.certificate.verification", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url"),
        *("sasl.oauthbearer.config", "sasl.oauthbearer.extensions", "enable.sasl.oauthbearer.unsecure.jwt"),
        *("sasl.kerberos.service.name", "client.id", "client.rack", "client.dns.lookup", "broker.address.family"),
        *("socket.connection.setup.timeout.ms", "metadata.max.age.ms", "reconnect.backoff.ms"),
        "reconnect.backoff.max.ms",
    }
)
"""Settings that librdkafka has under this name."""
_READ = frozenset(
    {
        *("security.protocol", "sasl.mechanism", "sasl.mechanisms", _JAAS, "ssl.endpoint.identification.algorithm"),
        *("ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type", "ssl.truststore.password"),
        *("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.key"),
        *("ssl.keystore.certificate.chain", "sasl.login.callback.handler.class"),
    }
)
"""Settings that are translated."""
_SECURITY = ("security.", "sasl.", "ssl.")
_PEM = b"-----BEGIN"

_by_address: dict[str, Mapping[str, str]] = {}


def use_profile(address: str, settings: Mapping[str, str]) -> None:
    """Reach the brokers at this address with these settings, in the names of librdkafka."""
    _by_address[address] = settings


def profile_of(address: str) -> Mapping[str, str]:
    """The settings for this address. Without any, those of the default profile, if there is one."""
    if address in _by_address:
        return _by_address[address]
    path = default_profile()
    return {} if path is None else read_profile(path)


def default_profile() -> str | None:
    """The file that `DURALOG_CLIENT_CONFIG` names, or `duralog/client.properties` in the user's folder for configs."""
    if named := os.environ.get(CLIENT_CONFIG):
        return named
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    path = os.path.join(folder, "duralog", "client.properties")
    return path if os.path.exists(path) else None


def read_profile(path: str, say_note: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """The settings of a file, in the names of librdkafka. `say_note` is called with what is left out."""
    data = read_small(path)
    if data is None:
        raise DuralogError(f"{path}: there is no such file: check --config-file and {CLIENT_CONFIG}")
    try:
        given = decode_properties(data).values
    except CorruptRecord as error:
        raise error.in_file(path) from None
    try:
        return _translated(given, path, say_note)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _translated(given: Mapping[str, str], path: str, say_note: Callable[[str], None]) -> dict[str, str]:
    unknown = sorted(name for name in given if name not in _SAME and name not in _READ)
    refused = [name for name in unknown if name.startswith(_SECURITY)]
    if refused:
        raise InvalidConfig(f"{refused[0]} is not supported: take it out if the broker can be reached without it")
    if unknown:
        say_note(f"{path}: not used: {', '.join(unknown)}")
    settings = {name: value for name, value in given.items() if name in _SAME}
    protocol = given.get("security.protocol", PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}, found {protocol[:40]}")
    settings["security.protocol"] = protocol
    if "SASL" in protocol:
        settings |= _log_in(given)
    settings |= _trusted(given)
    settings |= _own_certificate(given)
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        settings["ssl.endpoint.identification.algorithm"] = algorithm.lower() or "none"
    return settings


def _log_in(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism is None:
        raise InvalidConfig(f"sasl.mechanism is missing: give one of {', '.join(_MODULES)}")
    mechanism = mechanism.upper()
    settings = {"sasl.mechanisms": mechanism}
    text = given.get(_JAAS)
    if text is None:
        if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") and (
            "sasl.username" not in given or "sasl.password" not in given
        ):
            raise InvalidConfig(f"{mechanism} needs {_JAAS}, or sasl.username and sasl.password")
        return settings
    if mechanism not in _MODULES:
        raise InvalidConfig(f"{_JAAS} is not supported for {mechanism[:40]}, only for {', '.join(_MODULES)}")
    options = jaas_options(_JAAS, text, _MODULES[mechanism])
    if mechanism == "OAUTHBEARER":
        return settings | _token(given, options)
    for option in ("username", "password"):
        if option not in options:
            raise InvalidConfig(f"{_JAAS}: {option} is missing")
        settings[f"sasl.{option}"] = options[option]
    return settings


def _token(given: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={subject}"}
    if "clientId" not in options or "clientSecret" not in options:
        raise InvalidConfig(f"{_JAAS}: clientId and clientSecret are missing")
    if "sasl.oauthbearer.token.endpoint.url" not in given:
        raise InvalidConfig("sasl.oauthbearer.token.endpoint.url is missing")
    settings = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": options["clientId"],
        "sasl.oauthbearer.client.secret": options["clientSecret"],
    }
    return settings | ({"sasl.oauthbearer.scope": options["scope"]} if "scope" in options else {})


def _trusted(given: Mapping[str, str]) -> dict[str, str]:
    """The certificates of authorities that brokers are checked with."""
    if "ssl.truststore.certificates" in given:
        return {"ssl.ca.pem": given["ssl.truststore.certificates"]}
    location = given.get("ssl.truststore.location")
    if location is None:
        return {}
    if not _is_pem(location, "ssl.truststore.location"):
        raise InvalidConfig(
            f"ssl.truststore.location: {location} is not a PEM file:"
            " keytool -exportcert -rfc writes the certificates of a JKS or PKCS12 store as PEM"
        )
    return {"ssl.ca.location": location}


def _own_certificate(given: Mapping[str, str]) -> dict[str, str]:
    """The certificate and key that the client shows to a broker."""
    if "ssl.keystore.key" in given or "ssl.keystore.certificate.chain" in given:
        return {
            "ssl.key.pem": given.get("ssl.keystore.key", ""),
            "ssl.certificate.pem": given.get("ssl.keystore.certificate.chain", ""),
        }
    location = given.get("ssl.keystore.location")
    if location is None:
        return {}
    if _is_pem(location, "ssl.keystore.location"):
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if given.get("ssl.keystore.type", "").upper() != "PKCS12":
        raise InvalidConfig(
            f"ssl.keystore.location: {location} is not a PEM file: with ssl.keystore.type=PKCS12 it may be one of"
            " those; keytool -importkeystore -deststoretype PKCS12 writes a JKS store as PKCS12"
        )
    return {"ssl.keystore.location": location, "ssl.keystore.password": given.get("ssl.keystore.password", "")}


def _is_pem(location: str, name: str) -> bool:
    try:
        with open(location, "rb") as file:
            return _PEM in file.read(1 << 20)
    except OSError as error:
        raise InvalidConfig(f"{name}: {location}: {error.strerror}") from None
