"""Makes a log directory of JSON documents and closes it well: `documents DIRECTORY TOPIC RECORDS PARTITIONS`.

A document has about 130 bytes: numbers, some with decimals, texts, and an object within the object.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import duralog

_FIRST_TIME_MS = 1_700_000_000_000
_AT_ONCE = 250_000


def make(directory: str, topic: str, records: int, partitions: int) -> None:
    with duralog.open(directory, {"log.retention.ms": -1, "log.cleaner.enable": False}) as store:
        store.create_topic(topic, partitions)
        for number in range(partitions):
            log = store.partition(topic, number)
            for first in range(0, records // partitions, _AT_ONCE):
                numbers = np.arange(first, min(first + _AT_ONCE, records // partitions))
                log.append_arrow(_documents(numbers, np.random.default_rng((number, first))))


def _documents(numbers: NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    def texts(high: int, digits: int) -> Any:
        return pc.utf8_lpad(pa.array(rng.integers(0, high, len(numbers))).cast(pa.string()), digits, "0")

    customers = pa.array(rng.integers(0, 1_000_000, len(numbers))).cast(pa.string())
    amounts = pc.binary_join_element_wise(texts(1_000, 1), texts(100, 2), ".")
    states = pa.array(("placed", "paid", "packed", "shipped")).take(pa.array(rng.integers(0, 4, len(numbers))))
    parts = ['{"customer":{"id":', customers, ',"name":"c-', texts(1_000_000, 6), '"},"state":"', states]
    parts += ['","amount":', amounts, ',"session":"', texts(10**17, 18), '"}']
    values = pc.binary_join_element_wise(*parts, "")
    return pa.table({"value": values.cast(pa.binary()), "timestamp": _FIRST_TIME_MS + numbers})


if __name__ == "__main__":
    _, made, name, record_count, partition_count = sys.argv[1:]
    make(made, name, int(record_count), int(partition_count))
