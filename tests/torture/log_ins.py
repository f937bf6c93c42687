"""Mutated frames to a guarded listener: before a log-in, in the middle of one, and after one of the intruder.

Requests name what the clients of the campaign use. A list of all topics is asked for after each: it may not be answered
before the end of a log-in, and may not name what the intruder may not see. Nothing that is sent may change anything.
"""

from __future__ import annotations

from random import Random

from tests.support.broker.logins import ScramClient, authenticate, handshake, plain_token, scram_log_in
from tests.support.broker.raw_client import RawClient, request_frame
from tests.torture.clients import COPIES, LATEST, LISTS, SINGLES
from tests.torture.frames import Outcome, Pool, Way, mutants, send_frames
from tests.torture.guard import ADMIN, INTRUDER, LISTER, METADATA, PASSWORD, cluster_state, differences

_MECHANISM = "SCRAM-SHA-256"
_TOPICS = (LISTS, SINGLES, LATEST, "__consumer_offsets", "__transaction_state", "_schemas")
_CLIENTS = ("copier", "single", LISTER, "lister-0")
_CONFIGS = ("retention.ms", "cleanup.policy", "max.connections", "super.users")
_USERS = (f"User:{INTRUDER}", INTRUDER, ADMIN, "User:*", "*")
_ODD = ("", "\0", "x" * 300, "1", "0", "PLAIN", _MECHANISM)
_TOKENS = (
    b"",
    plain_token(INTRUDER, "wrong"),
    plain_token(ADMIN, ""),
    plain_token(ADMIN, "wrong", ADMIN),
    ScramClient(_MECHANISM, LISTER, "").first(),
    ScramClient(_MECHANISM, INTRUDER, "", authorization_id=ADMIN).first(),
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=" + b"A" * 43 + b"=",
)
POOL = Pool((INTRUDER, *_TOPICS, *_CLIENTS, *_CONFIGS, *_USERS, *_ODD), _TOKENS)
_ALL_TOPICS = request_frame(METADATA, 1, 1, b"\xff\xff\xff\xff")
_SECRET = COPIES.encode()
"""A topic that the frames do not name: an error answer may repeat names."""


def _begin_log_in(client: RawClient, random: Random) -> None:
    mechanism = random.choice(("PLAIN", _MECHANISM))
    version = random.choice((0, 1))
    handshake(client, mechanism, version)
    if mechanism == _MECHANISM and version == 1:
        token = ScramClient(_MECHANISM, INTRUDER, "").first()
        assert authenticate(client, token).error_code == 0


def _log_in(client: RawClient, random: Random) -> None:
    if random.random() < 0.2:
        answer = scram_log_in(client, _MECHANISM, INTRUDER, PASSWORD)
    else:
        handshake(client, "PLAIN")
        answer = authenticate(client, plain_token(INTRUDER, PASSWORD))
    assert answer.error_code == 0, answer


def intrude(address: str, guarded: str, random: Random, most: int | None) -> dict[str, Outcome]:
    """Send frames of every API and version, or the given number of them, in each of the three ways; by way."""
    ways = {
        "before a log-in": Way(lambda _: None, _ALL_TOPICS, _SECRET),
        "in the middle of a log-in": Way(lambda client: _begin_log_in(client, random), _ALL_TOPICS, _SECRET),
        "after a log-in": Way(lambda client: _log_in(client, random), _ALL_TOPICS, _SECRET),
    }
    before = cluster_state(address)
    outcomes = {}
    for name, way in ways.items():
        frames = mutants(random, POOL)
        outcome = send_frames(guarded, frames if most is None else random.sample(frames, most), way)
        changed = differences(before, cluster_state(address))
        found = [f"mutated frames {name} {each}" for each in changed]
        outcomes[name] = outcome._replace(findings=outcome.findings + found)
    return outcomes
