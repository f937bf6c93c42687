"""A store, a log and their reports as HTML for a notebook: the `_repr_html_` of each calls this.

A view shows facts in memory, or from listing a folder: no log is read. Text from a disk is escaped. Some tables have a
picture above them: the sizes of topics, the segments of a log, the result of a compaction, and partitions with
findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from duralog.config.byte_sizes import size_text
from duralog.config.plurals import plural
from duralog.notebook.html_tables import MOST_ROWS, Block, captioned, strip_html, table_html, time_shown
from duralog.notebook.shown import ShownCheck, ShownCompaction, ShownLog, ShownRemoval, ShownStore

_PLAIN = "#4c78a8"
_OTHER = "#9ecae9"
_BAD = "#e45756"


def store_html(store: ShownStore, logs: Mapping[str, Sequence[ShownLog]]) -> str:
    """`logs` are the loaded logs of each topic."""
    names = ("topic", "partitions", "policy", "offsets", "segments", "size", "newest record")
    rows = []
    blocks: list[Block] = []
    for topic in store.topics():
        known = logs.get(topic, ())
        partitions = store.partitions(topic)
        figures = ["-", "-", "-", "-"]
        if known and len(known) == len(partitions):
            segments = [segment for log in known for segment in log.segments]
            filled = [segment.largest_timestamp_ms for segment in segments if segment.size_bytes]
            figures = [
                f"{sum(log.end_offset - log.start_offset for log in known):,}",
                f"{len(segments):,}",
                size_text(sum(segment.size_bytes for segment in segments)),
                time_shown(max(filled, default=None)),
            ]
            size_bytes = sum(segment.size_bytes for segment in segments)
            blocks.append(Block(size_bytes, f"{topic}: {size_text(size_bytes)}", (_PLAIN, _OTHER)[len(blocks) % 2]))
        policy = ",".join(store.topic_config(topic).cleanup_policy)
        rows.append([topic, f"{len(partitions):,}", policy, *figures])
    how = "read-only" if store.read_only else "open for writing"
    topics = plural(len(rows), "topic")
    offline = f", {len(store.offline):,} offline" if store.offline else ""
    numbers = (*names[1:2], *names[3:6])
    picture = strip_html([block for block in blocks if block.size])
    return captioned(f"Store {store.path}", f"{topics}, {how}{offline}", names, rows, numbers, picture=picture)


def log_html(log: ShownLog) -> str:
    """The segments, the newest last; if there are many, the first and the last ones."""
    names = ("segment", "up to", "size", "newest record", "")
    view = log.view
    segments = view.infos()
    ends = [*(segment.base_offset for segment in segments[1:]), view.end_offset]
    rows = [
        [
            f"{segment.base_offset:,}",
            f"{end:,}",
            size_text(segment.size_bytes),
            time_shown(segment.largest_timestamp_ms) if segment.size_bytes else "-",
            "active" if segment.is_active else "",
        ]
        for segment, end in zip(segments, ends, strict=True)
    ]
    blocks = [
        Block(
            segment.size_bytes,
            f"offsets {segment.base_offset:,} to {end:,}: {size_text(segment.size_bytes)}",
            _OTHER if segment.is_active else _PLAIN,
        )
        for segment, end in zip(segments, ends, strict=True)
        if segment.size_bytes
    ]
    if len(rows) > MOST_ROWS:
        half = (MOST_ROWS - 1) // 2
        rows = [*rows[:half], [f"{len(rows) - 2 * half:,} more", "", "", "", ""], *rows[-half:]]
    size_bytes = sum(segment.size_bytes for segment in segments)
    return captioned(
        f"{log.topic}-{log.partition}",
        f"offsets {view.start_offset:,} to {view.end_offset:,}, {size_text(size_bytes)},"
        f" {plural(len(segments), 'segment')}",
        names,
        rows,
        names[:3],
        picture=strip_html(blocks),
    )


def compaction_html(report: ShownCompaction) -> str:
    names = ("", "before", "after", "gone")
    pairs = (
        ("records", report.records_before, report.records_after),
        ("segments", report.segments_before, report.segments_after),
    )
    rows = [[name, f"{before:,}", f"{after:,}", _gone(before, after)] for name, before, after in pairs]
    rows.append(
        [
            "bytes",
            size_text(report.bytes_before),
            size_text(report.bytes_after),
            _gone(report.bytes_before, report.bytes_after),
        ]
    )
    reasons = (
        ("superseded by a later record", report.superseded_records),
        ("expired tombstones", report.expired_tombstones),
        ("without a key", report.keyless_records),
        ("of aborted transactions", report.aborted_records),
    )
    rows += [[words, "", "", f"{count:,}"] for words, count in reasons if count]
    rows += [[note, "", "", ""] for note in (*report.notes, *report.left_segments, *report.corrupt_batches)]
    up_to = f"offsets {report.first_dirty_offset:,} to {report.end_offset:,} were new; {report.seconds:.2f} s"
    sizes = (("before", report.bytes_before, _OTHER), ("after", report.bytes_after, _PLAIN))
    most = max(report.bytes_before, report.bytes_after)
    picture = "".join(
        strip_html([Block(size, f"{when}: {size_text(size)}", colour)], of_size=most)
        for when, size, colour in sizes
        if size
    )
    return captioned(f"Compaction of {report.topic}-{report.partition}", up_to, names, rows, names[1:], picture=picture)


def _gone(before: int, after: int) -> str:
    return f"{(before - after) / before:.1%}" if before else "-"


def retention_html(removals: Sequence[ShownRemoval], failures: Iterable[tuple[tuple[str, int], str]]) -> str:
    names = ("partition", "from offset", "up to", "size", "policy", "reason")
    rows = [
        [
            f"{removal.topic}-{removal.partition}",
            f"{removal.base_offset:,}",
            f"{removal.end_offset:,}",
            size_text(removal.size_bytes),
            removal.policy,
            removal.reason,
        ]
        for removal in removals
    ]
    rows += [[f"{topic}-{number}", "", "", "", "failed", why] for (topic, number), why in failures]
    size_bytes = sum(removal.size_bytes for removal in removals)
    text = f"{plural(len(removals), 'segment')}, {size_text(size_bytes)}"
    return captioned("Retention", text if rows else "nothing has expired", names, rows, names[1:4])


_CHECKED = ("partition", "segments", "batches", "records", "size", "first offset", "end offset", "findings")


def partition_report_html(report: ShownCheck) -> str:
    findings = table_html(("finding",), [[str(error)] for error in report.errors[:MOST_ROWS]]) if report.errors else ""
    verdict = "sound" if not report.error_count else plural(report.error_count, "finding")
    return captioned(report.name, verdict, _CHECKED, [_checked(report)], _CHECKED[1:]) + findings


def verification_html(path: str, reports: Sequence[ShownCheck], errors: int) -> str:
    """Partitions with findings come first. `errors` counts all findings, including those of the directory."""
    reports = sorted(reports, key=lambda report: -report.error_count)
    if not reports:
        verdict = "not run yet"
    else:
        verdict = f"{plural(len(reports), 'partition')}, {plural(errors, 'finding') if errors else 'no findings'}"
    return captioned(
        f"Verification of {path}",
        verdict,
        _CHECKED,
        [_checked(report) for report in reports],
        _CHECKED[1:],
        picture=strip_html([_verdict_block(report) for report in reports]),
    )


def _verdict_block(report: ShownCheck) -> Block:
    found = report.error_count
    return Block(1, f"{report.name}: {plural(found, 'finding') if found else 'sound'}", _BAD if found else _PLAIN)


def _checked(report: ShownCheck) -> list[str]:
    counts = report.counts
    return [
        report.name,
        f"{counts.segments:,}",
        f"{counts.batches:,}",
        f"{counts.records:,}",
        size_text(counts.size_bytes),
        f"{report.base_offset:,}",
        f"{report.end_offset:,}",
        f"{report.error_count:,}",
    ]
