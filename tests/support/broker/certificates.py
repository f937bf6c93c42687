"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, encryption).decode()

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.certificate_pem

    def pkcs12(self, password: str) -> bytes:
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"broker", self.key, self.certificate, None, encryption)

    def written(self, path: Path) -> Path:
        path.write_text(self.pem())
        return path


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "test authority") -> None:
        self.signed = _signed(_name(name), None, is_authority=True)

    @property
    def pem(self) -> str:
        return self.signed.certificate_pem

    def sign(self, *name: tuple[x509.ObjectIdentifier, str], days: int = 30) -> Signed:
        """For localhost, and for a client of this name. It expires after this many days, or before now."""
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in name]) if name else _name("localhost")
        return _signed(subject, self.signed, days=days)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(subject: x509.Name, by: Signed | None, *, days: int = 30, is_authority: bool = False) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * _DAY)
        .not_valid_after(now + days * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(by.key if by is not None else key, hashes.SHA256())
    )
    return Signed(certificate, key)
