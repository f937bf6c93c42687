from __future__ import annotations

import sys
from collections.abc import Callable

from bench import data
from bench.job import MICROSECONDS, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_NONE, _MANY = "without ACLs", "with 10,000 ACLs"
_REQUESTS = 40_000


def _produce(acls: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        requests = max(2_000, _REQUESTS * min(setting.records, data.RECORDS) // data.RECORDS)
        given = (str(setting.scratch / "data"), str(acls), str(requests), str(setting.passes))
        return Run(command=[sys.executable, "-m", "bench.workers.acl_check", *given], warm_up=WARM_UP)

    return prepare


JOB = Job(
    name="broker-acls",
    title="Broker: a one-record Produce with 10,000 ACLs",
    unit=MICROSECONDS,
    about=(
        "One connection sends requests of one record of 100 bytes, 100 at a time, to a broker in the same process: "
        "without an authorizer, and with 10,000 ACLs, of which one lets the client write and every tenth is for a "
        "prefix. The time is that of a request and its response, the client's part included."
    ),
    contenders=(Contender(_NONE, _produce(0)), Contender(_MANY, _produce(10_000))),
    compare_with=_NONE,
    targets=(Target(_MANY, 0.97, than=_NONE),),
)
