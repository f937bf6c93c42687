"""Settings for brokers with TLS or a log-in: a file with the names of Kafka's clients or of librdkafka.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem

`duralog.config.client_settings` translates the names. A profile holds for one address, for the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from duralog.config.client_settings import KNOWN, SECURITY, librdkafka_settings
from duralog.config.definitions import nearest
from duralog.errors import CorruptRecord, DuralogError, InvalidConfig
from duralog.format.java_properties import decode_properties
from duralog.storage.disk.file_source import read_small

CLIENT_CONFIG = "DURALOG_CLIENT_CONFIG"
"""The environment variable with the path of the default profile."""

_by_address: dict[str, Mapping[str, str]] = {}


def use_profile(address: str, settings: Mapping[str, str]) -> None:
    """Use these settings, in librdkafka's names, for the brokers at this address."""
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
    """The settings of a file, in the names of librdkafka. `say_note` is called with the ignored settings."""
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
    unknown = sorted(given.keys() - KNOWN)
    refused = [name for name in unknown if name.startswith(SECURITY)]
    if refused:
        meant = nearest(refused[0], KNOWN - given.keys())
        what_next = meant or ": remove it if the broker can be reached without it"
        raise InvalidConfig(f"{refused[0]} is not supported{what_next}")
    if unknown:
        say_note(f"{path}: not used: {', '.join(unknown)}")
    return librdkafka_settings({name: value for name, value in given.items() if name in KNOWN})
