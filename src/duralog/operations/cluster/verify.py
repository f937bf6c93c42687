"""Compare all copies of all partitions of a cluster: what Kafka's replicas have in common, and what not.

Nothing is changed. The directories should not be in use: a copy that is written to is reported.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duralog.config.progress import OnProgress, ignore
from duralog.errors import DuralogError
from duralog.format.filenames import FolderState
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.executors import executor_of
from duralog.operations.cluster.explain import ClusterRequest, chosen_partitions
from duralog.operations.workers import TWO_THREADS, Workers, ignore_result
from duralog.scanning.cluster.choice import Reason, epoch_at
from duralog.scanning.cluster.cluster import Cluster, Copies, open_cluster
from duralog.scanning.cluster.comparison import Compared, compare
from duralog.scanning.cluster.explained import ExplainedPartition, explained
from duralog.scanning.cluster.offset_sets import merged
from duralog.scanning.cluster.problems import LOST_ADVICE, NOTES, Problem, ProblemKind
from duralog.scanning.cluster.windows import Finding, FindingKind, Window, windows_of
from duralog.scanning.executor import Advance, TaskProgress, run_in_groups

_MOST_FINDINGS = 20
"""Of each copy of a partition. The others are counted."""
_MOST_WINDOWS = 4096
"""At a time: 64 GB of each copy, as a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFinding:
    """What is wrong with a copy of a partition."""

    finding: str
    """damage, hole, divergence, lag, lost, or the kind of a problem."""
    partition: TopicPartition | None
    node_id: int | None
    directory: str
    text: str
    first_offset: int | None = None
    last_offset: int | None = None
    file: str | None = None
    position: int | None = None
    other: str | None = None
    """The directory with the copy that it was compared with."""

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["partition"] = None if self.partition is None else str(self.partition)
        return {"kind": "finding", **{name: value for name, value in fields.items() if value is not None}}

    def __str__(self) -> str:
        parts = [self.file or self.directory]
        if self.position is not None:
            parts.append(f"position {self.position}")
        if self.partition is not None:
            parts.append(str(self.partition))
        if self.first_offset is not None:
            several = f"offsets {self.first_offset} to {self.last_offset}"
            parts.append(f"offset {self.first_offset}" if self.first_offset == self.last_offset else several)
        compared = f" (compared with {self.other})" if self.other else ""
        return f"{': '.join([*parts, f'{self.finding}: {self.text}'])}{compared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPartition:
    explained: ExplainedPartition
    batches: int
    """Of all copies."""
    decoded_records: int
    """Those that were compared one by one, since their batches differ."""
    findings: tuple[CopyFinding, ...]
    notes: tuple[CopyFinding, ...]
    left_out: int
    """Findings that are counted only."""

    @property
    def size_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.explained.copies)

    @property
    def finding_count(self) -> int:
        return len(self.findings) + self.left_out

    def to_dict(self) -> dict[str, Any]:
        fields = self.explained.to_dict()
        del fields["problems"]
        return {
            **fields,
            "batches": self.batches,
            "bytes": self.size_bytes,
            "decoded_records": self.decoded_records,
            "findings": self.finding_count,
            "notes": len(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVerifyReport:
    directories: int
    nodes: int
    partitions: tuple[ComparedPartition, ...]
    findings: tuple[CopyFinding, ...]
    """Of directories, and of partitions without any copy."""
    notes: tuple[CopyFinding, ...]
    seconds: float

    @property
    def finding_count(self) -> int:
        return len(self.findings) + sum(each.finding_count for each in self.partitions)

    @property
    def is_sound(self) -> bool:
        return not self.finding_count

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)

    @property
    def copies(self) -> int:
        return sum(len(each.explained.copies) for each in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "summary",
            "directories": self.directories,
            "nodes": self.nodes,
            "partitions": len(self.partitions),
            "copies": self.copies,
            "batches": sum(each.batches for each in self.partitions),
            "bytes": self.size_bytes,
            "decoded_records": sum(each.decoded_records for each in self.partitions),
            "seconds": round(self.seconds, 3),
            "findings": self.finding_count,
        }


def verify_cluster(
    request: ClusterRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[ComparedPartition], None] = ignore_result,
) -> ClusterVerifyReport:
    """`on_partition` is called with each partition, by topic and number, when all are compared.

    On Spark, the driver opens the directories and plans, and tasks read the batches: all machines must see the
    directories under the same paths.
    """
    started = time.monotonic()
    with open_cluster(list(request.paths), request.storage_options) as cluster:
        problems = list(cluster.problems)
        loaded: dict[TopicPartition, Copies] = {}
        for found in cluster.load(chosen_partitions(cluster, request.choice)):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                loaded[found.partition] = found
        size_bytes = sum(copy.size_bytes for found in loaded.values() for copy in found.copies)
        rounds = _Rounds(workers, _OfWhole(on_progress, size_bytes))
        for found in list(loaded.values()):
            for window in _windows(found):
                if isinstance(window, Problem):
                    problems.append(window)
                    del loaded[found.partition]
                else:
                    rounds.add(window)
        rounds.run()
        compared = rounds.compared
        partitions = tuple(_report(cluster, found, compared[partition]) for partition, found in loaded.items())
        problems += _older_metadata(cluster, loaded.values())
        if request.choice.topics is None and request.choice.partition is None:
            problems += _missing_partitions(cluster)
            problems += _set_aside(cluster)
            problems += _without_log(cluster)
        findings, notes = _split(problems)
        report = ClusterVerifyReport(
            directories=len(cluster.directories),
            nodes=len(cluster.node_ids),
            partitions=partitions,
            findings=findings,
            notes=notes,
            seconds=time.monotonic() - started,
        )
    for each in partitions:
        on_partition(each)
    return report


def _windows(copies: Copies) -> Iterator[Window | Problem]:
    try:
        yield from windows_of(copies)
    except DuralogError as error:
        text = f"cannot be compared: {error}"
        yield Problem(ProblemKind.NO_GOOD_COPY, copies.chosen.url, text, copies.partition)


class _Comparison:
    """What was found in the windows of a partition so far."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.lost: list[tuple[int, int]] = []
        self.batches = 0
        self.decoded = 0

    def add(self, found: Compared) -> None:
        self.findings += found.findings
        self.lost += found.lost
        self.batches += sum(found.batches)
        self.decoded += found.decoded


class _Rounds:
    """Compares windows, a bounded number at a time: memory does not grow with the logs."""

    def __init__(self, workers: Workers, progress: _OfWhole) -> None:
        self.compared: dict[TopicPartition, _Comparison] = defaultdict(_Comparison)
        self._executor = executor_of(workers, progress)
        self._progress = progress
        self._windows: list[Window] = []

    def add(self, window: Window) -> None:
        self._windows.append(window)
        if len(self._windows) == _MOST_WINDOWS:
            self.run()

    def run(self) -> None:
        """Compare those that wait."""
        windows, self._windows = self._windows, []
        for found in run_in_groups(
            self._executor, windows, _compare_all, size_bytes=lambda window: window.size_bytes, name="compare"
        ):
            self.compared[found.partition].add(found)
        self._progress.bytes_before += sum(window.size_bytes for window in windows)


class _OfWhole:
    """Shows the progress of a round as that of all of them."""

    def __init__(self, show: OnProgress, size_bytes: int) -> None:
        self._show = show
        self._size_bytes = size_bytes
        self.bytes_before = 0

    def __call__(self, progress: TaskProgress) -> None:
        done = self.bytes_before + progress.weight_done
        self._show(replace(progress, weight=max(self._size_bytes, done), weight_done=done))


def _compare_all(windows: Sequence[Window], advance: Advance) -> list[Compared]:
    return [compare(window, advance) for window in windows]


def _report(cluster: Cluster, copies: Copies, compared: _Comparison) -> ComparedPartition:
    found = [
        *(_of_copy(copies, finding) for finding in compared.findings),
        *_diverged(copies),
        *_lost(copies, compared),
    ]
    problems = [*copies.problems, *_placement(cluster, copies), *_written(copies)]
    findings, notes = _split(problems)
    lagging, behind = _lagging(copies)
    everything = [*found, *findings, *lagging]
    shown: list[CopyFinding] = []
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for each in everything:
        counts[each.directory, each.finding] += 1
        if counts[each.directory, each.finding] <= _MOST_FINDINGS:
            shown.append(each)
    return ComparedPartition(
        explained=explained(copies),
        batches=compared.batches,
        decoded_records=compared.decoded,
        findings=tuple(shown),
        notes=(*notes, *behind),
        left_out=len(everything) - len(shown),
    )


def _of_copy(copies: Copies, finding: Finding) -> CopyFinding:
    copy = copies.copies[finding.copy]
    return CopyFinding(
        finding=finding.kind.value,
        partition=copies.partition,
        node_id=copy.state.node_id,
        directory=copy.url,
        text=finding.text,
        first_offset=finding.first_offset,
        last_offset=finding.last_offset,
        file=finding.path or None,
        position=finding.position,
        other=None if finding.other is None else copies.copies[finding.other].url,
    )


def _diverged(copies: Copies) -> Iterator[CopyFinding]:
    choice = copies.choice
    for number, copy in enumerate(copies.copies):
        first, end = choice.agreed[number], copy.state.end_offset
        if first < end:
            here, there = epoch_at(copy.state.epochs, first), epoch_at(choice.epochs, first)
            yield CopyFinding(
                finding="divergence",
                partition=copies.partition,
                node_id=copy.state.node_id,
                directory=copy.url,
                text=f"written in leader epoch {here}; the log continues with epoch {there}: Kafka truncates these",
                first_offset=first,
                last_offset=end - 1,
                other=copies.chosen.url,
            )


def _lost(copies: Copies, compared: _Comparison) -> Iterator[CopyFinding]:
    choice = copies.choice
    ranges = [*compared.lost, (choice.end_offset, choice.high_watermark - 1)]
    if copies.dense_from is not None:
        begin = min(copy.state.start_offset for copy in copies.copies)
        ranges.append((max(choice.start_offset, copies.dense_from), begin - 1))
    for first, last in merged((first, last) for first, last in ranges if first <= last):
        why = "; ".join(
            f"{copy.url} {_what_is_wrong(copies, number, compared, first, last)}"
            for number, copy in enumerate(copies.copies)
        )
        yield CopyFinding(
            finding="lost",
            partition=copies.partition,
            node_id=None,
            directory=copies.chosen.url,
            text=f"no copy has these offsets without damage: {why}. {LOST_ADVICE}",
            first_offset=first,
            last_offset=last,
        )


def _what_is_wrong(copies: Copies, number: int, compared: _Comparison, first: int, last: int) -> str:
    """Why a copy does not have these offsets."""
    state, agreed = copies.copies[number].state, copies.choice.agreed[number]
    if last < state.start_offset:
        return f"starts at offset {state.start_offset}"
    if first >= state.end_offset:
        return f"ends at offset {state.end_offset}"
    if first >= agreed:
        return f"has another history from offset {agreed} on"
    is_damaged = any(
        found.copy == number
        and found.kind is FindingKind.DAMAGE
        and found.first_offset <= last
        and found.last_offset >= first
        for found in compared.findings
    )
    return "is damaged there" if is_damaged else "has a gap there"


def _lagging(copies: Copies) -> tuple[list[CopyFinding], list[CopyFinding]]:
    """Copies that end before the high watermark: of replicas in the ISR, which must have all of it, and of others."""
    in_sync: list[CopyFinding] = []
    others: list[CopyFinding] = []
    choice = copies.choice
    for number, copy in enumerate(copies.copies):
        end = choice.agreed[number]
        if end >= choice.high_watermark:
            continue
        is_in_sync = copies.registration is not None and copy.state.node_id in copies.registration.isr
        found = CopyFinding(
            finding="lag",
            partition=copies.partition,
            node_id=copy.state.node_id,
            directory=copy.url,
            text=f"{choice.high_watermark - end} offsets behind the high watermark of {choice.high_watermark}"
            + (", although the replica is in the ISR" if is_in_sync else ""),
            first_offset=end,
            last_offset=choice.high_watermark - 1,
        )
        (in_sync if is_in_sync else others).append(found)
    return in_sync, others


def _placement(cluster: Cluster, copies: Copies) -> Iterator[Problem]:
    """Replicas without a copy, and copies that are not replicas."""
    if cluster.metadata is None or copies.choice.reason is Reason.METADATA_STALE:
        return
    registration = copies.registration
    if registration is None:
        for copy in copies.copies:
            text = "a stray folder: the cluster metadata does not have this partition"
            yield Problem(ProblemKind.STRAY, copy.url, text, copies.partition)
        return
    for node in sorted(set(registration.replicas) & cluster.node_ids - {copy.state.node_id for copy in copies.copies}):
        homes = ", ".join(directory.url for directory in cluster.directories if directory.node_id == node)
        text = f"node {node} has a replica by the cluster metadata, and no copy in its directories: {homes}"
        yield Problem(ProblemKind.REPLICA_MISSING, homes, text, copies.partition)
    for copy in copies.copies:
        if copy.state.node_id is not None and copy.state.node_id not in registration.replicas:
            text = f"a stray folder: by the cluster metadata, node {copy.state.node_id} has no replica"
            yield Problem(ProblemKind.STRAY, copy.url, text, copies.partition)


def _written(copies: Copies) -> Iterator[Problem]:
    for copy in copies.copies:
        if copy.has_grown():
            text = f"{copy.log.folder} has grown: the directory is in use; compare a snapshot, or stop its broker"
            yield Problem(ProblemKind.BEING_WRITTEN, copy.url, text, copies.partition)


def _older_metadata(cluster: Cluster, loaded: Sequence[Copies] | Any) -> Iterator[Problem]:
    older = [copies for copies in loaded if copies.choice.reason is Reason.METADATA_STALE]
    if older:
        text = (
            f"the cluster metadata is older than {len(older)} of the logs, first {older[0].partition}: their leader"
            " epochs decide; give the directory of a controller with newer metadata"
        )
        yield Problem(ProblemKind.METADATA_OLDER, cluster.path, text)


def _missing_partitions(cluster: Cluster) -> Iterator[Problem]:
    for partition, registration in cluster.missing_partitions():
        given = sorted(set(registration.replicas) & cluster.node_ids)
        if given:
            text = f"no directory has a copy; node {', '.join(map(str, given))} should have one"
            yield Problem(ProblemKind.REPLICA_MISSING, cluster.path, text, partition)


def _set_aside(cluster: Cluster) -> Iterator[Problem]:
    for directory in cluster.directories:
        for name, partition, state in directory.set_aside():
            if state is FolderState.STRAY:
                text = (
                    f"{name}: Kafka has set this folder aside: check that the replicas are whole before you delete it"
                )
                yield Problem(ProblemKind.STRAY, directory.url, text, partition)
            else:
                text = f"{name}: a replica that was being moved here from another directory: it is not compared"
                yield Problem(ProblemKind.BEING_MOVED, directory.url, text, partition)


def _without_log(cluster: Cluster) -> Iterator[Problem]:
    for directory in cluster.directories:
        for name, partition in directory.without_log(cluster.all_partitions()):
            text = f"{name} has no log: an upload was cut off, or files are lost; copy it again, or heal the copy"
            yield Problem(ProblemKind.EMPTY_FOLDER, directory.url, text, partition)


def _split(problems: Sequence[Problem]) -> tuple[tuple[CopyFinding, ...], tuple[CopyFinding, ...]]:
    """Findings and notes."""
    found = [(problem.kind in NOTES, _of_problem(problem)) for problem in problems]
    return tuple(each for is_note, each in found if not is_note), tuple(each for is_note, each in found if is_note)


def _of_problem(problem: Problem) -> CopyFinding:
    return CopyFinding(
        finding=problem.kind.value,
        partition=problem.partition,
        node_id=None,
        directory=problem.directory,
        text=problem.text,
    )
