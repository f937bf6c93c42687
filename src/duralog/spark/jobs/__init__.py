"""The work of looking after logs as Spark jobs, on one machine or a cluster.

    from duralog.spark.jobs import verify
    report = verify(spark, "data")

Every job is a function of a session, a path and what it is to do, and returns a report: values, `to_dict()` for JSON
and, where it is worth a query, `frame(spark)`. A job is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES: dict[str, str] = {}
"""By public name: the module of this package that has it."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return __all__
