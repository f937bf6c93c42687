"""Plans the healing of a partition: reads every batch of every copy once, and finds what each copy should have.

The partition is read in windows of offsets, cut where any copy starts a segment. `healed_batches` says which batches
the log has in a window; a copy keeps those of them that it has, and gets the others. What it has besides is dropped.
Compacted logs are read before as far as they were compacted, to find what each copy should have there
(`compacted_part`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.config.definitions import INT32_MAX
from duralog.format.checkpoints import EpochStart
from duralog.format.uuids import RESERVED_DIRECTORIES
from duralog.scanning.cluster.batch_rows import CopyRows, DamagedRange, keys
from duralog.scanning.cluster.cluster import Cluster, Copies
from duralog.scanning.cluster.compacted.compacted_part import CompactedPart, belonging_of
from duralog.scanning.cluster.directory import ClusterDirectory
from duralog.scanning.cluster.heal_plan import CopyPlan, Part, PartitionPlan
from duralog.scanning.cluster.healed_batches import (
    CONTENT,
    NOWHERE,
    DenseLog,
    gaps,
    joined,
    nothing,
    without_misplaced,
)
from duralog.scanning.cluster.healed_segments import KeptCopy, Orphan, WindowParts, copy_plan
from duralog.scanning.cluster.offset_sets import merged, without
from duralog.scanning.cluster.problems import Problem, ProblemKind

_LARGE_BYTES = 16 << 20
"""Of the segments of all copies: less is read by one thread."""


def plan_heal(cluster: Cluster, copies: Copies) -> PartitionPlan:
    """What is to be changed in the copies of a partition, and in directories that should have one."""
    planning = _Planning(cluster, copies)
    for start, end in planning.windows():
        planning.add(start, end)
    return planning.plan()


@dataclass(slots=True, kw_only=True)
class _Target:
    """A copy that is to be healed, or a replica without one."""

    directory: ClusterDirectory
    rows: CopyRows | None
    start_offset: int
    """It should have the log from here on."""
    other_topic: str | None = None
    """The id of the topic that its folder belongs to."""
    windows: list[WindowParts] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    damage: list[DamagedRange] = field(default_factory=list)
    reached: int = 0
    """The end of what it should have so far."""


class _Planning:
    def __init__(self, cluster: Cluster, copies: Copies) -> None:
        self._copies = copies
        choice = copies.choice
        self._config = cluster.topic_config(copies)
        self._rows = [
            CopyRows(copy, number, is_preallocated=self._config.preallocate)
            for number, copy in enumerate(copies.copies)
        ]
        self._belonging = belonging_of(copies)
        self._dense_from = self._belonging.dense_from
        self._order = sorted(
            range(len(copies.copies)), key=lambda number: (number != choice.copy, -choice.agreed[number], number)
        )
        self._log = DenseLog(order=self._order, reached=min(min(rows.bases) for rows in self._rows))
        self._end_offset = 0
        """Of the batches so far."""
        self._problems = [problem for problem in copies.problems if problem.kind is not ProblemKind.CUT]
        self._targets = list(_targets(cluster, copies, self._rows, self._problems.append))
        self._compacted = CompactedPart(copies, self._rows, self._belonging, self._order)
        self._compacted.survey()
        self._lost_before = self._compacted.lost(choice.start_offset, choice.high_watermark)
        self._most_cleaned = max(copy.state.cleaned_to or 0 for copy in copies.copies)
        self._gap_end = 0
        """Where the last offsets end at which a cleaner has been at some of the copies, as they are afterwards."""

    def windows(self) -> Iterator[tuple[int, int]]:
        bounds = {base for rows in self._rows for base in rows.bases}
        if min(bounds) < self._dense_from < NOWHERE:
            bounds.add(self._dense_from)
        return pairwise([*sorted(bounds), NOWHERE])

    def add(self, start: int, end: int) -> None:
        by_copy = self._read(start, end)
        masks = [self._compacted.belongs(number, rows) for number, rows in enumerate(by_copy)]
        belonging = [rows if mask.all() else rows[mask] for rows, mask in zip(by_copy, masks, strict=True)]
        is_dense = start >= self._dense_from
        misplaced = [nothing()] * len(by_copy)
        if is_dense:
            belonging = [without_misplaced(rows, belonging, number) for number, rows in enumerate(belonging)]
            misplaced = [self._misplaced(number, belonging) for number in range(len(belonging))]
            belonging = [
                rows[~np.isin(keys(rows), keys(wrong))] if len(wrong) else rows
                for rows, wrong in zip(belonging, misplaced, strict=True)
            ]
        dense = self._log.add(end, belonging) if is_dense else nothing()
        if not is_dense:
            self._log.reached = end
        for rows in (*belonging, dense):
            if len(rows):
                self._end_offset = max(self._end_offset, int(rows["last_offset"][-1]) + 1)
        spares: list[tuple[_Target, NDArray[Any]]] = []
        all_wanted: list[NDArray[Any]] = []
        for target in self._targets:
            number = None if target.rows is None else target.rows.number
            own = nothing() if number is None else by_copy[number]
            wanted = dense if is_dense else self._compacted.wanted(number, belonging)
            if not is_dense:
                self._note_gaps(target, wanted)
                all_wanted.append(wanted)
            spare = self._place(target, start, own, _from(wanted, own, target.start_offset))
            if number is not None and len(misplaced[number]):
                spare = spare[~np.isin(keys(spare), keys(misplaced[number]))]
            spares.append((target, spare))
            if number is not None and start in self._rows[number].bases:
                target.damage += self._rows[number].segment(start).damage
        self._note_orphans(spares, is_dense=is_dense)
        self._note_differences(all_wanted)

    def _read(self, start: int, end: int) -> list[NDArray[Any]]:
        """The batches of each copy; of large segments side by side."""
        if sum(rows.size_at(start) for rows in self._rows) < _LARGE_BYTES:
            return [rows.between(start, end) for rows in self._rows]
        with ThreadPoolExecutor(len(self._rows), thread_name_prefix="duralog-compare") as pool:
            return list(pool.map(lambda rows: rows.between(start, end), self._rows))

    def _note_gaps(self, target: _Target, wanted: NDArray[Any]) -> None:
        """Checkpoints must cover what a cleaner has removed: otherwise, the next comparison takes it for lost."""
        if not len(wanted):
            return
        last = int(wanted["last_offset"][-1])
        for low, high, _ in gaps(wanted, max(target.reached, target.start_offset), last):
            if without((low, high), self._lost_before):
                self._gap_end = max(self._gap_end, high + 1)
        target.reached = last + 1

    def _note_differences(self, wanted: Sequence[NDArray[Any]]) -> None:
        for one, other in pairwise(wanted):
            for mine, theirs in ((one, other), (other, one)):
                differing = mine if not len(theirs) else mine[~np.isin(keys(mine), keys(theirs))]
                if len(differing):
                    self._gap_end = max(self._gap_end, int(differing["last_offset"][-1]) + 1)

    def _misplaced(self, number: int, belonging: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The batches of a copy at an offset that cannot be theirs. The checksum does not cover it.

        Another copy has the same contents among the offsets that are missing here; or no segment can reach so far.
        What another copy has at the same offset is right: the offsets before it may be lost in all copies.
        """
        rows = belonging[number]
        doubtful = rows[rows["expected_offset"] >= 0]
        if not len(doubtful):
            return doubtful
        others = [other for other in range(len(belonging)) if other != number]
        for other in others:
            doubtful = doubtful[~np.isin(keys(doubtful), keys(belonging[other]))]
        is_wrong = [
            row["last_offset"] - row["segment"] > INT32_MAX
            or any(self._rows[other].has_contents(row) for other in others)
            for row in doubtful
        ]
        return doubtful[np.array(is_wrong, np.bool_)]

    def _place(self, target: _Target, start: int, own: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
        """Keep what the copy has of the wanted batches, and take the others from where they are.

        Returns the valid batches of the copy that are not wanted.
        """
        spare = nothing()
        if len(own):
            own_keys, wanted_keys = keys(own), keys(wanted)
            if own_keys.tobytes() == wanted_keys.tobytes():
                target.windows.append(WindowParts(start, tuple(_parts(own))))
                return spare
            has = np.isin(wanted_keys, own_keys)
            if has.any():
                wanted = wanted.copy()
                wanted[has] = own[np.isin(own_keys, wanted_keys)]
            spare = own[~np.isin(own_keys, wanted_keys)]
            # The checksum does not cover offset and epoch: a batch that differs in these only is damaged.
            spare = spare[~np.isin(spare[CONTENT], wanted[CONTENT])]
        target.windows.append(WindowParts(start, tuple(_parts(wanted))))
        return spare

    def _note_orphans(self, spares: Sequence[tuple[_Target, NDArray[Any]]], *, is_dense: bool) -> None:
        left = [(target, spare) for target, spare in spares if len(spare) and target.rows is not None]
        for target, spare in left:
            assert target.rows is not None
            number = target.rows.number
            belongs = self._belonging.mask(number, spare)
            is_doubtful = np.zeros(len(spare), np.bool_)
            if not is_dense:
                # A cleaner has left other batches: only those of another history are orphans, and those with records
                # that may have been removed or not.
                is_doubtful = self._is_doubtful(number, spare)
                is_orphan = ~belongs | is_doubtful
                spare, is_doubtful = spare[is_orphan], is_doubtful[is_orphan]
                belongs = np.zeros(len(spare), np.bool_)
            # One leader writes in an epoch. If two copies have the same batches of an epoch, and the chosen one has
            # others, it is the chosen one that is not a copy of this partition.
            others = [keys(rows) for other, rows in left if other is not target]
            is_shared = belongs & np.isin(keys(spare), np.concatenate(others)) if others else np.zeros_like(belongs)
            watermark = self._copies.copies[number].state.high_watermark
            below = len(spare) if watermark is None else np.searchsorted(spare["last_offset"], watermark)
            offsets = zip(spare["base_offset"].tolist(), spare["last_offset"].tolist(), strict=True)
            target.orphans += [
                Orphan(first, last, bool(place < below), shared, doubtful)
                for place, ((first, last), shared, doubtful) in enumerate(
                    zip(offsets, is_shared.tolist(), is_doubtful.tolist(), strict=True)
                )
            ]

    def _is_doubtful(self, number: int, rows: NDArray[Any]) -> NDArray[np.bool_]:
        donor = self._compacted.donor(number)
        found = np.zeros(len(rows), np.bool_)
        for first, last in () if donor is None else donor.doubtful:
            found |= (rows["base_offset"] <= last) & (rows["last_offset"] >= first)
        return found

    def plan(self) -> PartitionPlan:
        copies, choice = self._copies, self._copies.choice
        end = max(self._end_offset, copies.chosen.state.end_offset if self._ends_empty() else 0)
        plans: list[CopyPlan] = []
        for target in self._targets:
            found = self._plan_copy(target, end)
            if found is not None:
                plans.append(found)
        low = choice.start_offset
        # Also before the first batch that any copy has, and after the last one.
        ends = [(max(low, self._dense_from), min(min(rows.bases) for rows in self._rows) - 1)]
        ends += [(max(self._log.reached, self._dense_from), end - 1), (end, choice.high_watermark - 1)]
        known = (*self._lost_before, *self._log.lost, *ends)
        lost = [(first, min(last, choice.high_watermark - 1)) for first, last in known]
        return PartitionPlan(
            partition=copies.partition,
            topic_id=next((copy.topic_id for copy in copies.copies if copy.topic_id is not None), None),
            sources=tuple(copy.directory.location for copy in copies.copies),
            copies=tuple(plans),
            sound=len(self._targets) - len(plans),
            lost=tuple(merged((max(first, low), last) for first, last in lost if max(first, low) <= last)),
            high_watermark=min(choice.high_watermark, end),
            config=self._config,
            problems=tuple(self._problems),
        )

    def _ends_empty(self) -> bool:
        """Whether the chosen copy ends with an empty segment: the records before it were compacted away or deleted."""
        active = self._copies.chosen.view.segments.active
        return not active.size_bytes

    def _plan_copy(self, target: _Target, end: int) -> CopyPlan | None:
        state = None if target.rows is None else target.rows.copy.state
        own_epochs = () if state is None else state.epochs
        first_base = max(target.start_offset, min(rows.bases[0] for rows in self._rows))
        kept = KeptCopy(
            rows=target.rows,
            windows=target.windows,
            damage=target.damage,
            orphans=target.orphans,
            other_topic=target.other_topic,
            start_offset=target.start_offset,
            end_offset=end,
            had_offset=None if state is None else state.end_offset,
            epochs=_epochs(own_epochs, self._belonging.epochs, target.start_offset),
            has_epochs=state is None or self._agrees(target),
            first_base=first_base if first_base < self._dense_from else None,
        )
        found = copy_plan(target.directory, kept)
        if found is None:
            return None
        limit = NOWHERE if found.number is None else self._belonging.limits[found.number]
        diverges_at = None if limit == NOWHERE else limit
        return replace(
            found,
            cleaned_to=self._cleaned_to(found),
            diverges_at=diverges_at,
            conflicts=tuple(self._compacted.conflicts()),
        )

    def _cleaned_to(self, plan: CopyPlan) -> int | None:
        origin = self._compacted.origin(plan.number)
        known = None if origin is None else self._copies.copies[origin].state.cleaned_to
        known = max(known or 0, min(self._gap_end, self._most_cleaned)) or None
        if known is None:
            return None
        return known if plan.truncated is None else min(known, plan.truncated.offset)

    def _agrees(self, target: _Target) -> bool:
        """Whether the epochs in the copy's checkpoint lead as far as its batches."""
        assert target.rows is not None
        number, copy = target.rows.number, target.rows.copy
        is_whole = copy.checkpoint_epochs[-1:] == copy.state.epochs[-1:]
        return is_whole and self._belonging.limits[number] >= copy.state.end_offset


def _targets(
    cluster: Cluster, copies: Copies, rows: Sequence[CopyRows], on_problem: Callable[[Problem], None]
) -> Iterator[_Target]:
    registration = copies.registration
    for copy, found in zip(copies.copies, rows, strict=True):
        is_replica = registration is None or copy.state.node_id is None or copy.state.node_id in registration.replicas
        if is_replica:
            yield _Target(directory=copy.directory, rows=found, start_offset=copy.state.log_start_offset)
    if registration is None:
        return
    there = {copy.state.node_id for copy in copies.copies}
    for place, node in enumerate(registration.replicas):
        homes = [directory for directory in cluster.directories if directory.node_id == node]
        if node in there or not homes:
            continue
        of_others = [(directory, found) for directory, found in copies.others if directory in homes]
        held = [directory for directory in homes if copies.partition in directory.partitions]
        if [directory for directory, _ in of_others] != held or len(held) > 1:
            # A copy that cannot be read.
            continue
        assigned = registration.directories[place] if place < len(registration.directories) else None
        if _is_elsewhere(assigned, homes):
            text = (
                f"by the cluster metadata, the replica of node {node} is in a directory that was not given, with the"
                f" id {assigned}: give it, too. If its disk is gone, the broker fetches the replica when it starts"
            )
            on_problem(Problem(ProblemKind.REPLICA_MISSING, homes[0].url, text, copies.partition))
            continue
        start_offset = copies.choice.start_offset
        if of_others:
            ((directory, other_topic),) = of_others
            yield _Target(directory=directory, rows=None, start_offset=start_offset, other_topic=other_topic)
            continue
        home = next((each for each in homes if each.meta.directory_id == assigned), None)
        # As Kafka does it: the directory with the fewest partitions.
        home = home or min(homes, key=lambda each: len(each.partitions))
        yield _Target(directory=home, rows=None, start_offset=start_offset)


def _is_elsewhere(assigned: str | None, homes: Sequence[ClusterDirectory]) -> bool:
    """Whether a replica is in none of these directories of its node. Kafka does not start if it is in two."""
    if assigned is None or assigned in RESERVED_DIRECTORIES:
        return False
    return all(home.meta.directory_id not in (None, assigned) for home in homes)


def _from(wanted: NDArray[Any], own: NDArray[Any], start_offset: int) -> NDArray[Any]:
    """From this offset on what is wanted; below, what the copy has."""
    if not len(wanted) or int(wanted["last_offset"][0]) >= start_offset:
        below = own[own["last_offset"] < start_offset] if len(own) else own
        return joined(below, wanted)
    return joined(own[own["last_offset"] < start_offset], wanted[wanted["last_offset"] >= start_offset])


def _parts(rows: NDArray[Any]) -> Iterator[Part]:
    if not len(rows):
        return
    ends = rows["position"] + rows["size"]
    is_next = (
        (rows["copy"][1:] == rows["copy"][:-1])
        & (rows["segment"][1:] == rows["segment"][:-1])
        & (rows["position"][1:] == ends[:-1])
    )
    breaks = np.flatnonzero(~is_next) + 1
    for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(rows) - 1], strict=True):
        begin, end = rows[first], rows[last]
        offset = int(begin["base_offset"] if begin["magic"] == 2 else begin["last_offset"])
        yield Part(
            int(begin["copy"]),
            int(begin["segment"]),
            int(begin["position"]),
            int(ends[last]),
            offset,
            int(end["last_offset"]),
        )


def _epochs(own: Sequence[EpochStart], history: Sequence[EpochStart], start_offset: int) -> tuple[EpochStart, ...]:
    """The history, and what the copy knows of the epochs before its first one."""
    if not history:
        return tuple(own)
    first = history[0]
    earlier = [entry for entry in own if entry.epoch <= first.epoch and entry.start_offset <= first.start_offset]
    rest = history[1:] if earlier and earlier[-1].epoch == first.epoch else history
    entries = [*earlier, *rest]
    before = [entry for entry in entries if entry.start_offset <= start_offset]
    after = [entry for entry in entries if entry.start_offset > start_offset]
    return (*([EpochStart(before[-1].epoch, start_offset)] if before else []), *after)
