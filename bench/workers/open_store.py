"""duralog's opening of a directory: HOW DIRECTORY PARTITIONS BYTES. The amount is BYTES.

`cold` counts from before `import duralog`, in a process that has done nothing before, and closes the store at the end:
the directory is used again. `warm` counts the opening alone, after another directory was recovered; the process then
ends as it is: the directory was a copy.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from bench.workers.passes import tell


def main(how: str, directory: str, partitions: int, size_bytes: int) -> None:
    if how == "warm":
        recover_a_small_one()
    start, cpu = time.perf_counter(), time.process_time()
    import duralog

    store = duralog.open(directory)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    found = sum(len(store.partitions(topic)) for topic in store.topics())
    if found != partitions or store.offline:
        raise SystemExit(f"{found} partitions of {partitions} were found, {len(store.offline)} are offline")
    tell(seconds, cpu_seconds, size_bytes)
    if how == "warm":
        os._exit(0)
    store.close()


def recover_a_small_one() -> None:
    import duralog
    from duralog.format.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT

    with tempfile.TemporaryDirectory(prefix="duralog-bench-") as folder:
        with duralog.open(folder) as store:
            store.create_topic("small", 1)
            store.partition("small", 0).append([duralog.Record(value=b"one")])
        for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT):
            (Path(folder) / name).unlink()
        duralog.open(folder).close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
