"""Spark: logs read, streamed, written and maintained straight from their files, without a broker.

For `spark.read.format("duralog")` and `duralog job`.

    from duralog.spark import explain, lag, local_session, register
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duralog.spark.session import local_session, register
    from duralog.spark.source.planned_read import explain
    from duralog.spark.source.stream_lag import lag

__all__ = ["explain", "lag", "local_session", "register"]

_LOADED_LATER = {
    "explain": "duralog.spark.source.planned_read",
    "lag": "duralog.spark.source.stream_lag",
    "local_session": "duralog.spark.session",
    "register": "duralog.spark.session",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module 'duralog.spark' has no attribute {name!r}")
    return getattr(import_module(_LOADED_LATER[name]), name)
