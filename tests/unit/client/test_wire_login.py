"""The log-in of the plain connection, with a broker that is not one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from duralog.client.api import Api
from duralog.client.wire_login import HANDSHAKE, LoginRefused, log_in

PROFILE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "SCRAM-SHA-256",
    "sasl.username": "ana",
    "sasl.password": "pw",
}


@pytest.mark.parametrize(
    "rest",
    ["", ",s=====,i=4096", ",s=a,i=4096", ",s=AAAA,i=1", ",s=AAAA,i=" + "9" * 5000, ",s=AAAA,i=x", ",s=\xff,i=4096"],
)
def test_a_first_answer_that_is_none(rest: str) -> None:
    def ask(api: Api, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if api is HANDSHAKE:
            return {"error_code": 0, "mechanisms": ["SCRAM-SHA-256"]}
        nonce = fields["auth_bytes"].decode().rpartition("r=")[2]
        answer = f"r={nonce}x{rest}" if ",p=" not in fields["auth_bytes"].decode() else "v=AAAA"
        return {"error_code": 0, "error_message": None, "auth_bytes": answer.encode("latin-1")}

    with pytest.raises(LoginRefused):
        log_in(ask, PROFILE)


@pytest.mark.parametrize("last", [b"", b"v=", b"v=\xff\xfe", "v=\u00fc".encode(), b"e=other-error"])
def test_a_last_answer_without_the_proof_of_the_broker(last: bytes) -> None:
    def ask(api: Api, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if api is HANDSHAKE:
            return {"error_code": 0, "mechanisms": ["SCRAM-SHA-256"]}
        given = fields["auth_bytes"].decode()
        first = f"r={given.rpartition('r=')[2]}x,s=AAAA,i=4096".encode()
        return {"error_code": 0, "error_message": None, "auth_bytes": last if ",p=" in given else first}

    with pytest.raises(LoginRefused):
        log_in(ask, PROFILE)
