from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import MICROSECONDS, MILLION_RECORDS, PEAK_MEGABYTES, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP


def _reader(name: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_segments(setting.segment("none"))
        worker = [sys.executable, "-m", "bench.workers.store_read", name, str(directory), store_data.TOPIC]
        return Run(command=[*worker, str(setting.passes)], warm_up=WARM_UP)

    return prepare


def _scanned(work: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_segments(setting.segment("none"))
        command = [sys.executable, "-m", "bench.workers.scan_table", work, str(directory), store_data.TOPIC]
        return Run(command=[*command, str(setting.passes)], warm_up=WARM_UP)

    return prepare


_SCANNED = (
    "`duralog.scan(...).to_arrow_batch_reader()` of two partitions with the segment each: 2 GB in a full run, records "
    "of about 100 bytes, from the page cache, every CRC checked, on two threads. Each record batch is dropped when it "
    "is there. "
)

JOBS = (
    Job(
        name="store-read",
        title="Read a whole partition as a table",
        unit=MILLION_RECORDS,
        about=(
            "`read_arrow()` of a partition with the segment: every column, all rows in one table, from the page cache, "
            "every CRC checked, on two threads. `kernels alone`: the decode kernels make the same table from the same "
            "file on one thread, without a store. `nothing kept`: they drop the rows, which needs no new memory."
        ),
        contenders=(
            Contender("duralog, read_arrow", _reader("read_arrow")),
            Contender("duralog, kernels alone", _reader("bare_decode")),
            Contender("duralog, kernels alone, nothing kept", _reader("bare_decode_dropped")),
        ),
        compare_with="duralog, kernels alone",
        targets=(Target("duralog, read_arrow", 0.8, than="duralog, kernels alone"),),
    ),
    Job(
        name="scan-batches",
        title="Scan a directory as record batches",
        unit=MILLION_RECORDS,
        about=_SCANNED + "*offsets and times*: of these two columns only.",
        contenders=(
            Contender("duralog, all columns", _scanned("batches")),
            Contender("duralog, offsets and times", _scanned("offsets")),
        ),
        targets=(Target("duralog, all columns", 25.0), Target("duralog, offsets and times", 40.0)),
    ),
    Job(
        name="scan-memory",
        title="Memory of a scan",
        unit=PEAK_MEGABYTES,
        about=_SCANNED + "The highest resident memory of the process.",
        contenders=(Contender("duralog, all columns", _scanned("batches")),),
        targets=(Target("duralog, all columns", 500.0),),
    ),
    Job(
        name="point-read",
        title="Read one record by its offset",
        unit=MICROSECONDS,
        about=(
            "5,000 random offsets of a partition with the segment, from the page cache: `read_slice` finds the part of "
            "the file to send, `read` decodes the record."
        ),
        contenders=(
            Contender("duralog, file slice", _reader("point_slices")),
            Contender("duralog, decoded record", _reader("point_records")),
        ),
        targets=(Target("duralog, file slice", 30.0), Target("duralog, decoded record", 100.0)),
    ),
)
