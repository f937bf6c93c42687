"""Makes a log directory of Debezium's change events and closes it well: `changes DIRECTORY TOPIC RECORDS PARTITIONS`.

The events are those of a table with 400,000 rows and six columns, in JSON without schemas: creates first, then updates
and some deletes, each with its tombstone. A value has about 420 bytes, as Debezium's have with their `source`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import duralog

ROWS = 400_000
FIRST_TIME_MS = 1_700_000_000_000
_AT_ONCE = 100_000
_DELETED_EVERY = 50
_SOURCE = (
    '"source":{"version":"3.6.1.Final","connector":"postgresql","name":"shop","ts_ms":1795022847853,"snapshot":"false",'
    '"db":"postgres","sequence":"[null,\\"22281536\\"]","schema":"public","table":"items","txId":737,"lsn":22281536},'
    '"transaction":null,"op":"'
)


def make(directory: str, topic: str, records: int, partitions: int) -> None:
    with duralog.open(directory, {"log.retention.ms": -1, "log.cleaner.enable": False}) as store:
        store.create_topic(topic, partitions, {"retention.ms": -1, "segment.bytes": 64 << 20})
        each = records // partitions
        for number in range(partitions):
            log = store.partition(topic, number)
            for first in range(0, each, _AT_ONCE):
                numbers = np.arange(first, min(first + _AT_ONCE, each))
                log.append_arrow(_changes(numbers, number, partitions, np.random.default_rng((number, first))))


def _changes(numbers: NDArray[np.int64], partition: int, partitions: int, rng: np.random.Generator) -> pa.Table:
    rows = ROWS // partitions
    # Once each, then in any order.
    row = np.where(numbers < rows, numbers, rng.integers(0, rows, len(numbers))) * partitions + partition
    is_delete = (numbers >= rows) & (numbers % _DELETED_EVERY == 0)
    is_tombstone = (numbers > rows) & (numbers % _DELETED_EVERY == 1)
    row[1:][is_tombstone[1:]] = row[:-1][is_tombstone[1:]]
    ids = pa.array(row).cast(pa.string())

    def texts(low: int, high: int) -> Any:
        return pa.array(rng.integers(low, high, len(numbers))).cast(pa.string())

    columns = ['{"id":', ids, ',"name":"item ', texts(10**8, 10**9), '","price":', texts(1, 10**6), ',"stock":']
    columns += [texts(0, 1000), ',"state":"', texts(0, 9), '","changed":', texts(10**15, 10**16), "}"]
    image = pc.binary_join_element_wise(*columns, "")
    after = pc.if_else(pa.array(is_delete), "null", image)
    before = pc.if_else(pa.array(is_delete), image, "null")
    ops = pa.array(np.where(is_delete, "d", np.where(numbers < rows, "c", "u")))
    value = pc.binary_join_element_wise('{"before":', before, ',"after":', after, ",", _SOURCE, ops, '"}', "")
    value = pc.if_else(pa.array(is_tombstone), pa.scalar(None, pa.string()), value)
    key = pc.binary_join_element_wise('{"id":', ids, "}", "")
    times = FIRST_TIME_MS + numbers
    return pa.table({"key": key.cast(pa.binary()), "value": value.cast(pa.binary()), "timestamp": times})


if __name__ == "__main__":
    _, directory, topic, records, partitions = sys.argv[1:]
    make(directory, topic, int(records), int(partitions))
