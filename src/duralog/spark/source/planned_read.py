"""From the options of a read to what Spark's tasks read; no PySpark here.

The batch source and `duralog.spark.explain` both use it, so that what is explained is what is done.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from duralog.config.collector_pause import collector_paused
from duralog.errors import UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.directories import Paths
from duralog.scanning.cluster.served import ServedLogs
from duralog.scanning.cluster.sources import ClusterPlan
from duralog.scanning.logs import AnyPlan, Logs
from duralog.scanning.offset_ranges import Bound, OffsetRange, Offsets, OnDataLoss, select_partitions
from duralog.scanning.slices import DataLoss
from duralog.scanning.time_range import ANY_TIME
from duralog.scanning.topic_choice import unless_named
from duralog.spark.option_text import InvalidOption
from duralog.spark.source.frame_snapshot import FrameSnapshot
from duralog.spark.source.read_options import ReadOptions

if TYPE_CHECKING:
    from duralog.spark.source.pushed_filters import PushedFilters

_logger = logging.getLogger(__name__)


def explain(path: Paths, options: Mapping[str, str] | None = None, **more: str) -> AnyPlan:
    """What `spark.read.format("duralog").options(...).load(path)` would read, and what it leaves out.

    Options whose names are not Python names (`kafka.isolation.level`) go into `options`. `str()` of the result is for
    people. Of several directories, it says which copy of each partition is read, why, and what the others have.
    """
    if isinstance(path, str | os.PathLike):
        place = {"path": os.fspath(path)}
    else:
        place = {"paths": json.dumps([os.fspath(each) for each in path])}
    return plan_read(ReadOptions.of({**(options or {}), **more, **place}, streaming=False))


def take_snapshot(options: ReadOptions) -> FrameSnapshot:
    """What the options mean now, in offsets."""
    with collector_paused(), options.logs.open() as logs:
        log_problems(logs)
        return FrameSnapshot.of(logs, _resolve(logs, options, data_loss_handler(options)))


def plan_read(
    options: ReadOptions, snapshot: FrameSnapshot | None = None, filters: PushedFilters | None = None
) -> AnyPlan:
    """The slices of a batch read: of a snapshot, or of what the options mean now."""
    remembered = () if snapshot is None else snapshot.objects
    with collector_paused(), options.logs.open(remembered=remembered) as logs:
        on_data_loss = data_loss_handler(options)
        if snapshot is None:
            ranges = _resolve(logs, options, on_data_loss)
        else:
            ranges = snapshot.ranges_left(logs, on_data_loss)
        if filters is not None:
            ranges = filters.narrow(ranges)
        planned = logs.plan(
            ranges,
            isolation=options.isolation,
            max_slice_bytes=options.max_split_bytes,
            min_slices=options.min_partitions,
            times=ANY_TIME if filters is None else filters.bounds.times,
            on_data_loss=on_data_loss,
        )
    log_plan(options, planned)
    return planned


def log_plan(options: ReadOptions, planned: AnyPlan) -> None:
    if not isinstance(planned, ClusterPlan):
        _logger.info("%s: %s", options.path, planned)
        return
    _logger.info("%s: %s", options.path, planned.summary())
    for noted in (*planned.healed, *planned.mixed):
        _logger.warning("%s", noted)


def log_problems(logs: Logs) -> None:
    """What is wrong with the directories of a cluster does not stop a read."""
    if isinstance(logs, ServedLogs):
        for problem in logs.problems:
            _logger.warning("%s", problem)


def _resolve(logs: Logs, options: ReadOptions, on_data_loss: OnDataLoss | None) -> dict[TopicPartition, OffsetRange]:
    return resolve_bounds(logs, chosen_partitions(logs, options), options, on_data_loss)


def chosen_partitions(logs: Logs, options: ReadOptions, *, may_be_gone: bool = False) -> list[TopicPartition]:
    """The partitions that the options name, those of every topic if they name none.

    `UnknownTopic` for one that is not there; with `may_be_gone` it is left out.
    """
    selection = options.selection
    there = set(logs.topics()) if may_be_gone else None
    if selection.assigned is not None:
        assigned: Mapping[str, Collection[int]] = selection.assigned
        if there is not None:
            assigned = {
                topic: set(of) & set(logs.partitions(topic)) for topic, of in assigned.items() if topic in there
            }
        return select_partitions(logs, assigned=assigned)
    if selection.topics is not None:
        return select_partitions(logs, topics=[name for name in selection.topics if there is None or name in there])
    schemas_topic = None if options.decode is None else options.decode.schemas_topic
    found = select_partitions(logs, pattern=selection.pattern or ".*", unless_named=unless_named(schemas_topic))
    if selection.pattern is None and not found and not may_be_gone:
        raise UnknownTopic(f"{options.path}: there are no topics: no folder is a partition, TOPIC-NUMBER")
    return found


def resolve_bounds(
    logs: Logs,
    partitions: list[TopicPartition],
    options: ReadOptions,
    on_data_loss: OnDataLoss | None,
) -> dict[TopicPartition, OffsetRange]:
    """Where the options say that reading starts and ends, in offsets."""
    for bound in (options.start, options.end):
        _check_named(bound, partitions, is_start=bound is options.start)
    return logs.resolve(partitions, options.start, options.end, isolation=options.isolation, on_data_loss=on_data_loss)


def _check_named(bound: Bound, partitions: list[TopicPartition], *, is_start: bool) -> None:
    """As the connector: offsets for single partitions must be given for all that are read, and no others."""
    if not bound.of:
        return
    option = f"{'starting' if is_start else 'ending'}Offsets{'' if isinstance(bound, Offsets) else 'ByTimestamp'}"
    if strange := sorted(set(bound.of) - set(partitions)):
        raise InvalidOption(f"option {option} names {strange[0]}, which is not read: {_listed(partitions)} are")
    if missing := sorted(set(partitions) - set(bound.of)):
        hint = "; -2 stands for the earliest offset" if is_start else "; -1 stands for the latest offset"
        raise InvalidOption(
            f"option {option} does not name {_listed(missing)}: name every partition that is read"
            f"{hint if isinstance(bound, Offsets) else ''}"
        )


def _listed(partitions: list[TopicPartition], most: int = 10) -> str:
    shown = ", ".join(map(str, partitions[:most]))
    return shown if len(partitions) <= most else f"{shown} and {len(partitions) - most} more"


def data_loss_handler(options: ReadOptions) -> OnDataLoss | None:
    """None if loss is an error."""
    return None if options.fail_on_data_loss else _log_loss


def _log_loss(loss: DataLoss) -> None:
    _logger.warning("%s", loss)
