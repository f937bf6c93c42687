"""The shared environment of all parts of a broker. The parts, from topics to coordinators, are built on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duralog.broker.net.background import Background
from duralog.broker.net.log_lines import LogLines
from duralog.broker.net.timers import Timers
from duralog.broker.wire.request import Node
from duralog.config import BrokerConfig
from duralog.storage.disk.background import Clock
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True)
class Runtime:
    store: Store
    node: Node
    """This broker, with the advertised address of its first listener."""
    clock: Clock
    """The time of day, in milliseconds. Timers have a clock of their own, which is never set back."""
    timers: Timers
    call_soon: Callable[[Callable[[], None]], None]
    """Run something on the loop's thread, after what runs there now."""
    background: Background
    log_lines: LogLines

    @property
    def config(self) -> BrokerConfig:
        """The configs in force, those included that were set while the broker ran."""
        return self.store.config
