"""Tables and JSON of the topics of a log directory."""

from __future__ import annotations

from typing import Any

from duralog.cli.topic.views import TopicSummary, write_configs, write_summaries
from duralog.cli.voice.failures import say
from duralog.cli.voice.output import Output
from duralog.cli.voice.progress import CountingBar
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.config import TOPIC_CONFIGS, Origin, TopicConfig
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.errors import DuralogError
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

_PARTITION_NAMES = (
    *("partition", "start_offset", "end_offset", "stable_offset", "segments", "bytes"),
    *("newest_record", "leader_epoch"),
)
_PARTITION_LEAST = ("leader_epoch", "stable_offset", "segments", "newest_record")


def write_list(store: Store, only: str | None, output: Output, *, is_shown: bool = False) -> bool:
    """Returns whether all partitions could be read. With `is_shown`, a progress bar is."""
    is_well = True
    summaries = []
    names = store.topics() if only is None else [only]
    with CountingBar(len(names), unit="topic", wanted=is_shown) as progress:
        for name in names:
            progress.begin(name)
            logs, failures = _logs(store, name)
            is_well &= not failures
            summaries.append(
                TopicSummary(
                    topic=name,
                    topic_id=store.topic_id(name),
                    partitions=len(store.partitions(name)),
                    offsets=sum(log.end_offset - log.start_offset for log in logs),
                    configs=store.topic_overrides(name),
                    size_bytes=sum(log.size_bytes for log in logs),
                )
            )
            progress.advance(1)
    write_summaries(summaries, store.path, output)
    return is_well


def write_description(
    store: Store, name: str, output: Output, *, all_configs: bool = False, with_partitions: bool = True
) -> bool:
    """Returns whether all partitions could be read. JSON always has the partitions."""
    config = store.topic_config(name)
    logs, failures = _logs(store, name)
    shown = [
        definition.name
        for definition in TOPIC_CONFIGS.values()
        if all_configs or config.source(definition.name).origin is not Origin.DEFAULT
    ]
    if output.as_json:
        output.object(_object(store, name, config, shown))
        for log in logs:
            output.object({"kind": "partition", "topic": name, **_partition_fields(log)})
        return not failures
    size = size_text(sum(log.size_bytes for log in logs))
    count = plural(len(store.partitions(name)), "partition")
    output.heading(f"{printable(name)}: {count}, {size}, id {store.topic_id(name) or '-'}")
    if with_partitions:
        rows = [_partition_cells(log) for log in logs]
        right = _PARTITION_NAMES[:6] + _PARTITION_NAMES[7:]
        write_table(output, _PARTITION_NAMES, rows, right=right, cut=(), least=_PARTITION_LEAST)
    write_configs([(key, config.text(key), _source(config, key)) for key in sorted(shown)], output)
    if shown:
        for key, why in config.ignored.items():
            output.note(printable(key), f"has no effect here: {why}")
    return not failures


def _source(config: TopicConfig, name: str) -> str:
    source = config.source(name)
    return source.origin.value if source.name == name else f"{source.origin.value}: {source.name}"


def _object(store: Store, name: str, config: TopicConfig, shown: list[str]) -> dict[str, Any]:
    return {
        "kind": "topic",
        "topic": name,
        "topic_id": store.topic_id(name),
        "partitions": store.partitions(name),
        "configs": [
            {
                "name": key,
                "value": config.text(key),
                "source": config.source(key).origin.value,
                "set_as": config.source(key).name,
            }
            for key in sorted(shown)
        ],
        "ignored_configs": dict(config.ignored),
    }


def _partition_fields(log: PartitionLog) -> dict[str, Any]:
    segments = log.segments
    filled = [segment for segment in segments if segment.size_bytes] if log.end_offset > log.start_offset else []
    return {
        "partition": log.partition,
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "last_stable_offset": log.last_stable_offset,
        "segments": len(segments),
        "bytes": log.size_bytes,
        # The time of an empty segment is that of its file.
        "newest_timestamp": max((segment.largest_timestamp_ms for segment in filled), default=None),
        "leader_epoch": log.leader_epochs.latest_epoch,
    }


def _partition_cells(log: PartitionLog) -> list[str]:
    fields = _partition_fields(log)
    epoch, newest = fields["leader_epoch"], fields["newest_timestamp"]
    return [
        str(fields["partition"]),
        str(fields["start_offset"]),
        str(fields["end_offset"]),
        str(fields["last_stable_offset"]),
        f"{fields['segments']:,}",
        f"{fields['bytes']:,}",
        "-" if newest is None else format_time(newest),
        "-" if epoch < 0 else str(epoch),
    ]


def _logs(store: Store, topic: str) -> tuple[list[PartitionLog], int]:
    """The logs that can be read, and the number of those that cannot. Each failure is reported on standard error."""
    logs: list[PartitionLog] = []
    failures = 0
    for number in store.partitions(topic):
        try:
            logs.append(store.partition(topic, number))
        except DuralogError as error:
            failures += 1
            say(f"error: {topic}-{number}: {printable(str(error))}")
    return logs, failures
