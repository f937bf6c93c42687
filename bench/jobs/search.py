from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import MILLION_RECORDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_CONDITIONS = {
    "text": 'value contains "c-000000"',
    "JSON text": "$.customer.name = c-000077",
    "JSON number": "$.amount > 999.98 and $.state = paid",
    "JSON number, text before": 'value contains "c-00007" and $.amount > 900',
    "JSON, every document parsed": "$.customer.name matches '^c-00007.$'",
}


def _search(condition: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_documents(setting.records // 4)
        worker = [sys.executable, "-m", "bench.workers.search", str(directory), store_data.TOPIC, condition]
        return Run(command=[*worker, str(setting.passes)], warm_up=WARM_UP)

    return prepare


JOB = Job(
    name="search",
    title="Console: search of a topic",
    unit=MILLION_RECORDS,
    about=(
        "A search of `duralog console` over all records of a topic in four partitions: JSON documents of about 130 "
        "bytes, uncompressed. It has few matches. One thread. "
        + " ".join(f"{name}: `{condition}`." for name, condition in _CONDITIONS.items())
    ),
    contenders=tuple(Contender(name, _search(condition)) for name, condition in _CONDITIONS.items()),
    targets=(Target("JSON text", 1.0), Target("JSON number", 1.0)),
)
