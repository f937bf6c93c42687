"""One run of `duralog dump`: finds the files and opens each. An error in one file does not end the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from duralog.cli.dump.files import dump_file
from duralog.cli.dump.request import DumpRequest, Mode
from duralog.cli.voice.compilation import announce_compilation
from duralog.cli.voice.failures import CannotWrite, say
from duralog.cli.voice.output import Output
from duralog.cli.voice.progress import CountingBar
from duralog.config.error_text import describe, printable
from duralog.errors import CorruptRecord, DuralogError, UnknownTopic
from duralog.format.filenames import FileKind, FileState, parse_partition_folder
from duralog.storage.disk.file_source import size_of
from duralog.storage.disk.found_files import Content, FoundFile, identify, list_folder

if TYPE_CHECKING:
    from duralog.cli.dump.decoding import FileDecoders
    from duralog.cli.dump.log import Sink
    from duralog.cli.dump.summary import Summary

_LOGS = (Content.LOG, Content.METADATA_SNAPSHOT)
_INDEXES = (Content.OFFSET_INDEX, Content.TIME_INDEX, Content.TRANSACTION_INDEX)


class DumpRun:
    def __init__(self, request: DumpRequest, output: Output, *, progress_wanted: bool) -> None:
        self._request = request
        self._output = output
        self._progress_wanted = progress_wanted
        self._failures = 0

    @property
    def has_failed(self) -> bool:
        return self._failures > 0 or self._output.findings > 0

    def dump(self, paths: list[str]) -> None:
        files = [file for path in paths for file in self._found(path)]
        if self._request.mode is Mode.VERIFY:
            files = _segments_to_verify(files)
        logs = [file for file in files if file.content in _LOGS]
        total_bytes = sum(size_of(log.path) for log in logs)
        try:
            with CountingBar(total_bytes, wanted=self._progress_wanted) as progress, self._sink(logs) as sink:
                self._output.before_writing = progress.hide
                for _, group in groupby(files, key=lambda file: file.folder):
                    self._dump_folder(list(group), sink, progress)
        finally:
            self._output.flush()

    def _found(self, path: str) -> Iterator[FoundFile]:
        """The files at a path of the command line that this run can show."""
        try:
            if not os.path.isdir(path):
                # lstat would accept a dangling link.
                os.stat(path)
                file = identify(path)
                if file.content is Content.OTHER:
                    self._fail(f"{printable(path)}: by its name, this is not a file of a log")
                    return
                yield file
                return
            refusals: list[OSError] = []
            listed = list_folder(path, on_refusal=refusals.append)
        except OSError as error:
            self._fail(describe(error))
            return
        refusals = [refusal for refusal in refusals if self._concerns_refused(refusal)]
        for refusal in refusals:
            self._fail(describe(refusal))
        if not refusals and all(file.content is Content.OTHER for file in listed):
            self._fail(
                f"{printable(path)}: no log files in here: give a partition folder such as orders-0, "
                "a folder of them, or files"
            )
            return
        chosen = [file for file in listed if self._request.concerns_folder(file.partition)]
        if not chosen and not refusals:
            raise UnknownTopic(f"{printable(path)}: there is no such topic or partition here")
        yield from filter(self._concerns, _without_outside(chosen, self._request))

    def _concerns_refused(self, error: OSError) -> bool:
        return self._request.concerns_folder(parse_partition_folder(os.path.basename(os.fsdecode(error.filename))))

    def _concerns(self, file: FoundFile) -> bool:
        """Whether the mode shows this kind of file."""
        mode = self._request.mode
        return file.content in _LOGS or mode.shows_small_files or (mode is Mode.VERIFY and file.content in _INDEXES)

    def _dump_folder(self, files: list[FoundFile], sink: Sink | None, progress: CountingBar) -> None:
        """The files of one folder, and the summary of the logs among them."""
        summaries: list[tuple[FoundFile, Summary]] = []
        for file in files:
            if self._request.quota.is_used_up:
                break
            try:
                if file.content in _LOGS:
                    assert sink is not None
                    progress.begin(file.name)
                    summaries.append((file, self._walk(file, sink, progress)))
                elif file.content is Content.OTHER:
                    self._output.note(file.path, "skipped: its name is not that of a log file", skipped=True)
                elif not self._concerns(file):
                    self._output.note(file.path, "skipped: it holds no records", skipped=True)
                else:
                    dump_file(file, self._request, self._output)
            except (BrokenPipeError, CannotWrite):
                raise
            except CorruptRecord as error:
                self._output.finding(error)
            except (DuralogError, OSError) as error:
                self._fail(describe(error))
        self._summarise(summaries)

    def _walk(self, file: FoundFile, sink: Sink, progress: CountingBar) -> Summary:
        from duralog.cli.dump.log import walk_log

        return walk_log(file, self._request, sink, self._output, progress)

    def _sink(self, logs: list[FoundFile]) -> AbstractContextManager[Sink | None]:
        """The sink of the mode. Without a log to read, no heavy module is imported."""
        if not logs and self._request.mode is not Mode.EXPORT:
            return nullcontext(None)
        announce_compilation(quiet=self._output.quiet)
        request, output = self._request, self._output
        if request.mode is Mode.BATCHES:
            from duralog.cli.dump.batches import BatchSink

            return nullcontext(BatchSink(request, output))
        if request.mode is Mode.RECORDS:
            from duralog.cli.dump.records import RecordSink

            return nullcontext(RecordSink(request, output, self._decoders(logs)))
        if request.mode is Mode.EXPORT:
            from duralog.cli.dump.export import ExportSink

            decoders = self._decoders(logs)
            return ExportSink(request, output, None if decoders is None else decoders.columns())
        from duralog.cli.dump.verify import SummarySink, VerifySink

        return nullcontext(SummarySink() if request.mode is Mode.SUMMARY else VerifySink(request, output))

    def _decoders(self, logs: list[FoundFile]) -> FileDecoders | None:
        request = self._request
        if request.decode is None:
            return None
        from duralog.cli.dump.decoding import FileDecoders

        return FileDecoders(
            request.decode,
            logs,
            max_decompressed_bytes=request.max_decompressed_bytes,
            say_note=(lambda _: None) if self._output.quiet else say,
        )

    def _summarise(self, summaries: list[tuple[FoundFile, Summary]]) -> None:
        only_a_verdict = self._request.mode in (Mode.SUMMARY, Mode.VERIFY)
        is_wanted = only_a_verdict or not (self._output.as_json or self._output.quiet or self._request.is_limited)
        if not summaries or not is_wanted:
            return
        from duralog.cli.dump.summary import write_summaries

        only_some = not only_a_verdict and (self._request.is_narrowed or self._request.key is not None)
        # A snapshot, or a .cleaned, .swap or .deleted file, has the same offsets as the live log.
        for _, alike in groupby(sorted(summaries, key=_likeness), key=_likeness):
            write_summaries(list(alike), self._output, with_files=only_a_verdict, only_some=only_some)

    def _fail(self, message: str) -> None:
        self._failures += 1
        self._output.flush()
        say(f"error: {message}")


def _likeness(log: tuple[FoundFile, Summary]) -> tuple[int, str]:
    return log[0].content, log[0].state.value


def _without_outside(files: list[FoundFile], request: DumpRequest) -> list[FoundFile]:
    """Without the segments outside of the selected offsets, by the base offset of the next segment."""
    if request.offsets.is_everything:
        return files
    next_base: dict[tuple[str, int], int] = {}
    for _, group in groupby(files, key=lambda file: file.folder):
        logs = [
            file
            for file in group
            if file.content is Content.LOG and file.state is FileState.LIVE and file.offset is not None
        ]
        for file, following in pairwise(logs):
            next_base[file.folder, _offset(file)] = _offset(following)

    def is_inside(file: FoundFile) -> bool:
        if file.offset is None or file.state is not FileState.LIVE or file.content not in (Content.LOG, *_INDEXES):
            return True
        end = next_base.get((file.folder, file.offset))
        return file.offset < request.offsets.end and (end is None or end > request.offsets.start)

    return [file for file in files if is_inside(file)]


def _offset(file: FoundFile) -> int:
    assert file.offset is not None
    return file.offset


def _segments_to_verify(files: list[FoundFile]) -> list[FoundFile]:
    """The log of each segment, of which a log or an index was given."""
    logs: dict[str, FoundFile] = {}
    for file in files:
        log = file
        if file.content in _INDEXES:
            log = identify(file.sibling(FileKind.LOG))
        logs.setdefault(log.path, log)
    return list(logs.values())
