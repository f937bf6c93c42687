"""Spark's Python daemon, with everything loaded that reading and writing logs needs before it forks a worker.

Spark starts one daemon on an executor, which forks a worker for every core. Without this, each of them loads pyarrow,
numba and the kernels by itself, and shares none of their memory. `local_session` sets `spark.python.daemon.module` to
this module; on a cluster it is worth the more, the more cores an executor has.

Forking is safe only if no other thread holds a lock at that moment. Of the libraries loaded here, OpenBLAS would start
threads, so it is kept to one. Arrow's allocator has a thread that handles forks; Arrow's thread pools start when
they are first used, which is after the fork.

What is loaded is frozen: a worker collects garbage after every task, and need not visit all of it each time. Freed
memory is kept for the next batch of rows: without that, a task spent a fifth of its time in the kernel, returning
memory and getting it again page by page.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
from contextlib import suppress

from pyspark import daemon

from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.hung_up import end_quietly_when_hung_up

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_KEPT_BYTES = 32 << 20
"""The largest that glibc allows."""
_MOST_KEPT_BYTES = 256 << 20

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "duralog.columnar.arrow_records",
    "duralog.spark.source.task_reading",
    "duralog.spark.sink.writers",
)
READING_KERNELS = {
    "duralog.kernels.scan": ("scan_batches",),
    "duralog.kernels.decode": ("decode_batches",),
    "duralog.kernels.direct": ("decode_direct",),
    "duralog.kernels.gather": ("lay_out", "gather"),
}


def preload() -> None:
    """Load what workers need, and exclude it from garbage collection."""
    for name in PRELOADED:
        importlib.import_module(name)
    # Only what every reader needs: a kernel that is not in the cache yet takes seconds to compile.
    for module, kernels in READING_KERNELS.items():
        for name in kernels:
            getattr(importlib.import_module(module), name).prepare()
    gc.collect()
    freeze_imports()


def keep_freed_memory() -> None:
    """Let glibc's malloc keep freed memory. No effect with another malloc."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT_BYTES)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    keep_freed_memory()
    preload()
    end_quietly_when_hung_up()
    daemon.manager()
