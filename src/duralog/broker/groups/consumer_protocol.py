"""What Kafka's consumers put into the bytes that a classic group hands around: their subscriptions.

To the group they are bytes. The coordinator looks into them to learn the topics that the members read, whose offsets
must not expire. They come from clients: what is not a subscription is None, whatever it is.
"""

from __future__ import annotations

import struct
from typing import Final

PROTOCOL_TYPE: Final = "consumer"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(data: bytes) -> frozenset[str] | None:
    """The topics of a subscription. Every version begins like version 0, so newer ones are understood, too."""
    try:
        (version,) = _INT16.unpack_from(data, 0)
        (count,) = _INT32.unpack_from(data, 2)
        position = 6
        if version < 0 or not 0 <= count <= len(data):
            return None
        topics = []
        for _ in range(count):
            (length,) = _INT16.unpack_from(data, position)
            position += _INT16.size
            if not 0 <= length <= len(data) - position:
                return None
            topics.append(data[position : position + length].decode("utf-8"))
            position += length
        (length,) = _INT32.unpack_from(data, position)
        if not -1 <= length <= len(data) - position - _INT32.size:
            return None
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
