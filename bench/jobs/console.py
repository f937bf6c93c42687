from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import SECONDS, Contender, Job, Run, Setting, Target
from bench.workers.console import ANSWERS

_TOPIC = store_data.TOPIC
_PAGES = {
    "overview": "/",
    "topic": f"/topic/{_TOPIC}",
    "partition": f"/topic/{_TOPIC}/0",
    "records": f"/topic/{_TOPIC}/0/records",
    "compaction": "/topic/service-001/0/compaction",
    "groups": "/groups",
    "group": "/groups/readers-01",
    "health": "/health",
}
_TARGET_SECONDS = 0.2
_MEDIAN, _SLOWEST = "median", "slowest"


def _page(path: str, how: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.for_the_console(1000)
        worker = [sys.executable, "-m", "bench.workers.console", str(directory), path]
        return Run(command=[*worker, str(setting.passes), how])

    return prepare


JOB = Job(
    name="console-pages",
    title="Console: pages",
    unit=SECONDS,
    about=(
        f"`duralog console` on a directory of 1,000 partitions with {store_data.SEGMENTS_EACH} small segments each "
        f"(one topic of 900, 100 topics of one) and 20 groups; one process per page. The time from the request to "
        f"the last byte of the page, without the browser's own work. A pass is {ANSWERS} requests and lasts longer "
        f"than the console's refresh interval: median and slowest."
    ),
    contenders=tuple(
        Contender(name if how == _MEDIAN else f"{name}, slowest", _page(path, how))
        for name, path in _PAGES.items()
        for how in (_MEDIAN, _SLOWEST)
    ),
    targets=tuple(Target(f"{name}, slowest", _TARGET_SECONDS) for name in _PAGES),
    rounds=1,
)
