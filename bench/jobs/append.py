from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import MEGABYTES, MILLION_RECORDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_RAW_BYTES = 256 << 20
_RECORD_BYTES = 8 << 20


def _writer(name: str, most_bytes: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        segment = setting.segment("none")
        amount = str(min(segment.size_bytes, most_bytes))
        worker = [sys.executable, "-m", "bench.workers.append", name, str(segment.path), str(setting.scratch), amount]
        return Run(command=[*worker, str(setting.passes)], warm_up=WARM_UP)

    return prepare


JOBS = (
    Job(
        name="append-batches",
        title="Append batches as clients send them",
        unit=MEGABYTES,
        about=(
            "256 MB of uncompressed 16 KB batches, one call each, into a new log, without `fsync`. duralog checks "
            "each batch (CRC, structure of the records, timestamps), stamps its offset, writes and indexes it. "
            "`os.write` only writes the same bytes to a new file, batch by batch."
        ),
        contenders=(
            Contender("duralog", _writer("raw_batches", _RAW_BYTES)),
            Contender("os.write", _writer("os_write", _RAW_BYTES), is_peer=True),
        ),
        compare_with="os.write",
        limit="os.write",
        targets=(Target("duralog", 0.5, than="os.write"),),
    ),
    Job(
        name="append-records",
        title="Append records",
        unit=MILLION_RECORDS,
        about=(
            "Records with a 10-byte key and a 90-byte value, into a new log, uncompressed, without `fsync`: as Python "
            "`Record`s, 1,000 per call, and as Arrow record batches of up to 65,536 rows. The records and the tables "
            "exist before the clock starts."
        ),
        contenders=(
            Contender("duralog, Python records", _writer("records", _RECORD_BYTES)),
            Contender("duralog, Arrow", _writer("arrow", _RAW_BYTES)),
        ),
        compare_with="duralog, Python records",
        targets=(Target("duralog, Python records", 0.5),),
    ),
)
