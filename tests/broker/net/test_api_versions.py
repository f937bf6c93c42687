"""ApiVersions: what is advertised, the features, and the answer to a client that is too new."""

from __future__ import annotations

import struct

import pytest

from duralog.broker.broker import Broker
from duralog.broker.wire.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from tests.support.broker.raw_client import RawClient

API_VERSIONS = 18
SOFTWARE = {"client_software_name": "test-client", "client_software_version": "1.0"}

KAFKAS_RANGES = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3),
    31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 42: (0, 2), 43: (0, 2),
    44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1), 69: (0, 1), 74: (0, 1), 75: (0, 0),
}  # fmt: skip
"""What Kafka 4.3.1 answers, of the APIs that one node can serve."""


@pytest.mark.parametrize("version", range(5))
def test_the_ranges_are_kafkas(client: RawClient, version: int) -> None:
    answer = client.ask(API_VERSIONS, version, SOFTWARE)
    assert answer.error_code == NONE
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == KAFKAS_RANGES
    assert [each.api_key for each in answer.api_keys] == sorted(KAFKAS_RANGES)


def test_features(client: RawClient) -> None:
    older = client.ask(API_VERSIONS, 3, SOFTWARE)
    assert [(each.name, each.min_version, each.max_version) for each in older.supported_features] == [
        ("metadata.version", 7, 30)
    ]
    newer = client.ask(API_VERSIONS, 4, SOFTWARE)
    assert {each.name: (each.min_version, each.max_version) for each in newer.supported_features} == {
        "metadata.version": (7, 30),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
    }
    for answer in (older, newer):
        assert answer.finalized_features_epoch >= 0
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized == {
            "metadata.version": (30, 30),
            "transaction.version": (2, 2),
            "group.version": (1, 1),
            "eligible.leader.replicas.version": (1, 1),
        }


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_a_version_that_is_not_known_is_answered_in_version_0(client: RawClient, version: int) -> None:
    client.send_bytes(struct.pack(">ihhih", 10, API_VERSIONS, version, 77, -1))
    assert client.receive_frame() == struct.pack(">ihihhh", 77, UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, 4)
    assert client.ask(API_VERSIONS, 4, SOFTWARE).error_code == NONE


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "\u00e9", "a\n"])
def test_software_must_have_a_plain_name(client: RawClient, name: str) -> None:
    answer = client.ask(API_VERSIONS, 3, {"client_software_name": name, "client_software_version": "1"})
    assert (answer.error_code, answer.api_keys) == (INVALID_REQUEST, ())
    assert client.ask(API_VERSIONS, 3, SOFTWARE).error_code == NONE


def test_every_api_of_the_table_has_a_name_of_its_own(idle_broker: Broker) -> None:
    names = [api.name for api in idle_broker.apis.values()]
    assert len(set(names)) == len(names)
    assert all(api.min_version <= api.max_version for api in idle_broker.apis.values())
