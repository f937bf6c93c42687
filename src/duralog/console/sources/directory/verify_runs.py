"""A check of the files from the page, as `duralog verify` does it: it changes nothing, and can be stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from duralog.config.error_text import describe_any, printable
from duralog.config.progress import Progress
from duralog.console.facts.runs import FindingFacts, RunState, VerifyView
from duralog.errors import CorruptRecord
from duralog.operations.chosen_partition import Choice
from duralog.operations.verify import ToVerify, VerifyRequest, verify
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.disk.background import Clock

_MOST_FINDINGS = 500
_MOST_NOTES = 200


class _Stopped(Exception):
    """The check was cancelled."""


class DirectoryVerification:
    """One check of a directory, a topic or a partition, on its own thread."""

    def __init__(self, path: str, topic: str | None, partition: int | None, clock: Clock) -> None:
        self._path = path
        self._began = time.monotonic()
        self._is_stopping = threading.Event()
        self._notes = 0
        self._view = VerifyView(
            state=RunState.RUNNING,
            started_ms=clock(),
            seconds=0.0,
            bytes_done=0,
            bytes_total=0,
            share=0.0,
            current=None,
            partitions_done=0,
            partitions_total=0,
            batches=0,
            records=0,
            errors=0,
            findings=(),
            topic=topic,
            partition=partition,
        )
        self._thread = threading.Thread(target=self._run, name="duralog-console-verify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._view.state is RunState.RUNNING

    def progress(self) -> VerifyView:
        view = self._view
        return replace(view, seconds=time.monotonic() - self._began) if view.state is RunState.RUNNING else view

    def stop(self) -> None:
        self._is_stopping.set()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        state, failure = RunState.DONE, None
        try:
            self._verify()
        except _Stopped:
            state = RunState.STOPPED
        except Exception as error:  # Any error: the page shows it.
            state = RunState.FAILED
            failure = describe_any(error)
        self._update(state=state, error=failure, current=None, seconds=time.monotonic() - self._began)

    def _verify(self) -> None:
        topic = self._view.topic
        choice = Choice(None if topic is None else [topic], self._view.partition)
        verified = verify(
            VerifyRequest(path=self._path, choice=choice),
            on_progress=self._show,
            on_start=self._start,
            on_partition=self._take,
        )
        self._add(verified.errors, verified.notes, None)
        self._update(errors=verified.totals.errors, bytes_done=self._view.bytes_total, share=1.0)

    def _start(self, work: ToVerify) -> None:
        self._update(bytes_total=work.size_bytes, partitions_total=work.partitions)

    def _show(self, progress: Progress) -> None:
        if self._is_stopping.is_set():
            raise _Stopped
        share = progress.done / progress.total if progress.total else 0.0
        self._update(bytes_done=progress.done, share=share, current=printable(progress.label))

    def _take(self, report: PartitionReport) -> None:
        self._add(report.errors, report.notes, report)
        view = self._view
        self._update(
            partitions_done=view.partitions_done + 1,
            batches=view.batches + report.counts.batches,
            records=view.records + report.counts.records,
            errors=view.errors + report.error_count,
        )

    def _add(self, errors: Sequence[CorruptRecord], notes: Sequence[Note], report: PartitionReport | None) -> None:
        place = None if report is None else report.partition
        topic, partition = (None, None) if place is None else (place.topic, place.partition)
        found = list(self._view.findings)
        for error in errors[: max(_MOST_FINDINGS - len(found), 0)]:
            detail = "" if error.expected is None else f" (expected {error.expected}, found {error.found})"
            found.append(
                FindingFacts(
                    file=self._relative(error.file),
                    position=error.position,
                    text=printable(f"{error.reason}{detail}"),
                    is_error=True,
                    topic=topic,
                    partition=partition,
                )
            )
        for note in notes[: max(_MOST_NOTES - self._notes, 0)]:
            self._notes += 1
            found.append(
                FindingFacts(
                    file=self._relative(note.file),
                    position=None,
                    text=printable(note.text),
                    is_error=False,
                    topic=topic,
                    partition=partition,
                )
            )
        self._update(findings=tuple(found))

    def _relative(self, file: str | None) -> str:
        return "" if file is None else printable(os.path.relpath(file, self._path))

    def _update(self, **changes: object) -> None:
        self._view = replace(self._view, **changes)  # type: ignore[arg-type]
