"""How far a streaming query is behind its logs, by Spark's own report of its progress.

Spark asks a source in Python for its offsets, and not for metrics: `metrics` in the progress of such a source is always
empty. But the progress has where the last micro-batch ended, and where the logs ended when it was planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.spark.source.stream_offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


def lag(progress: StreamingQueryProgress | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """How many offsets each partition is behind, by `query.lastProgress` or the progress that a listener gets.

    A partition that has been read to its end has 0. With `read_committed`, the end is the last stable offset. If two
    sources of the query read a partition, the larger number counts. Sources of other formats are left out, except for
    Spark's Kafka connector, whose offsets look the same.
    """
    text = getattr(progress, "json", None)
    content: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else dict(progress)
    behind: dict[TopicPartition, int] = {}
    for source in content["sources"]:
        try:
            latest, ends = from_json(source.get("latestOffset")), from_json(source.get("endOffset"))
        except DuralogError:
            continue
        for partition, offset in latest.items():
            behind[partition] = max(offset - ends.get(partition, 0), behind.get(partition, 0))
    return behind
