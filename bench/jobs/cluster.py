from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import GIGABYTES, MILLION_RECORDS, PEAK_MEGABYTES, SECONDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_RECORDS_A_PARTITION = 9000
"""A full run plans 1,000 partitions."""
_ONE, _THREE = "duralog, one directory", "duralog, three copies"


def _worker(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench.workers.cluster", name, *map(str, arguments)]


def _of_copies(name: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        folder = store_data.of_copies(setting.segment("none"))
        return Run(command=_worker(name, folder, store_data.TOPIC, setting.passes), warm_up=WARM_UP)

    return prepare


def _changing(name: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        folder = store_data.copied(store_data.of_copies(setting.segment("none")), setting.scratch / "cluster")
        return Run(command=_worker(name, folder, store_data.TOPIC, setting.passes), warm_up=WARM_UP)

    return prepare


def _planned(setting: Setting) -> Run:
    partitions = min(max(setting.records // _RECORDS_A_PARTITION, 2), 1000)
    folder = store_data.of_many_copies(partitions)
    return Run(command=_worker("plan", folder, store_data.TOPIC, setting.passes), warm_up=WARM_UP)


_COPIES = "Three log directories with a copy of the same partition each, of one segment (1 GB in a full run). "
_MANY = (
    "A read of all partitions of three nodes: 1,000 in a full run, with ten small segments each. Every copy is opened "
    "and chosen from: 30,000 segments."
)

JOBS = (
    Job(
        name="cluster-verify",
        title="Compare three copies",
        unit=GIGABYTES,
        about=_COPIES + "`duralog cluster verify` on two threads, from the page cache: the bytes of all copies.",
        contenders=(Contender("duralog", _of_copies("verify")),),
        limit="page-cache read",
        targets=(Target("duralog", 1.5),),
    ),
    Job(
        name="cluster-read",
        title="Read three copies as one table",
        unit=MILLION_RECORDS,
        about=_COPIES + "`duralog.scan` of all columns on two threads: of the three, and of one of them alone.",
        contenders=(Contender(_ONE, _of_copies("read_one")), Contender(_THREE, _of_copies("read_three"))),
        compare_with=_ONE,
        targets=(Target(_THREE, 0.95, than=_ONE),),
    ),
    Job(
        name="cluster-plan",
        title="Plan a read of a cluster",
        unit=SECONDS,
        about=_MANY,
        contenders=(Contender("duralog", _planned),),
        targets=(Target("duralog", 10.0),),
        rounds=3,
    ),
    Job(
        name="cluster-plan-memory",
        title="Memory of planning a read of a cluster",
        unit=PEAK_MEGABYTES,
        about=_MANY + " Peak memory of the whole process, Python and libraries included.",
        contenders=(Contender("duralog", _planned),),
        targets=(Target("duralog", 500.0),),
        rounds=1,
    ),
    Job(
        name="cluster-heal",
        title="Heal a lost copy",
        unit=GIGABYTES,
        about=(
            _COPIES + "The third has lost its log. duralog compares the copies, writes the log, checks it, builds the "
            "indexes, and syncs all of it. A copy of the same file with `fsync` is what no heal can beat."
        ),
        contenders=(
            Contender("duralog", _changing("heal")),
            Contender("copy and fsync", _changing("copy"), is_peer=True),
        ),
        compare_with="copy and fsync",
        limit="copy and fsync",
        targets=(Target("duralog", 1 / 1.5, than="copy and fsync"),),
        rounds=3,
    ),
)
