"""The words and numbers next to the picture of a partition."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config import TOPIC_CONFIGS
from duralog.config.times import duration_text
from duralog.console.drawing.partition_blocks import Block
from duralog.console.drawing.reader_zone import ReaderZone
from duralog.console.drawing.words import (
    UNKNOWN,
    age_text,
    bytes_text,
    counted,
    grouped,
    number_text,
    share_text,
    value_in_words,
)
from duralog.console.facts.partitions import PartitionFacts, SegmentFacts, SegmentScan


@dataclass(frozen=True, slots=True)
class Figure:
    marker: str
    name: str
    value: str
    about: str = ""
    """A smaller line below."""
    tip: str = ""


def headline(facts: PartitionFacts) -> str:
    """`compact · 12 segments · 1.5 GiB · newest record 3 min ago`."""
    parts = [facts.policy or "policy unknown"]
    if facts.segments:
        parts.append(counted(len(facts.segments), "segment"))
    if facts.size_bytes is not None:
        parts.append(bytes_text(facts.size_bytes))
    if facts.start_offset == facts.end_offset:
        parts.append("no records")
    elif (times := time_range(facts)) is not None:
        parts.append(f"newest record {age_text(times[1])}")
    return " · ".join(parts)


def offset_figures(facts: PartitionFacts, zone: ReaderZone) -> list[Figure]:
    """In order, from left to right in the picture."""
    figures = [
        Figure("start-offset", "Log start", number_text(facts.start_offset), "Nothing below it can be read."),
    ]
    if facts.first_dirty_offset is not None:
        figures.append(
            Figure("first-dirty-offset", "First dirty", number_text(facts.first_dirty_offset), _dirty_words(facts))
        )
    if facts.first_uncleanable_offset is not None:
        why = grouped(facts.why_uncleanable or "")
        if facts.cleanable_from_ms is not None:
            why += f"; {_moment(facts.cleanable_from_ms, zone)}"
        figures.append(
            Figure("first-uncleanable-offset", "First uncleanable", number_text(facts.first_uncleanable_offset), why)
        )
    undecided = facts.high_watermark - facts.last_stable_offset
    figures.append(
        Figure(
            "last-stable-offset",
            "Last stable",
            number_text(facts.last_stable_offset),
            f"{counted(undecided, 'offset')} after the start of an open transaction."
            if undecided > 0
            else "No open transaction.",
        )
    )
    figures.append(
        Figure("high-watermark", "High watermark", number_text(facts.high_watermark), "Consumers read up to it.")
    )
    figures.append(Figure("end-offset", "Log end", number_text(facts.end_offset), "The next record gets it."))
    return figures


def log_figures(facts: PartitionFacts) -> list[Figure]:
    """For the tiles on top."""
    span = facts.end_offset - facts.start_offset
    figures = [
        Figure(
            "size",
            "Size",
            bytes_text(facts.size_bytes),
            counted(len(facts.segments), "segment") if facts.segments else "",
        ),
        Figure(
            "offsets",
            "Offsets",
            number_text(span),
            f"{number_text(facts.start_offset)} to {number_text(facts.end_offset)}",
        ),
    ]
    if (times := time_range(facts)) is not None and span:
        first, latest = times
        figures.append(Figure("time-range", "Time range", duration_text(latest - first), f"newest {age_text(latest)}"))
    else:
        figures.append(Figure("time-range", "Time range", UNKNOWN, "no records" if not span else ""))
    if facts.dirty_ratio is not None:
        limit = "" if facts.min_dirty_ratio is None else f"cleaned above {share_text(facts.min_dirty_ratio)}"
        figures.append(Figure("dirty-ratio", "Dirty", share_text(facts.dirty_ratio), limit))
    return figures


def time_range(facts: PartitionFacts) -> tuple[int, int] | None:
    """The smallest and the largest time that is known: producers set them, so they need not rise with the offsets."""
    known = [facts.first_timestamp_ms, facts.latest_timestamp_ms]
    for segment in facts.segments:
        known += [segment.first_timestamp_ms, segment.largest_timestamp_ms]
    times = [time for time in known if time is not None]
    return (min(times), max(times)) if times else None


def config_figures(facts: PartitionFacts) -> list[Figure]:
    """Those that are not Kafka's defaults."""
    figures = []
    for name, value in sorted(facts.configs.items()):
        known = TOPIC_CONFIGS.get(name)
        # A config that is set to its default is left out.
        if known is None or known.default is None or known.text(known.default) != value:
            about = "" if known is None else known.doc
            figures.append(Figure(f"config-{name}", name, value, value_in_words(name, value), about))
    return figures


def segment_figures(segment: SegmentFacts, zone: ReaderZone) -> list[Figure]:
    """The figures of a segment that need no reading of it."""
    span = segment.next_offset - segment.base_offset
    density = segment.index_density_bytes
    return [
        Figure(
            "segment-offsets",
            "Offsets",
            f"{number_text(segment.base_offset)} to {number_text(segment.next_offset)}",
            counted(span, "offset"),
        ),
        Figure(
            "segment-times",
            "First batch",
            zone.text(segment.first_timestamp_ms),
            f"newest {zone.text(segment.largest_timestamp_ms)}",
            f"{zone.exact(segment.first_timestamp_ms)}\n{zone.exact(segment.largest_timestamp_ms)}",
        ),
        Figure(
            "segment-index",
            "Index",
            _entries(segment.index_entries),
            f"one each {bytes_text(round(density))} of log" if density else "too small to need one",
        ),
        Figure("segment-time-index", "Time index", _entries(segment.time_index_entries)),
    ]


def group_figures(block: Block, zone: ReaderZone) -> list[Figure]:
    return [
        Figure(
            "segment-offsets",
            "Offsets",
            f"{number_text(block.base_offset)} to {number_text(block.next_offset)}",
            counted(block.next_offset - block.base_offset, "offset"),
        ),
        Figure(
            "segment-size", "Size", bytes_text(block.size_bytes), f"{counted(len(block.segments), 'segment')} together"
        ),
        Figure(
            "segment-times",
            "First batch",
            zone.text(block.first_timestamp_ms),
            f"newest {zone.text(block.largest_timestamp_ms)}",
        ),
    ]


def scan_figures(scan: SegmentScan) -> list[Figure]:
    """The figures that were found by reading the segment."""
    span = 0 if scan.last_offset is None else scan.last_offset + 1 - scan.base_offset
    kept = f"{share_text(scan.records / span)} of its offsets" if span > 0 else ""
    controls = f", {counted(scan.control_batches, 'control batch')}" if scan.control_batches else ""
    figures = [
        Figure("scan-records", "Records", number_text(scan.records), kept),
        Figure("scan-batches", "Batches", number_text(scan.batches), f"{_a_batch(scan)}{controls}"),
        Figure(
            "scan-compression",
            "Compression",
            UNKNOWN if scan.compression_ratio is None else f"{scan.compression_ratio:.2f} : 1",
            UNKNOWN if scan.unpacked_bytes is None else f"{bytes_text(scan.unpacked_bytes)} unpacked",
        ),
    ]
    if scan.tombstones is not None:
        keyless = f"{counted(scan.keyless, 'record')} without a key" if scan.keyless else ""
        figures.append(Figure("scan-tombstones", "Tombstones", number_text(scan.tombstones), keyless))
    return figures


def _entries(count: int | None) -> str:
    if count is None:
        return "none"
    return f"{number_text(count)} {'entry' if count == 1 else 'entries'}"


def _a_batch(scan: SegmentScan) -> str:
    if not scan.batches:
        return ""
    return "1 record each" if scan.records == scan.batches else f"{scan.records / scan.batches:.3g} records each"


def _dirty_words(facts: PartitionFacts) -> str:
    if facts.checkpoint is None:
        return "Never compacted."
    if facts.why_not_compacted is None:
        return "A cleaner would compact it now."
    return facts.why_not_compacted


def _moment(time_ms: int, zone: ReaderZone) -> str:
    return f"more from {zone.text(time_ms)} on ({age_text(time_ms)})"
