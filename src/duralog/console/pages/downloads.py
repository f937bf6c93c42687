"""`/download/{topic}?where=...&as=csv`: all records that match, as a file that is written while it is sent.

The query is that of the page of records. With `run`, the page gives the download a name, to show its progress and to
stop it. A download that fails or is stopped ends without the end of its response, so that the browser does not treat it
as complete.

A user runs two at a time, so that two users can always download. One whose client does not read ends with its
connection (`duralog.console.connections`), and so gives its place to others: what is sent is cut, so that each part
shows whether the client reads.

It bypasses the toolkit, whose middleware would compress it on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from duralog.config.error_text import describe_any, printable
from duralog.config.times import now_ms
from duralog.console.drawing.record_place import NotAPlace
from duralog.console.drawing.topic_place import topic_place_of
from duralog.console.facts.runs import RunState
from duralog.console.facts.topic_records import MatchProgress, WantedRecords
from duralog.console.source import Busy, DownloadFile, Source
from duralog.console.sources.record_files import FILES
from duralog.console.viewers import viewer_of
from duralog.errors import DuralogError, UnknownTopic
from duralog.filters.conditions import FilterError

PATH = "/download/{topic}"
DECODED = "decoded"
"""In the query, with any value: keys and values are decoded by their schemas."""
_MOST_KNOWN = 100
_MOST_OF_USER = 2
_SENT_BYTES = 64 << 10
"""At once: the server waits for the client between two of them."""
_RUN = re.compile(r"[A-Za-z0-9_-]{8,64}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 100
_CUT_OFF = "ASGI callable returned without completing response."

_logger = logging.getLogger(__name__)
_workers = ThreadPoolExecutor(8, thread_name_prefix="duralog-console-download")


class Download:
    """A download and its progress. Any thread may ask."""

    def __init__(self) -> None:
        self._progress = MatchProgress()
        self._stopping = threading.Event()

    def progress(self) -> MatchProgress:
        return self._progress

    def stop(self) -> None:
        self._stopping.set()

    def pieces(self, source: Source, wanted: WantedRecords, file: DownloadFile) -> Generator[bytes, None, None]:
        """The file, piece by piece. Reads: not for the event loop."""
        try:
            for records in source.topic_searches.matching(wanted, self._report, self._stopping.is_set):
                if piece := file.feed(records):
                    yield piece
            yield file.finish()
            self._progress = replace(self._progress, state=RunState.DONE)
        except GeneratorExit:
            self._progress = replace(self._progress, state=RunState.STOPPED)
            raise
        except Exception as error:
            state = RunState.STOPPED if self._stopping.is_set() else RunState.FAILED
            self._progress = replace(self._progress, state=state, error=printable(describe_any(error)))
            raise

    def _report(self, progress: MatchProgress) -> None:
        self._progress = progress


_known: dict[str, Download] = {}


def download_of(run: str) -> Download | None:
    """The download with this name, if it was requested."""
    return _known.get(run)


class DownloadApplication:
    """An ASGI application, served at `PATH`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._running: Counter[str] = Counter()
        """Downloads by the name of the user."""
        # A download that is aborted on purpose is not an error of the server.
        logging.getLogger("uvicorn.error").addFilter(lambda record: record.getMessage() != _CUT_OFF)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = viewer_of(scope)
        if viewer is None:
            await self._download(scope, receive, send)
            return
        user = viewer.user.name
        if self._running[user] >= _MOST_OF_USER:
            sentence = f"{_MOST_OF_USER} of your downloads are running already: wait for one of them, or stop it"
            await _answer(503, sentence, scope, receive, send)
            return
        self._running[user] += 1
        try:
            await self._download(scope, receive, send)
        finally:
            self._running[user] -= 1

    async def _download(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "GET":
            await _answer(405, "a download is a GET request", scope, receive, send)
            return
        topic, extension = request.path_params["topic"], request.query_params.get("as", "")
        try:
            if extension not in FILES:
                raise NotAPlace(f"“{extension[:40]}” is not a format: give as={', '.join(FILES)}")
            existing = [row.partition for row in self._source.topic(topic)]
            wanted = topic_place_of(dict(request.query_params)).wanted(topic, existing, now_ms=now_ms())
        except UnknownTopic as error:
            await _answer(404, str(error), scope, receive, send)
            return
        except (NotAPlace, FilterError) as error:
            await _answer(400, str(error), scope, receive, send)
            return
        except DuralogError as error:
            await _answer(503, str(error), scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        try:
            if request.query_params.get(DECODED):
                file: DownloadFile = await loop.run_in_executor(
                    _workers, self._source.payloads.decoded_file, topic, extension
                )
            else:
                file = FILES[extension]()
        except (DuralogError, OSError) as error:
            await _answer(503, describe_any(error), scope, receive, send)
            return
        download = _remembered(request.query_params.get("run", ""))
        pieces = download.pieces(self._source, wanted, file)
        leaving = asyncio.ensure_future(_left(receive))
        # Also if nothing matches and nothing is sent for a long time: reading ends with its client.
        leaving.add_done_callback(lambda _: download.stop())
        try:
            try:
                first = await loop.run_in_executor(_workers, next, pieces, None)
            except (DuralogError, OSError) as error:
                if not leaving.done():
                    status = 503 if isinstance(error, Busy) else 500
                    await _answer(status, describe_any(error), scope, receive, send)
                return
            if leaving.done():
                return
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", file.media_type.encode()),
                        (b"content-disposition", f'attachment; filename="{file_name(topic, extension)}"'.encode()),
                        (b"cache-control", b"no-store"),
                    ],
                }
            )
            await _sent(pieces, first, download, leaving, scope, send)
        finally:
            # Cancelled while a worker thread reads: that thread ends the download.
            leaving.cancel()
            download.stop()
            with suppress(ValueError):
                await loop.run_in_executor(_workers, pieces.close)


async def _sent(
    pieces: Iterator[bytes],
    piece: bytes | None,
    download: Download,
    leaving: asyncio.Future[None],
    scope: Scope,
    send: Send,
) -> None:
    loop = asyncio.get_running_loop()
    viewer = viewer_of(scope)
    try:
        while piece is not None and not leaving.done():
            if viewer is not None and not viewer.is_valid():
                download.stop()
            for begin in range(0, len(piece), _SENT_BYTES):
                if leaving.done():
                    break
                body = piece[begin : begin + _SENT_BYTES]
                await send({"type": "http.response.body", "body": body, "more_body": True})
            piece = await loop.run_in_executor(_workers, next, pieces, None)
        if not leaving.done():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except (DuralogError, OSError) as error:
        if download.progress().state is RunState.FAILED:
            _logger.warning("a download failed: %s", printable(describe_any(error)))


async def _left(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(status: int, sentence: str, scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"{printable(sentence)}\n", status)(scope, receive, send)


def file_name(topic: str, extension: str) -> str:
    """A file name that is valid on every system, for any topic."""
    stem = _UNSAFE.sub("_", topic)[:_LONGEST_NAME].strip("._-") or "topic"
    return f"{stem}-records.{extension}"


def _remembered(run: str) -> Download:
    download = Download()
    if _RUN.fullmatch(run):
        _known.pop(run, None)
        while len(_known) >= _MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[run] = download
    return download
