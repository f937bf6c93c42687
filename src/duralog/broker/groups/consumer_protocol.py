"""The topics that a member of a classic group reads, from the bytes that Kafka's consumers exchange in it.

The group treats them as opaque. The coordinator decodes them, since the offsets of topics that are read must not
expire. They come from clients: anything else is None.
"""

from __future__ import annotations

from typing import Final

from duralog.errors import CorruptRecord
from duralog.format.internal.embedded_protocol import SUBSCRIPTION, decode_embedded, embedded_version

PROTOCOL_TYPE: Final = "consumer"

_FIRST_VERSION: Final = b"\0\0"


def subscribed_topics(data: bytes) -> frozenset[str] | None:
    """The topics of a subscription. Every version begins like the first: what follows is ignored."""
    try:
        embedded_version(data)
        return frozenset(decode_embedded(SUBSCRIPTION, _FIRST_VERSION + data[len(_FIRST_VERSION) :])["topics"])
    except CorruptRecord:
        return None
