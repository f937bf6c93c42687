"""A console that is left open: closed pages cost nothing, and a source that does not answer blocks nothing else."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shlex
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import duralog
from duralog.console.drawing.record_place import Place
from duralog.console.source import Busy
from duralog.console.sources.broker.without_files import WithoutFiles
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.directory import compaction_runs
from duralog.console.sources.directory import runs as directory_runs
from duralog.console.sources.directory.source import DirectorySource
from duralog.console.sources.rates import History, SizeHistory
from duralog.console.sources.refreshing import Refresher
from duralog.errors import StorageError
from duralog.operations.explain import ExplainReport, explain

NOW_MS = 1_700_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with duralog.Store(str(tmp_path / "data")) as store:
        store.create_topic("profiles", 1, {"cleanup.policy": "compact"})
        store.partition("profiles", 0).append([duralog.Record(key=b"k", value=b"v", timestamp_ms=NOW_MS)])
    return tmp_path / "data"


@pytest.fixture
def source(directory: Path) -> Iterator[DirectorySource]:
    opened = DirectorySource(str(directory))
    yield opened
    opened.close()


def test_a_clock_that_is_set_back_makes_no_rate_negative(directory: Path) -> None:
    now = [NOW_MS]
    source = DirectorySource(str(directory), clock=lambda: now[0])
    with duralog.Store(str(directory)) as store:
        store.partition("profiles", 0).append([duralog.Record(key=b"k", value=b"w", timestamp_ms=NOW_MS)])
    now[0] -= 5_000
    source.step()
    overview = source.overview()
    assert overview.records == 2
    assert (overview.records_in_per_second, overview.bytes_in_per_second) == (None, None)
    source.close()


def test_an_unexpected_error_is_logged_once_for_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    is_over = threading.Event()
    outcomes: list[Exception | None] = [KeyError("a"), KeyError("a"), KeyError("b"), None, KeyError("b")]

    def step() -> None:
        if not outcomes:
            is_over.set()
            return
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    refresher = Refresher(step, 0.0)
    refresher.start()
    assert is_over.wait(60)
    refresher.stop()
    assert caplog.messages == [f"the refresh of the source failed: KeyError('{name}')" for name in "abb"]


def test_the_number_of_explanations_at_a_time_is_bounded(
    source: DirectorySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = directory_runs._MOST_REHEARSALS
    monkeypatch.setattr(directory_runs, "_REHEARSAL_PATIENCE_SECONDS", 0.01)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def held_up(*args: Any, **kwargs: Any) -> ExplainReport:
        begun.release()
        assert go_on.wait(60)
        return explain(*args, **kwargs)

    monkeypatch.setattr(compaction_runs, "explain", held_up)
    readers = [threading.Thread(target=source.rehearsal, args=("profiles", 0)) for _ in range(most)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert begun.acquire(timeout=60)
    with pytest.raises(Busy, match="try again"):
        source.rehearsal("profiles", 0)
    go_on.set()
    for reader in readers:
        reader.join()
    assert source.rehearsal("profiles", 0).text


def test_what_finds_no_room_for_a_thread_can_be_started_later(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    source = DirectorySource(str(directory), allow_changes=True)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="new thread"):
                source.find_key("profiles", 0, b"k")
            with pytest.raises(RuntimeError, match="new thread"):
                source.start_verify()
            with pytest.raises(RuntimeError, match="new thread"):
                source.compact("profiles", 0)
    source.compact("profiles", 0).wait()
    source.start_verify().wait()
    search = source.find_key("profiles", 0, b"k")
    search.wait()
    assert len(search.found()) == 1
    source.close()


def test_a_console_that_ends_does_not_wait_for_an_explanation(source: DirectorySource) -> None:
    with duralog.Store(source.path) as store:
        store.partition("profiles", 0).roll()
    assert source.rehearsal("profiles", 0).would_run
    source.close()
    with pytest.raises(StorageError, match="the console is closing"):
        source.rehearsal("profiles", 0)


def test_an_abandoned_read_does_not_continue_to_the_end(source: DirectorySource) -> None:
    with duralog.Store(source.path) as store:
        store.partition("profiles", 0).roll()
    source.step()
    with pytest.raises(StorageError, match="the page was left"):
        source.rehearsal("profiles", 0, is_wanted=lambda: False)
    with pytest.raises(StorageError, match="not wanted any more"):
        source.scan_segment("profiles", 0, 0, is_wanted=lambda: False)
    assert source.known_scan("profiles", 0, 0) is None
    assert source.scan_segment("profiles", 0, 0).records == 1


def test_files_are_read_while_a_broker_does_not_answer(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DirectorySource(str(directory), metrics=CleanerMetrics("127.0.0.1:1"))
    assert source._metrics is not None
    asked, go_on = threading.Event(), threading.Event()

    def silent() -> None:
        asked.set()
        assert go_on.wait(60)

    monkeypatch.setattr(source._metrics, "step", silent)
    looking = threading.Thread(target=source.step)
    looking.start()
    assert asked.wait(60)
    found: list[object] = []
    reading = threading.Thread(target=lambda: found.append(source.partition("profiles", 0)))
    reading.start()
    reading.join(60)
    go_on.set()
    looking.join()
    reading.join()
    source.close()
    assert found
    assert not reading.is_alive()


class _EndlessSearch:
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def test_a_search_ends_with_its_page(toolkit: Any) -> None:
    from duralog.console.pages.record_search import RecordSearch

    search = _EndlessSearch()

    async def leave() -> None:
        toolkit.core.loop = asyncio.get_running_loop()
        with toolkit.Client(toolkit.ui.page(""), request=None) as client:
            line = RecordSearch(None, "orders", 0, lambda *_: None, None)  # type: ignore[arg-type]
            line._search = search  # type: ignore[assignment]
            line._place = Place(key="k")
        assert not search.is_stopped
        client.delete()

    asyncio.run(leave())
    assert search.is_stopped


def test_short_readings_do_not_wait_behind_long_ones(toolkit: Any) -> None:
    from duralog.console.ui.long_reading import _MOST_AT_A_TIME, read_long

    begun, go_on = threading.Semaphore(0), threading.Event()

    def wait(_: object) -> bool:
        begun.release()
        return go_on.wait(60)

    async def read() -> list[object]:
        toolkit.core.loop = asyncio.get_running_loop()
        with toolkit.Client(toolkit.ui.page(""), request=None) as client:
            element = toolkit.ui.element("p")
            # More than there are workers: the last ones begin when their page has gone.
            long = [asyncio.ensure_future(read_long(element, wait)) for _ in range(30)]
            answers = [await asyncio.wait_for(toolkit.run.io_bound(lambda: "at once"), 60) for _ in range(20)]
        for _ in range(_MOST_AT_A_TIME):
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        assert not any(one.done() for one in long)
        client.delete()
        go_on.set()
        answers += await asyncio.gather(*long)
        return answers

    answers = asyncio.run(read())
    assert answers[:20] == ["at once"] * 20
    assert answers[20:].count(True) == _MOST_AT_A_TIME
    assert answers[20:].count(None) == 30 - _MOST_AT_A_TIME


class _Builders(dict[str, Any]):
    """The functions that build pages, by their paths: what a console has in place of addresses here."""

    def __init__(self, console: Any) -> None:
        self.source = console.source
        self.frame = console.frame
        self.shows_audit_log = console.shows_audit_log
        self.copies = console.copies

    def page(self, path: str) -> Any:
        return lambda build: self.setdefault(path, build)


def test_what_is_wrong_is_shown_for_as_long_as_it_is(toolkit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from duralog.console.ui.layout import live

    in_sight: list[str] = []

    class Notification:
        is_deleted = False

        def __init__(self, sentence: str, **_: object) -> None:
            self._sentence = sentence
            in_sight.append(sentence)

        def dismiss(self) -> None:
            in_sight.remove(self._sentence)

    monkeypatch.setattr(toolkit.ui, "notification", Notification)

    troubles = iter([None, "it is gone", "it is gone", "it is still gone", None, "it is gone"])

    def refresh() -> None:
        if (trouble := next(troubles)) is not None:
            raise StorageError(trouble)

    async def look() -> list[list[str]]:
        toolkit.core.loop = asyncio.get_running_loop()
        seen = []
        with toolkit.Client(toolkit.ui.page(""), request=None) as client:
            look_again = live(refresh).callback
            assert look_again is not None
            for _ in range(6):
                await look_again()
                seen.append(list(in_sight))
        client.delete()
        return seen

    shown = asyncio.run(look())
    assert shown == [[], ["it is gone"], ["it is gone"], ["it is still gone"], [], ["it is gone"]]


def test_a_page_that_is_closed_leaves_nothing(toolkit: Any, stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task, no element, no thread and no open file, with a search and an explanation under way."""
    from duralog.console.app import _PAGES
    from duralog.console.changes.changer import ChangedPlace, Changer
    from duralog.console.sources.cluster_copies import ComparedDirectories
    from duralog.console.ui.layout import Console

    # A timer ends when it would tick again: for some after half a minute.
    timer = toolkit.ui.timer
    monkeypatch.setattr(toolkit.ui, "timer", lambda seconds, *rest, **more: timer(min(seconds, 0.5), *rest, **more))
    directory = str(stores["shop"])
    source = DirectorySource(directory)
    changer = Changer(ChangedPlace(directory=directory))
    builders = _Builders(Console(source, changer, copies=ComparedDirectories([directory])))
    for module in _PAGES:
        module.register(builders)
    del builders["/audit"]  # This console has no audit log.
    given = {
        "topic": "profiles",
        "partition": "0",
        "group": "billing",
        "subject": "profiles-value",
        "q": "",
        "request": SimpleNamespace(query_params={"key": "customer-7", "where": "$.x = 1"}),
    }

    async def open_and_close() -> None:
        toolkit.core.loop = asyncio.get_running_loop()
        files = len(os.listdir("/proc/self/fd"))
        opened = []
        for build in builders.values():
            with toolkit.Client(toolkit.ui.page(""), request=None) as client:
                built = build(**{name: given[name] for name in inspect.signature(build).parameters})
                if inspect.isawaitable(built):
                    await built
            opened.append(client)
        elements = [weakref.ref(element) for client in opened for element in client.elements.values()]
        assert len(opened) == 14
        assert len(elements) > 500
        for client in opened:
            client.delete()
        del opened, client, built

        def left() -> list[object]:
            """What was under way in threads ends a little after its page."""
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            threads = [thread for thread in threading.enumerate() if thread.name.endswith("-search")]
            more_files = max(0, len(os.listdir("/proc/self/fd")) - files)
            kept = sum(element() is not None for element in elements)
            return [each for each in (tasks, threads, more_files, kept) if each]

        deadline = time.monotonic() + 60
        while left():
            assert time.monotonic() < deadline, left()
            await asyncio.sleep(0.05)
            gc.collect()

    asyncio.run(open_and_close())
    source.close()


def test_pages_that_no_browser_opens_are_forgotten(toolkit: Any) -> None:
    from duralog.console.ui import layout

    client, page = toolkit.Client, toolkit.ui.page("")

    async def flood() -> int:
        toolkit.core.loop = asyncio.get_running_loop()
        # Pages that a test before this one left would count.
        for earlier in list(client.instances.values()):
            earlier.delete()
        for _ in range(layout._MOST_UNOPENED_PAGES):
            client(page, request=None).created = time.time() - layout._OPENED_WITHIN_SECONDS
            layout.forget_unopened_pages()
        newest = client(page, request=None)
        layout.forget_unopened_pages()
        left = set(client.instances)
        assert newest.id in left
        newest.delete()
        return len(left)

    assert asyncio.run(flood()) == 1


def test_a_week_of_looks_is_seen_as_a_week() -> None:
    looks = 7 * 86_400 // 20
    history: History[int] = History()
    sizes = SizeHistory()
    for look in range(looks):
        history.add(look)
        sizes.add(look, look, 0, look)
    for kept in (history.all(), tuple(sample.at_ms for sample in sizes.all())):
        older = kept[: len(kept) // 3]
        apart = {later - earlier for earlier, later in pairwise(older)}
        assert kept[0] == 0
        assert len(apart) == 1, "evenly apart"
        assert max(later - earlier for earlier, later in pairwise(kept)) < looks / 50
        assert kept[-50:] == tuple(range(looks - 50, looks))


def test_an_axis_names_the_day_where_there_are_several(toolkit: Any) -> None:
    from duralog.console.ui.charts import clock_of

    assert len({clock_of(60_000), clock_of(3_600_000), clock_of(7 * 86_400_000)}) == 3
    assert "getDate" in clock_of(7 * 86_400_000)


def test_the_command_of_a_strange_topic_is_one_word() -> None:
    command = WithoutFiles().compaction_command("a; rm -rf ~", 0)
    assert shlex.split(command)[4] == "a; rm -rf ~"
