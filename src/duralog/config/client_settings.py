"""Client settings for TLS and log-ins: translates the names of Kafka's clients to librdkafka's.

Certificates are PEM files, or for the client's own one also PKCS#12; librdkafka reads no JKS. Errors name settings,
never values: some are secrets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from duralog.config.jaas import jaas_options
from duralog.errors import InvalidConfig

PLAINTEXT = "PLAINTEXT"
_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = "sasl.jaas.config"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_MECHANISMS = (*_MODULES, "GSSAPI")
_PEM_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
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
KNOWN = _SAME | _READ
SECURITY = ("security.", "sasl.", "ssl.")
_PEM = b"-----BEGIN"


def librdkafka_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings in the names of librdkafka. REQUIRES: all are `KNOWN`."""
    settings = {name: value for name, value in given.items() if name in _SAME}
    protocol = given.get("security.protocol", PLAINTEXT).upper()
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"security.protocol: expected one of {', '.join(_PROTOCOLS)}, found {protocol[:40]}")
    settings["security.protocol"] = protocol
    if "SASL" in protocol:
        settings |= _log_in(given)
    for name in _PEM_FILES:
        _check_pem(name, given.get(name, ""))
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
    if mechanism not in _MECHANISMS:
        raise InvalidConfig(f"sasl.mechanism: expected one of {', '.join(_MECHANISMS)}, found {mechanism[:40]}")
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
    """The authorities that brokers' certificates are verified with."""
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


def _check_pem(name: str, location: str) -> None:
    """The error of librdkafka names neither the setting nor the file.

    It also takes a folder of authorities, and `probe`.
    """
    is_special = name == "ssl.ca.location" and (location == "probe" or os.path.isdir(location))
    if location and not is_special and not _is_pem(location, name):
        raise InvalidConfig(f"{name}: {location} is not a PEM file")


def _is_pem(location: str, name: str) -> bool:
    try:
        with open(location, "rb") as file:
            return _PEM in file.read(1 << 20)
    except OSError as error:
        raise InvalidConfig(f"{name}: {location}: {error.strerror}") from None
