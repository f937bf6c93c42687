from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import Contender, Job, Run, Setting, Target, Unit
from bench.workers.passes import WARM_UP

_MAP_BYTES = 128 << 20
_JVM_WARM_UP = 2
_KEYS = Unit("M keys/s", 1e6)


def _duralog(source: str, codec: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment(codec).path
        command = [sys.executable, "-m", "bench.workers.map_fill", str(_MAP_BYTES), source, str(log)]
        return Run(command=[*command, str(setting.passes)], warm_up=WARM_UP)

    return prepare


def _kafka(source: str, codec: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment(codec).path
        java = ["java", "-Xmx1g", "-cp", setting.kafka_class_path(), "MapFill"]
        passes = _JVM_WARM_UP + setting.passes
        return Run(command=[*java, str(_MAP_BYTES), source, str(log), str(passes)], warm_up=_JVM_WARM_UP)

    return prepare


def _job(name: str, title: str, about: str, source: str, codec: str, targets: tuple[Target, ...] = ()) -> Job:
    return Job(
        name=name,
        title=title,
        unit=_KEYS,
        about=about,
        contenders=(
            Contender("duralog", _duralog(source, codec)),
            Contender("Kafka", _kafka(source, codec), is_peer=True),
        ),
        compare_with="Kafka",
        targets=targets,
        rounds=3,
    )


_MAPS = (
    "One thread puts a million different keys of 10 bytes, each about nine times, into an offset map of 128 MiB. "
    f"duralog's map also marks superseded offsets. Kafka: its `SkimpyOffsetMap`, filled {_JVM_WARM_UP} times before."
)

JOBS = (
    _job(
        "map-fill",
        "Fill the offset map",
        f"{_MAPS} The keys are in memory: digest and put only.",
        "memory",
        "none",
        (Target("duralog", 10.0),),
    ),
    _job(
        "map-read",
        "First pass of compaction, uncompressed",
        f"{_MAPS} The keys are read from the segment in the page cache. duralog checks every CRC; Kafka's cleaner does "
        "not.",
        "file",
        "none",
        (Target("duralog", 10.0),),
    ),
    _job("map-read-lz4", "First pass of compaction, lz4", "As `map-read`, on the lz4 segment.", "file", "lz4"),
)
