from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import MILLION_RECORDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_RECORDS = 1_000_000
_PEER_RECORDS = 100_000


def _encode(writer: str, codec: str, records: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment("none").path
        command = [sys.executable, "-m", "bench.workers.encode", writer, str(log), codec]
        return Run(command=[*command, str(records), str(setting.passes)], warm_up=WARM_UP)

    return prepare


def _job(name: str, codec: str, title: str, about: str, targets: tuple[Target, ...] = ()) -> Job:
    return Job(
        name=name,
        title=title,
        unit=MILLION_RECORDS,
        about=about,
        contenders=(
            Contender("duralog", _encode("duralog", codec, _RECORDS)),
            Contender("aiokafka", _encode("aiokafka", codec, _PEER_RECORDS), is_peer=True),
            Contender("kafka-python", _encode("kafka_python", codec, _PEER_RECORDS), is_peer=True),
        ),
        compare_with="aiokafka",
        targets=targets,
    )


JOBS = (
    _job(
        "encode",
        "none",
        "Encode, one thread, uncompressed",
        f"Records to v2 batches of about 16 KB, with their CRC. duralog: {_RECORDS:,} records from an Arrow table. "
        f"The clients: {_PEER_RECORDS:,} records from lists of Python bytes into their batch builders. The table and "
        "the lists are made before the clock starts.",
        (Target("duralog", 5.0),),
    ),
    _job("encode-lz4", "lz4", "Encode, one thread, lz4", "As `encode`, with lz4 at the default level of each."),
)
