"""The sections of the page of `duralog stats --html`: each has a chart and a short text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from duralog.cli.stats.chart_scales import count_text
from duralog.cli.stats.html_report import Section, Table
from duralog.cli.stats.svg_charts import (
    ACTIVE,
    AFTER,
    BEFORE,
    CLEAN,
    DIRTY,
    GONE,
    KEPT,
    Lane,
    Part,
    fitted,
    lanes,
    ranks,
)
from duralog.cli.stats.svg_columns import Column, columns, time_marks
from duralog.cli.voice.tables import plural, size_text
from duralog.config.error_text import printable
from duralog.config.times import duration_text, format_time
from duralog.statistics.key_popularity import HotKey, Popularity
from duralog.statistics.record_shapes import RecordShape, TimeCounts, size_range
from duralog.statistics.report import LogFigures, key_text
from duralog.statistics.shapes import SegmentSize, SegmentSizes, SegmentState, TopicShape

_MOST_LANES = 16
_MOST_BLOCKS = 60
"""Neighbouring segments of a partition are merged into at most this many blocks."""
_KINDS = {
    SegmentState.CLEAN: CLEAN,
    SegmentState.DIRTY: DIRTY,
    SegmentState.ACTIVE: ACTIVE,
    SegmentState.KEPT: KEPT,
}
_MEANINGS = (
    (SegmentState.CLEAN, "compacted"),
    (SegmentState.DIRTY, "new since the last compaction"),
    (SegmentState.KEPT, "not compacted"),
    (SegmentState.ACTIVE, "still written to"),
)


def present(sections: Iterable[Section | None]) -> list[Section]:
    return [section for section in sections if section is not None]


def topic_size_section(topics: Sequence[LogFigures], shapes: Mapping[str, TopicShape]) -> Section:
    """The largest topics; the text gives the total of the others."""
    rows, states = [], set()
    for topic in topics[:_MOST_LANES]:
        segments = [segment for found in shapes[topic.topic].partitions for segment in found.segments]
        parts = []
        for state, words in _MEANINGS:
            found = [segment.size_bytes for segment in segments if segment.state is state and segment.size_bytes]
            if found:
                states.add(state)
                parts.append(
                    Part(
                        sum(found), _KINDS[state], f"{words}: {size_text(sum(found))}, {plural(len(found), 'segment')}"
                    )
                )
        rows.append(Lane(printable(topic.topic), parts, size_text(topic.disk_bytes)))
    others = topics[_MOST_LANES:]
    text = "Bytes on disk."
    if others:
        size_bytes = sum(topic.disk_bytes for topic in others)
        text += f" {plural(len(others), 'smaller topic')}, not shown, {'has' if len(others) == 1 else 'have'}"
        text += f" {size_text(size_bytes)} together."
    return Section(
        "Size by topic",
        text,
        fitted(lambda width: lanes(rows, name="Size of each topic", in_bytes=True, width=width)),
        _legend(states),
    )


def size_section(partitions: Sequence[SegmentSizes], table: Table) -> Section:
    largest = sorted(partitions, key=lambda found: -found.size_bytes)[:_MOST_LANES]
    shown = sorted(largest, key=lambda found: found.partition)
    rows = [
        Lane(f"partition {found.partition}", segment_parts(found.segments), size_text(found.size_bytes))
        for found in shown
    ]
    count = sum(len(found.segments) for found in partitions)
    together = any(len(found.segments) > _MOST_BLOCKS for found in shown)
    block = "a segment, or several neighbours," if together else "a segment,"
    text = f"{plural(count, 'segment')}. A block is {block} as wide as it is large."
    if len(partitions) > len(shown):
        text += f" These are the {len(shown)} largest of {len(partitions):,} partitions."
    states = {segment.state for found in shown for segment in found.segments if segment.size_bytes}
    return Section(
        "Size by segment",
        text,
        fitted(lambda width: lanes(rows, name="Size of each segment", in_bytes=True, width=width)),
        _legend(states),
        table,
    )


def segment_parts(segments: Sequence[SegmentSize]) -> list[Part]:
    """A block for each segment, or for several neighbours of one state if there are many."""
    filled = [segment for segment in segments if segment.size_bytes]
    together = -(-len(filled) // _MOST_BLOCKS)
    parts = []
    for state, run in groupby(filled, key=lambda segment: segment.state):
        of_state = list(run)
        words = dict(_MEANINGS)[state]
        for first in range(0, len(of_state), together or 1):
            block = of_state[first : first + together]
            size_bytes = sum(segment.size_bytes for segment in block)
            many = f"{len(block):,} segments " if len(block) > 1 else ""
            tip = f"{many}from offset {block[0].base_offset:,}: {size_text(size_bytes)}, {words}"
            parts.append(Part(size_bytes, _KINDS[state], tip))
    return parts


def _legend(states: Iterable[SegmentState]) -> list[tuple[str, str]]:
    found = set(states)
    return [(_KINDS[state], words) for state, words in _MEANINGS if state in found]


def time_section(times: TimeCounts, title: str) -> Section | None:
    buckets = times.buckets()
    if buckets is None:
        return None
    bars = [
        Column(count, f"from {format_time(buckets.first_ms + place * buckets.width_ms)}\n{plural(count, 'record')}")
        for place, count in enumerate(buckets.counts)
    ]
    text = f"Records by their timestamps, {duration_text(buckets.width_ms)} to a bar."
    far = [
        f"{plural(count, 'record')} far {where}"
        for count, where in ((buckets.before, "before"), (buckets.after, "after"))
        if count
    ]
    if far:
        text += f" Not shown: {' and '.join(far)}."
    labels = time_marks(buckets.first_ms, buckets.width_ms, len(bars))
    return Section(
        title,
        text,
        fitted(lambda width: columns(bars, name=title, labels=labels, width=width)),
    )


def popularity_section(topic: LogFigures, popularity: Popularity) -> Section | None:
    counts = popularity.by_rank()
    if not len(counts):
        return None
    keyed = topic.records - topic.keyless_records
    once = popularity.keys_by_records.get(1, 0)
    hundredth = max(1, len(counts) // 100)
    if counts[0] == 1:
        text = f"{plural(len(counts), 'key')}, each with one record."
        return Section("Key popularity", text)
    text = f"{plural(len(counts), 'key')} with {plural(keyed, 'record')}; {once:,} of them have one record."
    if len(counts) >= 100:
        share = counts.records_of_first(hundredth) / keyed
        text += f" The most frequent 1 % of the keys have {share:.1%} of the records."
    return Section(
        "Key popularity",
        text,
        fitted(
            lambda width: ranks(
                counts, name="Records of each key by rank", x_name="rank of the key", y_name="records", width=width
            )
        ),
    )


def hot_key_section(topic: LogFigures, hot_keys: Sequence[HotKey]) -> Section | None:
    """The most frequent keys, if any has more than one record."""
    if not hot_keys or hot_keys[0].records < 2:
        return None
    rows = []
    for hot in hot_keys:
        name = shown_key(hot)
        share = hot.records / topic.records
        tip = f"{name}\npartition {hot.partition}: {plural(hot.records, 'record')}, {share:.2%} of the topic"
        rows.append(Lane(name, [Part(hot.records, AFTER, tip)], f"{hot.records:,} ({share:.1%})"))
    table = Table(
        ("key", "partition", "records", "share"),
        [
            (shown_key(hot), str(hot.partition), f"{hot.records:,}", f"{hot.records / topic.records:.2%}")
            for hot in hot_keys
        ],
        ("partition", "records", "share"),
    )
    return Section(
        "Hot keys",
        "The keys with the most records.",
        fitted(lambda width: lanes(rows, name="Records of the most frequent keys", width=width)),
        (),
        table,
    )


def shown_key(hot: HotKey) -> str:
    if hot.key is None:
        return "(deleted meanwhile)"
    text = key_text(hot.key) or '""'
    return f"{text}\u2026" if hot.size_bytes > len(hot.key) else text


def codec_section(topic: LogFigures, shape: RecordShape) -> Section | None:
    """Sizes of records, and bytes before and after compression."""
    if not topic.records:
        return None
    sizes = shape.sizes.tolist()
    first = next(place for place, count in enumerate(sizes) if count)
    last = max(place for place, count in enumerate(sizes) if count)
    bars, labels = [], []
    for place in range(first, last + 1):
        low, high = size_range(place)
        span = size_text(low) if low == high else f"{size_text(low)} to {size_text(high)}"
        bars.append(Column(sizes[place], f"{span}\n{plural(sizes[place], 'record')}"))
        labels.append((place - first + 0.5, size_text(low)))
    rows = []
    for codec, counts in topic.codecs.items():
        disk_bytes, unpacked_bytes = counts["disk_bytes"], counts["unpacked_bytes"]
        times = f"{unpacked_bytes / disk_bytes:.3g}" if disk_bytes and codec != "none" else ""
        words = f"{codec}: {plural(counts['batches'], 'batch')}"
        if codec != "none":
            tip = f"{words}, {size_text(unpacked_bytes)} unpacked"
            rows.append(Lane(codec, [Part(unpacked_bytes, BEFORE, tip)], size_text(unpacked_bytes)))
        tip = f"{words}, {size_text(disk_bytes)} on disk{f', {times} times smaller' if times else ''}"
        label = "none" if codec == "none" else ""
        text = f"{size_text(disk_bytes)} ({times}\u00d7)" if times else size_text(disk_bytes)
        rows.append(Lane(label, [Part(disk_bytes, AFTER, tip)], text))
    mean = (topic.key_bytes + topic.value_bytes) / topic.records
    has_codec = any(codec != "none" for codec in topic.codecs)
    return Section(
        "Record sizes and compression",
        f"Key and value of a record have {size_text(round(mean))} together on average, the key"
        f" {size_text(round(topic.key_bytes / topic.records))} of it."
        " First the sizes of records, from the named one up to the next; below, bytes of batches by codec.",
        fitted(
            lambda width: (
                columns(bars, name="Sizes of records", labels=labels, height=180, width=width)
                + lanes(rows, name="Bytes by codec", in_bytes=True, width=width)
            )
        ),
        [(BEFORE, "unpacked"), (AFTER, "on disk")] if has_codec else [],
    )


def compaction_section(topic: LogFigures, partitions: Sequence[LogFigures]) -> Section | None:
    """What compaction has removed, and what it would remove now."""
    if not topic.is_compacted:
        return None
    offsets = sum((found.end_offset or 0) - (found.start_offset or 0) for found in partitions)
    would_go = topic.compaction.records if topic.compaction is not None else 0
    would_free = topic.compaction.size_bytes if topic.compaction is not None else 0
    stays = topic.records - would_go
    gone = max(0, offsets - topic.records - topic.control_batches)
    parts = [
        Part(stays, AFTER, f"{plural(stays, 'record')} would stay"),
        Part(would_go, GONE, f"{plural(would_go, 'record')} would be removed now"),
        Part(gone, BEFORE, f"{plural(gone, 'record')} removed already: empty offsets"),
    ]
    rows = [Lane("records", [part for part in parts if part.size], count_text(stays + would_go + gone))]
    text = (
        f"Records at {topic.records:,} of {plural(offsets, 'offset')}: {gone:,} removed before."
        if gone
        else "Nothing was removed so far."
    )
    if topic.compaction is None:
        text += " What a compaction would save now was not computed."
    elif would_go:
        freed = f"{size_text(would_free)} of {size_text(topic.disk_bytes)}"
        text += f" A compaction now would remove {plural(would_go, 'record')} and free {freed}."
    else:
        text += " A compaction now would save nothing: it would keep all records in its range."
    bytes_after = topic.disk_bytes - would_free
    sizes = (("on disk now", topic.disk_bytes, BEFORE), ("compacted", bytes_after, AFTER))
    by_bytes = [Lane(label, [Part(size, kind, size_text(size))], size_text(size)) for label, size, kind in sizes]

    def draw(width: int) -> str:
        chart = lanes(rows, name="Records that stay, and records that are removed", width=width)
        if would_free > 0:
            chart += lanes(by_bytes, name="Bytes before and after a compaction", in_bytes=True, width=width)
        return chart

    kinds = [(AFTER, "would stay"), (GONE, "would be removed now"), (BEFORE, "removed already")]
    present = {part.kind for part in parts if part.size}
    return Section("Compaction", text, fitted(draw), [(kind, words) for kind, words in kinds if kind in present])
