"""A directory together with the broker that serves it: files and records from the directory, groups from the broker.

Only the broker knows whether a group's members are alive. While it does not answer, the groups of the directory are
shown, with a note.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from duralog.client.configs import ConfigClient
from duralog.config.error_text import printable
from duralog.console.facts.overview import GroupDetails, Overview, SourceKind
from duralog.console.facts.partitions import CleanerState
from duralog.console.source import UnknownGroup
from duralog.console.sources.broker.watch import BrokerGroupWatch
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.group_lags import LagHistories, group_facts
from duralog.console.sources.payloads import AUTOMATIC
from duralog.errors import DuralogError
from duralog.schemas.decode_options import Decode
from duralog.storage.disk.background import Clock, wall_clock_ms

_ANSWER_SECONDS = 5.0
_CLEANER_REFRESHES = 10
"""`log.cleaner.enable` is given at the start of a broker: it is asked for once in this many refreshes."""


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
        self._cleaner = CleanerState.UNKNOWN
        self._refreshes = 0
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
            self._look_at_cleaner()
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

    def _look_at_cleaner(self) -> None:
        if self._broker.trouble is not None:
            self._cleaner, self._refreshes = CleanerState.UNKNOWN, 0  # It may come back with other configs.
            return
        if self._refreshes % _CLEANER_REFRESHES == 0:
            self._cleaner = _cleaner_of(self._address)
        self._refreshes += 1

    def _cleaner_state(self) -> CleanerState:
        found = super()._cleaner_state()
        return found if found is CleanerState.ABSENT else self._cleaner

    def group(self, name: str) -> GroupDetails:
        if self._broker.trouble is not None:
            return super().group(name)
        for view in self._broker.views:
            if view.group == name:
                return self._broker_lags.details(view, self._rows_of)
        raise UnknownGroup(f"there is no group {printable(name)} at {self._address}")


def _cleaner_of(address: str) -> CleanerState:
    """By the broker's configs. It may be away, or not show them."""
    try:
        with ConfigClient(address, response_seconds=_ANSWER_SECONDS) as client:
            texts = {entry.name: entry.text for entry in client.entries(str(client.node_id()))}
    except DuralogError:
        return CleanerState.UNKNOWN
    return {"true": CleanerState.ON, "false": CleanerState.OFF}.get(
        texts.get("log.cleaner.enable") or "", CleanerState.UNKNOWN
    )
