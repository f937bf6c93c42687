"""A small write of Spark, without Spark: DIRECTORY PARTITIONS PASSES.

All that duralog does in a `save()` of ten rows, one for each of ten partitions. The driver looks up the topic, a task
stages the rows, and the driver commits them: it locks and opens the directory, appends, syncs, and closes it cleanly.
"""

from __future__ import annotations

import sys
from uuid import uuid4

import pyarrow as pa

from bench.store_data import TOPIC
from bench.workers.process_tree import Stopwatch
from duralog.spark.sink.commit import check_free, commit
from duralog.spark.sink.staging import WriteTask
from duralog.spark.sink.staging_task import stage_rows
from duralog.spark.sink.write_options import WriteOptions
from duralog.spark.sink.write_targets import store_targets
from duralog.storage.store import Store

ROWS = 10


def main(directory: str, partitions: int, passes: int) -> None:
    with Store(directory) as store:
        store.create_topic(TOPIC, partitions)
    options = WriteOptions.of({"path": directory, "topic": TOPIC}, streaming=False)
    rows = pa.record_batch({"partition": pa.array(range(ROWS), pa.int32()), "value": ["a value"] * ROWS})
    for _ in range(1 + passes):
        writer = uuid4().hex
        with Stopwatch() as watch:
            check_free(directory)
            staged = stage_rows([rows], store_targets(options), options, WriteTask(writer, 0, 0))
            watch.amount = commit([staged], options, writer=writer).records


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
