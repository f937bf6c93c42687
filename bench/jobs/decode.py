from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import MILLION_RECORDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_ALL_BYTES = 1 << 40
_AIOKAFKA_BYTES = 100_000_000
_KAFKA_PYTHON_BYTES = 10_000_000


def _decode(reader: str, codec: str, slice_bytes: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment(codec).path
        command = [
            sys.executable,
            "-m",
            "bench.workers.decode",
            reader,
            str(log),
            str(slice_bytes),
            str(setting.passes),
        ]
        return Run(command=command, warm_up=WARM_UP)

    return prepare


def _job(name: str, codec: str, title: str, about: str, targets: tuple[Target, ...] = (), *more: Contender) -> Job:
    return Job(
        name=name,
        title=title,
        unit=MILLION_RECORDS,
        about=about,
        contenders=(
            Contender("duralog", _decode("duralog", codec, _ALL_BYTES)),
            Contender("aiokafka", _decode("aiokafka", codec, _AIOKAFKA_BYTES), is_peer=True),
            Contender("kafka-python", _decode("kafka_python", codec, _KAFKA_PYTHON_BYTES), is_peer=True),
            *more,
        ),
        compare_with="aiokafka",
        targets=targets,
    )


JOB = _job(
    "decode",
    "none",
    "Decode to Arrow, one thread, uncompressed",
    "The same bytes to records, with every CRC checked, on one thread. duralog: the whole file to Arrow record batches "
    "with all columns, reading from the page cache included. The clients: their record readers (`MemoryRecords`, "
    "`validate_crc`) over bytes already in memory, with the offset, timestamp, key, value and headers of each record "
    "read and dropped, on the first 100 MB (aiokafka, its compiled extension) and 10 MB (kafka-python, with the "
    "compiled `crc32c`). The targets are against these. `duralog, bytes in memory` decodes the bytes aiokafka has, "
    "without reading a file. `aiokafka, no field read` makes the records and reads no field of them; `aiokafka, to "
    "Arrow` ends with the same Arrow batches as duralog.",
    (
        Target("duralog", 15.0),
        Target("duralog", 8.0, than="aiokafka"),
        Target("duralog", 100.0, than="kafka-python"),
    ),
    Contender("duralog, bytes in memory", _decode("duralog_in_memory", "none", _AIOKAFKA_BYTES)),
    Contender("aiokafka, no field read", _decode("aiokafka_untouched", "none", _AIOKAFKA_BYTES), is_peer=True),
    Contender("aiokafka, to Arrow", _decode("aiokafka_to_arrow", "none", _AIOKAFKA_BYTES), is_peer=True),
)

_SAME = "As `decode`, on the same records written with this codec by Kafka at its default level."
COMPRESSED = (
    _job("decode-lz4", "lz4", "Decode to Arrow, one thread, lz4", _SAME, (Target("duralog", 3.0, than="aiokafka"),)),
    _job("decode-zstd", "zstd", "Decode to Arrow, one thread, zstd", _SAME),
    _job("decode-snappy", "snappy", "Decode to Arrow, one thread, snappy", _SAME),
    _job("decode-gzip", "gzip", "Decode to Arrow, one thread, gzip", _SAME),
)
