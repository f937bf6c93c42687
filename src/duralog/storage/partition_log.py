"""One partition's log: append, read, look up, roll, flush, delete."""

from __future__ import annotations

from duralog.storage.loaded_log import LoadedLog

__all__ = ["LoadedLog"]
