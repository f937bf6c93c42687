"""The offset map next to Kafka's own: after the same puts, the same bytes in every slot and the same answers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from duralog.kernels.key_digests import Digests, digests_of
from duralog.kernels.offset_map import SLOT_BYTES, OffsetMap
from oracle.kafka_process import KafkaProcess

pytestmark = pytest.mark.interop

RANDOM_MAPS = 40


def digests(keys: list[bytes]) -> Digests:
    lengths = np.array([len(key) for key in keys], np.int32)
    positions = np.cumsum(lengths, dtype=np.int64) - lengths
    return digests_of(np.frombuffer(b"".join(keys), np.uint8), positions, lengths)


@pytest.mark.parametrize("load", [0.3, 0.9, 1.0])
def test_the_table_is_kafkas(kafka: KafkaProcess, load: float) -> None:
    chance = random.Random(f"table {load}")
    for _ in range(RANDOM_MAPS):
        slots = chance.randint(10, 500)
        memory_bytes = slots * SLOT_BYTES + chance.randrange(SLOT_BYTES)
        # Kafka's map throws when it is full, so a slot stays free.
        count = min(int(slots * load), slots - 1)
        keys = [chance.randbytes(chance.choice((0, 1, 10, 36, 55, 56, 64, 200))) for _ in range(count)]
        puts = [(chance.choice(keys), offset) for offset in range(1, chance.randint(1, 4 * slots))]
        asked = [*keys, b"none of them", b"nor this one"]
        theirs = kafka.ask(
            command="offset_map",
            memory=memory_bytes,
            puts=[(key.hex(), offset) for key, offset in puts],
            asked=[key.hex() for key in asked],
        )

        ours = OffsetMap(memory_bytes, load_factor=1.0)
        offsets = np.array([offset for _, offset in puts], np.int64)
        assert ours.put(digests([key for key, _ in puts]), offsets) == len(puts)

        table = bytes.fromhex(theirs["table"])
        assert ours.table.tobytes() == table[: slots * SLOT_BYTES]
        assert not any(table[slots * SLOT_BYTES :])
        assert (ours.size, ours.latest_offset) == (theirs["size"], theirs["latest_offset"])
        assert ours.find(digests(asked)).tolist() == theirs["offsets"]
