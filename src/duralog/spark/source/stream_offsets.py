"""Where a streaming query stands: the next offset of every partition, as Spark keeps it in its checkpoint.

The JSON is the connector's, `{"orders":{"0":23,"1":345}}`. Spark compares offsets by that text, so topics and
partitions are always sorted: equal offsets are equal text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition

Positions = dict[TopicPartition, int]
"""The next offset to read, for each partition."""
OffsetJson = dict[str, dict[str, int]]


def to_json(positions: Mapping[TopicPartition, int]) -> OffsetJson:
    found: OffsetJson = {}
    for topic, partition in sorted(positions):
        found.setdefault(topic, {})[str(partition)] = positions[TopicPartition(topic, partition)]
    return found


def from_json(value: Any) -> Positions:
    """What `to_json` wrote. A checkpoint is a file of the user: anything else is refused."""
    try:
        return {
            TopicPartition(topic, _partition(partition)): _offset(offset)
            for topic, offsets in value.items()
            for partition, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise DuralogError(
            f'the checkpoint has the offset {str(value)[:200]}: expected one such as {{"orders": {{"0": 23}}}};'
            " the checkpoint is of a query on another source"
        ) from None


def _partition(text: str) -> int:
    number = int(text)
    if str(number) != text or not 0 <= number < 2**31:
        raise ValueError(text)
    return number


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(value)
    return value


def distance(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between, in all partitions together."""
    return sum(max(end[partition] - start[partition], 0) for partition in end)


def shared_out(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most_offsets: int) -> Positions:
    """An end at most `most_offsets` away, in proportion to what each partition has; as the connector does it.

    A partition that has something gets one offset at least, so that none waits for ever.
    """
    total = distance(start, end)
    if total <= most_offsets:
        return dict(end)
    positions = {}
    for partition, end_offset in end.items():
        share = most_offsets * max(end_offset - start[partition], 0) / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        positions[partition] = min(end_offset, start[partition] + taken)
    return positions


def only(positions: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> Positions:
    return {partition: positions[partition] for partition in partitions if partition in positions}
