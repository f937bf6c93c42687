"""Certificates and keys from files or configs, as PEM: what OpenSSL reads.

| ssl.keystore.type | what is read |
|---|---|
| PEM | certificates and a key, from a file or from the configs themselves |
| PKCS12 | the one key of the file with its chain; this needs `cryptography` |
| JKS, the default | a PKCS12 file, as in Java; the error of a JKS file has the command to convert it |

Keys never touch the disk: OpenSSL reads them from a file in memory.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from duralog.config.listener_config import ListenerConfig
from duralog.errors import InvalidConfig, MissingExtra

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL
)
_LARGEST_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """Of one listener. Equal if nothing has to be loaded again."""

    chain: bytes = field(repr=False)
    key: bytes = field(repr=False)
    key_password: str | None = field(repr=False)
    trusted: bytes = field(repr=False)
    """Certificates; empty for none."""


def key_material(config: ListenerConfig) -> KeyMaterial:
    """Reads the files. Raises InvalidConfig with the name of the config."""
    chain, key, password = _keystore(config)
    return KeyMaterial(chain, key, password, _truststore(config))


def load_into(context: ssl.SSLContext, material: KeyMaterial) -> None:
    with _in_memory(material.chain) as chain, _in_memory(material.key) as key:
        context.load_cert_chain(chain, key, password=lambda: material.key_password or "")
    if material.trusted:
        context.load_verify_locations(cadata=material.trusted.decode("ascii", "replace"))


def _keystore(config: ListenerConfig) -> tuple[bytes, bytes, str | None]:
    chain, key = config.secret("ssl.keystore.certificate.chain"), config.secret("ssl.keystore.key")
    key_password = config.secret("ssl.key.password")
    location = config.get("ssl.keystore.location")
    if chain is not None or key is not None:
        if chain is None or key is None or location is not None:
            raise InvalidConfig(
                "ssl.keystore.certificate.chain and ssl.keystore.key go together, without ssl.keystore.location"
            )
        return (*_pem_key("ssl.keystore.key", f"{chain}\n{key}".encode()), key_password)
    if location is None:
        raise InvalidConfig(f"a TLS listener needs {config.prefix}ssl.keystore.location, the file with its certificate")
    name = "ssl.keystore.location"
    data = _read(name, location)
    password = config.secret("ssl.keystore.password")
    if config.get("ssl.keystore.type") == "PEM":
        return (*_pem_key(f"{name} ({location})", data), key_password)
    _check_pkcs12(name, location, data)
    return _pkcs12_key(f"{name} ({location})", data, password)


def _truststore(config: ListenerConfig) -> bytes:
    text, location = config.secret("ssl.truststore.certificates"), config.get("ssl.truststore.location")
    if text is not None:
        return _certificates("ssl.truststore.certificates", text.encode())
    if location is None:
        return b""
    name = "ssl.truststore.location"
    data = _read(name, location)
    if config.get("ssl.truststore.type") == "PEM":
        return _certificates(f"{name} ({location})", data)
    _check_pkcs12(name, location, data)
    return _pkcs12_certificates(f"{name} ({location})", data, config.secret("ssl.truststore.password"))


def _read(name: str, location: str) -> bytes:
    try:
        with open(location, "rb") as file:
            return file.read(_LARGEST_FILE_BYTES)
    except OSError as error:
        raise InvalidConfig(f"{name}: {location} cannot be read: {error.strerror}") from None


def _pem_key(place: str, data: bytes) -> tuple[bytes, bytes]:
    keys = _PRIVATE_KEY.findall(data)
    if len(keys) != 1:
        raise InvalidConfig(f"{place}: expected one private key in PEM, found {len(keys)}")
    return _certificates(place, data), keys[0]


def _certificates(place: str, data: bytes) -> bytes:
    found = _CERTIFICATE.findall(data)
    if not found:
        raise InvalidConfig(f"{place}: expected certificates in PEM, found none")
    return b"\n".join(found) + b"\n"


def _check_pkcs12(name: str, location: str, data: bytes) -> None:
    if data.startswith(_JKS_MAGIC):
        raise InvalidConfig(
            f"{name}: {location} is a JKS file, which only Java reads. Convert it: keytool -importkeystore"
            f" -srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12; then set"
            f" {name.replace('location', 'type')}=PKCS12"
        )
    if not data.startswith(_DER_SEQUENCE):
        kind = f"PEM: set {name.replace('location', 'type')}=PEM" if b"-----BEGIN" in data else "not PKCS12"
        raise InvalidConfig(f"{name}: {location} is {kind}")


def _pkcs12_key(place: str, data: bytes, password: str | None) -> tuple[bytes, bytes, str | None]:
    pkcs12, serialization = _cryptography()
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except ValueError:
        raise InvalidConfig(f"{place}: the PKCS12 file cannot be read: check ssl.keystore.password") from None
    if key is None or certificate is None:
        raise InvalidConfig(f"{place}: expected a private key with its certificate, found none")
    encoding = serialization.Encoding.PEM
    chain = b"".join(each.public_bytes(encoding) for each in (certificate, *more))
    pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return chain, pem, None


def _pkcs12_certificates(place: str, data: bytes, password: str | None) -> bytes:
    pkcs12, serialization = _cryptography()
    try:
        _, certificate, more = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except ValueError:
        raise InvalidConfig(f"{place}: the PKCS12 file cannot be read: check ssl.truststore.password") from None
    found = [each for each in (certificate, *more) if each is not None]
    if not found:
        raise InvalidConfig(f"{place}: expected certificates, found none")
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def _cryptography() -> tuple[Any, Any]:
    """The modules of `cryptography` for PKCS12."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingExtra("for PKCS12 files", "cryptography", extra="security") from None
    return pkcs12, serialization


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The name of a file that is only in memory: OpenSSL takes names alone."""
    descriptor = os.memfd_create("duralog-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
