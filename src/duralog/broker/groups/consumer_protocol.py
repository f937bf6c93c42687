"""The topics that a member of a classic group reads, by the bytes that Kafka's consumers hand around in it.

To the group they are bytes. The coordinator looks into them since the offsets of what is read must not expire. They
come from clients: what is not a subscription is None, whatever it is.
"""

from __future__ import annotations

from typing import Final

from duralog.errors import CorruptRecord
from duralog.format.internal.embedded_protocol import SUBSCRIPTION, decode_embedded, embedded_version

PROTOCOL_TYPE: Final = "consumer"

_FIRST_VERSION: Final = b"\0\0"


def subscribed_topics(data: bytes) -> frozenset[str] | None:
    """The topics of a subscription. Every version begins like the first: what comes after it is not looked at."""
    try:
        embedded_version(data)
        return frozenset(decode_embedded(SUBSCRIPTION, _FIRST_VERSION + data[len(_FIRST_VERSION) :])["topics"])
    except CorruptRecord:
        return None
