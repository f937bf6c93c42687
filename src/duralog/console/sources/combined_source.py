"""A directory together with the broker that serves it: files and records from the directory, groups from the broker.

Only the broker knows whether a group's members are alive. While it does not answer, the groups of the directory are
shown, with a note.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from duralog.config.error_text import printable
from duralog.console.facts.overview import GroupDetails, Overview, SourceKind
from duralog.console.source import UnknownGroup
from duralog.console.sources.broker.watch import BrokerGroupWatch
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.group_lags import LagHistories, group_facts
from duralog.console.sources.payloads import AUTOMATIC
from duralog.schemas.decode_options import Decode
from duralog.storage.disk.background import Clock, wall_clock_ms


class CombinedSource(DirectorySource):
    """Made by `duralog.console.sources.opening.open_source`."""

    def __init__(
        self,
        address: str,
        path: str,
        *,
        allow_changes: bool = False,
        metrics: CleanerMetrics | None = None,
        decode: Decode = AUTOMATIC,
        refresh_seconds: float = 2.0,
        clock: Clock = wall_clock_ms,
    ) -> None:
        self._broker = BrokerGroupWatch(address)
        self._broker_lags = LagHistories()
        self._address = address
        self._asking = threading.Lock()
        super().__init__(
            path,
            allow_changes=allow_changes,
            metrics=metrics,
            decode=decode,
            refresh_seconds=refresh_seconds,
            clock=clock,
        )

    def step(self) -> None:
        super().step()
        # Not under the lock of the files: readers of files must not wait for a broker that does not answer.
        with self._asking:
            of_directory = super().overview()
            if self._broker.step():
                self._broker_lags.add(of_directory.taken_ms, list(self._broker.views))
            target = f"{self._address}, {self.path}"
            seen = replace(of_directory, kind=SourceKind.BOTH, target=target)
            if self._broker.trouble is None:
                self._both = replace(
                    seen, groups=tuple(group_facts(view, self._rows_of) for view in self._broker.views)
                )
            else:
                note = f"Groups are shown as the directory has them: {self._broker.trouble}"
                self._both = replace(seen, notes=(*seen.notes, note))

    def overview(self) -> Overview:
        return self._both

    def group(self, name: str) -> GroupDetails:
        if self._broker.trouble is not None:
            return super().group(name)
        for view in self._broker.views:
            if view.group == name:
                return self._broker_lags.details(view, self._rows_of)
        raise UnknownGroup(f"there is no group {printable(name)} at {self._address}")
