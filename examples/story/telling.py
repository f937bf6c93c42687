"""The story's figures as tables for the terminal, and as a page with charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.cli.stats.chart_scales import count_text
from duralog.cli.stats.html_report import Section, Table, Tile, page
from duralog.cli.stats.svg_charts import AFTER, BEFORE, GONE, Lane, Part, Series, areas, fitted, lanes, ranks
from duralog.cli.voice.tables import fitting, header_line, plural, row_line, size_text
from examples.story.change_stream import FIRST_MS, HOUR_MS
from examples.story.chapters import PARTITIONS, TOPIC, SegmentFile, Streamed, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    seconds: float
    records: int | None = None
    """That it went through; None where that is not the point."""

    @property
    def text(self) -> str:
        rate = f", {count_text(self.records / self.seconds)} records/s" if self.records and self.seconds else ""
        return f"{self.seconds:.1f} s{rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    records_before: int
    records_after: int
    superseded: int
    kept_tombstones: int
    expired_tombstones: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    cores: int
    written: Written
    streamed: Streamed
    compacted: Compacted
    before: Sequence[SegmentFile]
    after: Sequence[SegmentFile]
    per_hour_after: Sequence[int]
    snapshot_rows: int
    snapshot_bytes: int
    findings: int
    steps: Sequence[Step]
    seconds: float

    @property
    def bytes_before(self) -> int:
        return sum(file.size_bytes for file in self.before)

    @property
    def bytes_after(self) -> int:
        return sum(file.size_bytes for file in self.after)


def table_lines(story: Story) -> list[str]:
    """Before and after, partition by partition."""
    names = ("partition", "segments", "after", "bytes", "after", "left")
    rows = []
    for number in [*range(PARTITIONS), None]:
        before, after = (_of(files, number) for files in (story.before, story.after))
        sizes = [sum(file.size_bytes for file in files) for files in (before, after)]
        rows.append(
            [
                "all" if number is None else f"{TOPIC}-{number}",
                f"{len(before):,}",
                f"{len(after):,}",
                size_text(sizes[0]),
                size_text(sizes[1]),
                _share(sizes[1], sizes[0]),
            ]
        )
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = []
    for row in (names, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return lines


def step_lines(steps: Sequence[Step]) -> list[str]:
    rows = [
        [step.name, f"{step.seconds:.1f}", f"{step.records:,}" if step.records else "-", _rate(step)] for step in steps
    ]
    columns = fitting(("step", "seconds", "records", "records/s"), right=("seconds", "records", "records/s"), rows=rows)
    return [header_line(columns), *(row_line(columns, row) for row in rows)]


def html(story: Story) -> str:
    written, compacted = story.written, story.compacted
    freed = story.bytes_before - story.bytes_after
    tiles = [
        Tile("Changes", f"{written.records:,}", f"of {written.keys:,} keys, {written.deletions:,} deletions"),
        Tile("On disk", size_text(story.bytes_before), f"{size_text(written.raw_bytes)} of keys and values, lz4"),
        Tile("Compacted", size_text(story.bytes_after), f"{_share(freed, story.bytes_before)} freed"),
        Tile("Snapshot", f"{story.snapshot_rows:,}", f"rows, {size_text(story.snapshot_bytes)} of Parquet"),
        Tile("All of it", f"{story.seconds:.0f} s", f"on {plural(story.cores, 'core')}"),
    ]
    times = [FIRST_MS + number * HOUR_MS for number in range(len(story.streamed.per_hour))]
    changes = Series("appended", story.streamed.per_hour, BEFORE)
    survivors = Series("left after compaction", story.per_hour_after, AFTER)
    hundredth = max(1, len(written.per_key) // 100)
    top_share = _share(sum(written.per_key[:hundredth]), written.records)
    sections = [
        Section(
            "Segments, before and after compaction",
            "Each block is a segment file, as wide as it is large.",
            fitted(
                lambda width: lanes(
                    _segment_lanes(story), name="Sizes of the segments of each partition", in_bytes=True, width=width
                )
            ),
            [(BEFORE, "before"), (AFTER, "after")],
            _segment_table(story),
        ),
        Section(
            "When the records were written",
            "For each hour, as Spark counted them: the stream, in"
            f" {plural(story.streamed.micro_batches, 'micro-batch')}, and what is left of it. Of older hours little"
            " remains, since most of their keys have changed again.",
            fitted(
                lambda width: areas(
                    times, [changes, survivors], name="Records of each hour, before and after compaction", width=width
                )
            ),
            [(BEFORE, "appended"), (AFTER, "left after compaction")],
        ),
        Section(
            "How often keys change",
            f"The most popular hundredth of the keys has {top_share} of the changes. That is what compaction lives on.",
            fitted(
                lambda width: ranks(
                    written.per_key,
                    name="Changes of each key by rank",
                    x_name="rank of the key",
                    y_name="changes",
                    width=width,
                )
            ),
        ),
        Section(
            "Hot keys",
            "The products with the most changes, of all that were written.",
            fitted(
                lambda width: lanes(_hot_key_lanes(written), name="Changes of the most popular products", width=width)
            ),
        ),
        Section(
            "What compaction saved",
            f"{compacted.records_before - compacted.records_after:,} of {compacted.records_before:,} records went, and"
            f" {size_text(freed)} of {size_text(story.bytes_before)} on disk. Tombstones stay for a day, so that"
            " readers see them.",
            fitted(
                lambda width: (
                    lanes(_compaction_lanes(story), name="Records by what became of them", width=width)
                    + lanes(_saved_lanes(story), name="Bytes before and after", in_bytes=True, width=width)
                )
            ),
            [(AFTER, "last value of a key"), (GONE, "tombstone"), (BEFORE, "superseded")],
        ),
        Section(
            "How long it took",
            f"Seconds of this run, on {plural(story.cores, 'core')}. The first run on a machine compiles kernels, too.",
            fitted(
                lambda width: lanes(
                    [Lane(step.name, [Part(step.seconds, AFTER, step.text)], step.text) for step in story.steps],
                    name="Seconds of each step",
                    unit=" s",
                    width=width,
                )
            ),
            table=Table(
                ["step", "seconds", "records"],
                [
                    [step.name, f"{step.seconds:.2f}", f"{step.records:,}" if step.records else "-"]
                    for step in story.steps
                ],
                ["seconds", "records"],
            ),
        ),
    ]
    verdict = "nothing is wrong with it" if not story.findings else f"{plural(story.findings, 'finding')}"
    return page(
        "A change stream, stored, streamed and compacted",
        f"A week of changes of a shop's products, made up by the program, in {PARTITIONS} partitions of a compacted"
        " topic. Every figure on this page was measured in one run.",
        tiles,
        sections,
        f"The log was verified afterwards, every checksum and index: {verdict}. The snapshot has the"
        f" {written.live_keys:,} products that were not deleted."
        if story.snapshot_rows == written.live_keys
        else f"The snapshot has {story.snapshot_rows:,} rows, it should have {written.live_keys:,}.",
    )


def _segment_lanes(story: Story) -> list[Lane]:
    rows = []
    for number in range(PARTITIONS):
        for files, kind in ((story.before, BEFORE), (story.after, AFTER)):
            found = _of(files, number)
            parts = [
                Part(file.size_bytes, kind, f"from offset {file.base_offset:,}: {size_text(file.size_bytes)}")
                for file in found
            ]
            label = f"partition {number}" if kind == BEFORE else ""
            rows.append(Lane(label, parts, size_text(sum(file.size_bytes for file in found))))
    return rows


def _segment_table(story: Story) -> Table:
    rows = [
        [when, str(file.partition), f"{file.base_offset:,}", f"{file.size_bytes:,}"]
        for when, files in (("before", story.before), ("after", story.after))
        for file in files
    ]
    return Table(["", "partition", "from offset", "bytes"], rows, ["partition", "from offset", "bytes"])


def _compaction_lanes(story: Story) -> list[Lane]:
    compacted = story.compacted
    values = compacted.records_after - compacted.kept_tombstones
    after = [
        Part(values, AFTER, f"{values:,} last values of keys"),
        Part(compacted.kept_tombstones, GONE, f"{compacted.kept_tombstones:,} tombstones, kept for a day"),
    ]
    gone = Part(compacted.superseded, BEFORE, f"{compacted.superseded:,} superseded by a later record of the key")
    return [
        Lane("before", [*after, gone], f"{compacted.records_before:,}"),
        Lane("after", after, f"{compacted.records_after:,}"),
    ]


def _hot_key_lanes(written: Written) -> list[Lane]:
    return [
        Lane(key, [Part(count, AFTER, f"{key}: {count:,} changes")], f"{count:,} ({_share(count, written.records)})")
        for key, count in written.hot_keys
    ]


def _saved_lanes(story: Story) -> list[Lane]:
    sizes = (("bytes before", story.bytes_before, BEFORE), ("bytes after", story.bytes_after, AFTER))
    return [Lane(label, [Part(size, kind, size_text(size))], size_text(size)) for label, size, kind in sizes]


def _of(files: Sequence[SegmentFile], partition: int | None) -> list[SegmentFile]:
    return [file for file in files if partition in (None, file.partition)]


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _rate(step: Step) -> str:
    return f"{step.records / step.seconds:,.0f}" if step.records and step.seconds else "-"
