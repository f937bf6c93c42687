"""A check of the files from the page, as `duralog verify` does it: it changes nothing, and can be stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from duralog.cli.common.failures import describe, printable
from duralog.console.facts.runs import FindingFacts, RunState, VerifyView
from duralog.errors import CorruptRecord, DuralogError
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import Verification
from duralog.storage.disk.background import Clock

_MOST_FINDINGS = 500
_MOST_NOTES = 200


class _Stopped(Exception):
    """Nobody wants to know any more."""


class DirectoryVerification:
    """One check of a directory, a topic or a partition, in a thread of its own."""

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
        state, told = RunState.DONE, None
        try:
            self._verify()
        except _Stopped:
            state = RunState.STOPPED
        except Exception as error:  # Whatever it is, it is told on the page.
            state = RunState.FAILED
            told = describe(error) if isinstance(error, DuralogError | OSError) else repr(error)
        self._tell(state=state, error=told, current=None, seconds=time.monotonic() - self._began)

    def _verify(self) -> None:
        topic = self._view.topic
        check = Verification(self._path, topics=None if topic is None else [topic], partition=self._view.partition)
        total = check.size_bytes
        self._tell(bytes_total=total, partitions_total=len({work.name for work in check.work()}))

        def show(bytes_done: int, name: str) -> None:
            if self._is_stopping.is_set():
                raise _Stopped
            self._tell(bytes_done=bytes_done, share=bytes_done / total if total else 0.0, current=printable(name))

        for report in check.run(show):
            self._take(report)
        self._add(check.errors, check.notes, None)
        self._tell(errors=check.totals.errors, bytes_done=total, share=1.0)

    def _take(self, report: PartitionReport) -> None:
        self._add(report.errors, report.notes, report)
        view = self._view
        self._tell(
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
        self._tell(findings=tuple(found))

    def _relative(self, file: str | None) -> str:
        return "" if file is None else printable(os.path.relpath(file, self._path))

    def _tell(self, **changes: object) -> None:
        self._view = replace(self._view, **changes)  # type: ignore[arg-type]
