"""A download whose client leaves: reading ends, also while nothing matches and nothing is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from starlette.types import Message

pytest.importorskip("nicegui")

from duralog.columnar.schema import RECORD_SCHEMA
from duralog.console.facts.topic_records import MatchProgress, WantedRecords
from duralog.console.pages.downloads import DownloadApplication
from duralog.errors import DuralogError

LONGEST_SECONDS = 60


class EndlessSearches:
    """Nothing matches, however long is searched."""

    def __init__(self, first: int) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()
        self._first = first
        self._stop = threading.Event()

    def matching(
        self, _wanted: WantedRecords, _report: Callable[[MatchProgress], None], is_stopped: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        yield from [pa.RecordBatch.from_pylist([], RECORD_SCHEMA)] * self._first
        self.started.set()
        try:
            while not self._stop.wait(0.01):
                if is_stopped():
                    raise DuralogError("the download was stopped")
        finally:
            self.ended.set()

    def give_up(self) -> None:
        self._stop.set()


@pytest.mark.parametrize("first", [0, 1])
def test_reading_ends_when_the_client_leaves(first: int) -> None:
    searches = EndlessSearches(first)
    source: Any = SimpleNamespace(topic=lambda _: [SimpleNamespace(partition=0)], topic_searches=searches)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/download/t",
        "headers": [],
        "query_string": b"as=csv",
        "path_params": {"topic": "t"},
    }
    sent: list[Message] = []

    async def download() -> None:
        async def receive() -> Message:
            await asyncio.to_thread(searches.started.wait, LONGEST_SECONDS)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await DownloadApplication(source)(scope, receive, send)

    ending = threading.Timer(LONGEST_SECONDS, searches.give_up)
    ending.start()
    try:
        asyncio.run(download())
        assert not searches._stop.is_set()
        assert searches.ended.is_set()
    finally:
        ending.cancel()
    assert not any(message.get("more_body") is False for message in sent)
