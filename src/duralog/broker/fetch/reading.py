"""Reading for a Fetch: the file slices of the answer, and the error of each partition without one.

Records are not decoded: a result names a slice of a file, which goes to the client unchanged. It may start before the
requested offset and end inside of a batch. The first batch of an answer is always complete, however large.

Partitions that do not exist come at the end of an answer, those of unknown ids first, and do not keep a fetch from
waiting; any other error is answered at once. That is Kafka's order, and so is that of the checks: topic id, replica,
leader epoch, diverging epoch, offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from duralog.broker.fetch.wanted import FetchedPartition, Wanted
from duralog.broker.topics.leadership import NO_EPOCH
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire import error_codes
from duralog.errors import DuralogError
from duralog.storage.log.abort_markers import MustScan
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.leader_epochs import UNDEFINED_OFFSET
from duralog.storage.log.reading import FetchedSlice, read_slice, scan_slice
from duralog.storage.log.reading import readable_bytes as bytes_of_slice
from duralog.storage.log.view import LogView

_SCANNED_AHEAD_BYTES = 32 << 20
"""How far beyond one slice is scanned for abort markers, so that the next slices need not wait."""


class FetchLimits(NamedTuple):
    """The limits of a fetch as a whole."""

    max_bytes: int
    isolation: Isolation
    is_replica: bool
    """Whether it claims to be a follower. There are none."""
    may_read: Callable[[str], bool] | None = None
    """Whether the sender may read a topic. None: it may read all."""


class Reading(NamedTuple):
    results: list[FetchedPartition]
    size_bytes: int
    has_error: bool
    """Whether the fetch must not wait, because of an error or a diverging epoch."""
    is_hopeless: bool
    """Whether there is no partition that records could come from."""
    unscanned: list[Unscanned]
    """If there are any, the results are not complete: see `scan`."""


class Unscanned(NamedTuple):
    """A partition whose aborted transactions are not known yet. Finding them may block."""

    wanted: Wanted
    view: LogView
    max_bytes: int


Failures = Mapping[Wanted, DuralogError]


def scan(unscanned: Iterable[Unscanned]) -> Failures:
    """Find aborted transactions, on any thread but the loop's. Returns what failed, for the next `read`."""
    failures: dict[Wanted, DuralogError] = {}
    for one in unscanned:
        try:
            scan_slice(one.view, one.wanted.offset, one.max_bytes, ahead_bytes=_SCANNED_AHEAD_BYTES)
        except DuralogError as error:
            failures[one.wanted] = error
    return failures


_NO_FAILURES: Failures = {}
_NOTHING = FetchedSlice(None, 0, 0, None)


def read(
    partitions: Partitions,
    wanted: Iterable[Wanted],
    limits: FetchLimits,
    *,
    only_changes: bool,
    failures: Failures = _NO_FAILURES,
) -> Reading:
    """Read all partitions, in order. With `only_changes`, unchanged ones are left out.

    `failures` are of partitions that could not be scanned.
    """
    results: list[FetchedPartition] = []
    missing: list[FetchedPartition] = []
    unscanned: list[Unscanned] = []
    left, has_error, is_hopeless = limits.max_bytes, False, True
    min_one = True
    total = 0
    is_committed = limits.isolation is Isolation.READ_COMMITTED
    partitions.refresh_if_changed()
    may_read = limits.may_read
    for one in wanted:
        if may_read is not None and _is_refused(one, partitions, may_read):
            missing.append(FetchedPartition(one, error_codes.TOPIC_AUTHORIZATION_FAILED, aborted=()))
            continue
        partition = one.partition
        if partition is None or partition.is_gone:
            partition = one.find(partitions)
            if partition is None:
                if one.topic is not None and partitions.is_offline(one.topic, one.number):
                    results.append(FetchedPartition(one, error_codes.KAFKA_STORAGE_ERROR))
                    has_error = True
                else:
                    missing.append(_missing(one))
                continue
        is_hopeless = False
        log = partition.log
        view = log.view
        end_offset = view.last_stable_offset if is_committed else view.end_offset
        if (
            one.offset == end_offset
            and one.seen_epoch < 0
            and (one.leader_epoch < 0 or one.leader_epoch == log.leader_epoch)
            and (one.topic_id is None or one.topic_id == partition.topic_id)
            and not limits.is_replica
        ):
            # The usual case: the client has read everything.
            left = max(0, left)
            if only_changes and one.sent_high_watermark == view.end_offset and one.sent_start_offset == view[1]:
                continue
            results.append(_empty(one, view, is_committed))
            continue
        max_bytes = min(one.max_bytes, left)
        try:
            if one in failures:
                raise failures[one]
            result = _read_one(one, partition, view, max_bytes, limits, min_one=min_one)
        except MustScan:
            unscanned.append(Unscanned(one, view, max_bytes))
            continue
        except DuralogError as error:
            partitions.log_lines.log_disk_error(error)
            result = FetchedPartition(one, error_codes.code_of(error))
        # As for Kafka, a limit below zero is one for the first partition only.
        left = max(0, left - result.size)
        if result.size:
            min_one = False
            total += result.size
        elif result.error_code or result.diverging is not None:
            has_error = True
        elif (
            only_changes
            and one.sent_high_watermark == result.high_watermark
            and one.sent_start_offset == result.start_offset
        ):
            continue
        results.append(result)
    if missing:
        results += sorted(missing, key=lambda result: result.error_code != error_codes.UNKNOWN_TOPIC_ID)
    return Reading(results, total, has_error, is_hopeless, unscanned)


def readable_bytes(one: Wanted, isolation: Isolation, enough: int) -> int:
    """The bytes that a partition has for a waiting fetch; -1 if the fetch must be answered in any case.

    If any byte is `enough`, the file is not read.
    """
    partition = one.partition
    if partition is None or partition.is_gone:
        return -1
    view = partition.log.view
    if one.offset >= view.limit(isolation):
        return 0
    if enough <= 1:
        return 1
    try:
        return bytes_of_slice(view, one.offset, max(one.max_bytes, 0), isolation)
    except DuralogError:
        return -1


def _read_one(
    one: Wanted, partition: Partition, view: LogView, max_bytes: int, limits: FetchLimits, *, min_one: bool
) -> FetchedPartition:
    log = partition.log
    if one.topic_id is not None and one.topic_id != partition.topic_id:
        return FetchedPartition(one, error_codes.INCONSISTENT_TOPIC_ID)
    if limits.is_replica:
        return FetchedPartition(one, error_codes.NOT_LEADER_OR_FOLLOWER, leader_epoch=log.leader_epoch)
    if one.leader_epoch >= 0 and one.leader_epoch != log.leader_epoch:
        if one.leader_epoch < log.leader_epoch:
            return FetchedPartition(one, error_codes.FENCED_LEADER_EPOCH, leader_epoch=log.leader_epoch)
        return FetchedPartition(one, error_codes.UNKNOWN_LEADER_EPOCH)
    found, diverging = _NOTHING, None
    if one.seen_epoch >= 0:
        end = log.leader_epochs.end_offset_for(one.seen_epoch, view.end_offset)
        if end.start_offset == UNDEFINED_OFFSET or end.epoch == NO_EPOCH or one.offset < view.start_offset:
            return FetchedPartition(one, error_codes.OFFSET_OUT_OF_RANGE)
        if end.epoch < one.seen_epoch or end.start_offset < one.offset:
            diverging = end
    if diverging is None:
        view.check_offset(one.offset)
        if max_bytes < 0 and one.offset < view.limit(limits.isolation):
            return FetchedPartition(one, error_codes.UNKNOWN_SERVER_ERROR)
        found = read_slice(view, one.offset, max_bytes, limits.isolation, min_one=min_one, may_scan=False)
    file, position, size, aborted = found
    return FetchedPartition(
        one,
        error_codes.NONE,
        view.end_offset,
        view.last_stable_offset,
        view.start_offset,
        aborted,
        file,
        position,
        size,
        diverging,
    )


def _empty(one: Wanted, view: LogView, is_committed: bool) -> FetchedPartition:
    aborted = () if is_committed else None
    return FetchedPartition(one, error_codes.NONE, view.end_offset, view.last_stable_offset, view.start_offset, aborted)


def _is_refused(one: Wanted, partitions: Partitions, may_read: Callable[[str], bool]) -> bool:
    if one.topic is None:
        one.find(partitions)
    if one.topic is None or may_read(one.topic):
        return False
    # A fetch that waits does not wait for this one.
    one.partition = None
    return True


def _missing(one: Wanted) -> FetchedPartition:
    code = error_codes.UNKNOWN_TOPIC_ID if one.topic is None else error_codes.UNKNOWN_TOPIC_OR_PARTITION
    return FetchedPartition(one, code, aborted=())
