"""Guarded listeners of a broker under test: their configs, which both brokers understand, and log-ins to them."""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from bench.workers.broker_wire import frame
from duralog.broker.wire import messages
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from duralog.storage.store import Store

USER, PASSWORD, MECHANISM = "bench", "secret", "SCRAM-SHA-256"
_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_LOGINS_PER_SECOND = 200


def make_certificate(folder: Path) -> Path:
    """A key of 2,048 bits and a certificate that signs itself, in one file."""
    path = folder / "broker.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*command, "-subj", "/CN=localhost", "-addext", names], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def guarded_settings(certificate: Path, ports: dict[str, int]) -> dict[str, object]:
    """The configs beyond the plain listener: SSL, and SASL_SSL with SCRAM."""
    prefix = "listener.name.sasl_ssl."
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificate,
        f"{prefix}sasl.enabled.mechanisms": MECHANISM,
        f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": _JAAS,
    }


def client_settings(certificate: Path, port: int) -> list[str]:
    """Of Kafka's client, for the SSL listener."""
    return [
        f"bootstrap.servers=127.0.0.1:{port}",
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificate}.crt",
    ]


def add_user(directory: Path) -> None:
    with Store(str(directory)) as store:
        mechanism = ScramMechanism.of(MECHANISM)
        store.alter_scram_credentials({(USER, mechanism): ScramCredential.of_password(mechanism, PASSWORD)})


class Logins:
    """A client that logs in to the SASL_SSL listener, and out. The iterations are done once, as clients do it."""

    def __init__(self, certificate: str, port: int) -> None:
        self._context = ssl.create_default_context(cafile=certificate)
        self._port = port
        self._salted: dict[bytes, bytes] = {}

    def log_in(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._context.wrap_socket(plain, server_hostname="localhost") as connected:
            self._ask(connected, _SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
            bare = f"n={USER},r=0123456789abcdef"
            answer: bytes = self._authenticate(connected, f"n,,{bare}".encode())
            parts = dict(part.split("=", 1) for part in answer.decode().split(","))
            salt = b64decode(parts["s"])
            if salt not in self._salted:
                self._salted[salt] = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, int(parts["i"]))
            client_key = hmac.digest(self._salted[salt], b"Client Key", "sha256")
            final = f"c=biws,r={parts['r']}"
            signed = f"{bare},{answer.decode()},{final}".encode()
            signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
            proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
            self._authenticate(connected, f"{final},p={b64encode(proof).decode()}".encode())

    def _authenticate(self, connected: ssl.SSLSocket, token: bytes) -> bytes:
        answer = self._ask(connected, _SASL_AUTHENTICATE, 1, {"auth_bytes": token})
        return bytes(answer.auth_bytes)

    def _ask(self, connected: ssl.SSLSocket, api_key: int, version: int, fields: dict[str, object]) -> Any:
        connected.sendall(frame(api_key, version, fields))
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            received = connected.recv(1 << 16)
            if not received:
                raise SystemExit("the broker has closed the connection during a log-in")
            data += received
        answer = messages.decode_response(api_key, version, data[8:])
        if answer.error_code:
            raise SystemExit(f"a log-in failed with error {answer.error_code}")
        return answer


def paced_logins(certificate: str, port: int) -> None:
    """Log in at a steady pace until killed."""
    logins = Logins(certificate, port)
    due = time.perf_counter()
    while True:
        logins.log_in()
        due += 1 / _LOGINS_PER_SECOND
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)


if __name__ == "__main__":
    paced_logins(sys.argv[1], int(sys.argv[2]))
