"""Compaction from the page: what it would do, and doing it, by the very code of `duralog compact`.

A run opens the directory for writing as the command does, so it waits for no broker: it refuses while one is there. It
cannot be stopped in the middle, and what it has done stays done. One run at a time.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

from duralog.cli.common.failures import describe
from duralog.cli.common.opened_store import opened_store, tasks_at_once
from duralog.cli.common.output import Output
from duralog.cli.compact.explain import explain_all
from duralog.cli.compact.run import compact_all
from duralog.cli.compact.view import CompactionView as ProgressLine
from duralog.config import BrokerConfig, TopicConfig
from duralog.console.facts.runs import CompactionResult, CompactionView, Rehearsal, RunState
from duralog.errors import DuralogError, InvalidConfig, StorageError
from duralog.storage.compaction.preview import Explanation
from duralog.storage.compaction.report import CompactionProgress, CompactionReport, ShowCompaction
from duralog.storage.disk.background import Clock
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.log.retention import COMPACT
from duralog.storage.store import Store

_THREADS = 2
_OPENING, _CLOSING, _DONE = "opening", "closing", "done"


def compaction_command(path: str, place: TopicPartition) -> str:
    return shlex.join(["duralog", "compact", path, "--topic", place.topic, "--partition", str(place.partition)])


def check_compacted(topic: str, config: TopicConfig) -> None:
    if COMPACT not in config.cleanup_policy:
        policy = config.text("cleanup.policy") or "empty"
        raise InvalidConfig(
            f"{topic} is not compacted, its cleanup.policy is {policy}: duralog topic alter --config"
            " cleanup.policy=compact makes it so"
        )


def rehearse(
    path: str, config: BrokerConfig, place: TopicPartition, clock: Clock, why_stop: Callable[[], str | None]
) -> Rehearsal:
    """Reads the whole log, until there is a reason to stop. Raises `InvalidConfig` if the topic is not compacted."""
    found: list[Explanation] = []
    text, output = _captured()
    with Store(path, config=config, read_only=True) as store:
        topic_config = store.topic_config(place.topic)
        check_compacted(place.topic, topic_config)
        store.partition(*place)
        explain_all(
            store,
            [(place.topic, place.partition, topic_config)],
            output,
            _Rehearsing(why_stop),
            now_ms=clock(),
            memory_bytes=None,
            again=False,
            records=0,
            on_explained=found.append,
        )
    output.flush()
    if not found:
        raise StorageError(f"{place} cannot be explained: it changed while it was read. Try again")
    return _rehearsal(found[0], text.getvalue().decode("utf-8", "replace"))


def _captured() -> tuple[BytesIO, Output]:
    stream = BytesIO()
    return stream, Output(stream)


def _rehearsal(explanation: Explanation, text: str) -> Rehearsal:
    dirty, report = explanation.dirty, explanation.report
    known = Rehearsal(
        text=text,
        is_due=dirty.is_eligible,
        size_bytes=explanation.size_bytes,
        clean_bytes=dirty.clean_bytes,
        cleanable_bytes=dirty.cleanable_bytes,
        would_run=report is not None,
    )
    if report is None:
        return known
    return replace(
        known,
        records_before=report.records_before,
        records_after=report.records_after,
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        segments_before=report.segments_before,
        segments_after=report.segments_after,
        superseded_records=report.superseded_records,
        expired_tombstones=report.expired_tombstones,
        keyless_records=report.keyless_records,
        aborted_records=report.aborted_records,
        spent_markers=explanation.spent_markers,
    )


class DirectoryCompaction:
    """One compaction of one partition, in a thread of its own."""

    def __init__(self, path: str, place: TopicPartition, clock: Clock) -> None:
        self.place = place
        self.result: CompactionResult | None = None
        self.error: str | None = None
        self._path = path
        self._began = time.monotonic()
        self._view = CompactionView(
            topic=place.topic,
            partition=place.partition,
            state=RunState.RUNNING,
            started_ms=clock(),
            seconds=0.0,
            phase=_OPENING,
            round=0,
            share=0.0,
            bytes_done=0,
            bytes_total=0,
            map_fill=0.0,
            records_read=0,
            records_kept=0,
        )
        # Not a daemon: a process that ends meanwhile waits for it.
        self._thread = threading.Thread(target=self._run, name="duralog-console-compact")

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._view.state is RunState.RUNNING

    def progress(self) -> CompactionView:
        view = self._view
        return replace(view, seconds=time.monotonic() - self._began) if view.state is RunState.RUNNING else view

    def wait(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._compact()
        except Exception as error:  # Whatever it is, it is told on the page.
            self.error = describe(error) if isinstance(error, DuralogError | OSError) else repr(error)
        state = RunState.FAILED if self.error is not None else RunState.DONE
        self._tell(state=state, phase=_DONE, share=1.0, seconds=time.monotonic() - self._began)

    def _compact(self) -> None:
        tasks = tasks_at_once()
        _, output = _captured()  # The page tells the result in its own way.
        topic, number = self.place
        with opened_store(self._path, read_only=False, server_properties=None, quiet=True, scheduler=tasks) as store:
            config = store.topic_config(topic)
            check_compacted(topic, config)
            log = store.partition(topic, number)
            before = log.size_bytes, len(log.segments)
            compact_all(
                store,
                [(topic, number, config)],
                output,
                _Shown(self._show),
                tasks,
                roll=False,
                again=False,
                threads=_THREADS,
                memory_bytes=None,
            )
            self._tell(phase=_CLOSING, share=1.0)
            state = next(state for state in store.cleaner.states() if (state.topic, state.partition) == self.place)
            report = state.last_report
            if report is None:
                raise StorageError(f"{self.place} could not be compacted: {state.reason}")
            self.result = _result(report, before, (log.size_bytes, len(log.segments)))

    def _show(self, progress: CompactionProgress) -> None:
        self._tell(
            phase=progress.phase.value,
            round=progress.round,
            share=progress.bytes_done / progress.bytes_total if progress.bytes_total else 1.0,
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
            map_fill=progress.map_fill,
            records_read=progress.records_read,
            records_kept=progress.records_kept,
        )

    def _tell(self, **changes: object) -> None:
        self._view = replace(self._view, **changes)  # type: ignore[arg-type]


class _Rehearsing(ProgressLine):
    """Shows nothing, and ends a rehearsal that nobody waits for any more."""

    def __init__(self, why_stop: Callable[[], str | None]) -> None:
        super().__init__(1, is_rehearsal=True, wanted=False)
        self._why_stop = why_stop

    def show(self, _progress: CompactionProgress) -> None:
        if (why := self._why_stop()) is not None:
            # No `DuralogError`: those mean a log that has changed, which would be read once more.
            raise InterruptedError(why)


class _Shown(ProgressLine):
    """Goes to the page instead of the terminal."""

    def __init__(self, show: ShowCompaction) -> None:
        super().__init__(1, is_rehearsal=False, wanted=False)
        self._to_page = show

    def show(self, progress: CompactionProgress) -> None:
        self._to_page(progress)


def _result(report: CompactionReport, before: tuple[int, int], after: tuple[int, int]) -> CompactionResult:
    return CompactionResult(
        size_before=before[0],
        size_after=after[0],
        segments_before=before[1],
        segments_after=after[1],
        records_before=report.records_before,
        records_after=report.records_after,
        superseded_records=report.superseded_records,
        expired_tombstones=report.expired_tombstones,
        aborted_records=report.aborted_records,
        keyless_records=report.keyless_records,
        rounds=report.rounds,
        seconds=report.seconds,
        notes=tuple(report.notes),
        damage=(*report.left_segments, *report.corrupt_batches),
    )
