"""What the compaction page says of a log: parts that add up, and lines as the command prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duralog.console.drawing.compaction_figures import (
    cleaner_figures,
    overall_share,
    progress_words,
    rehearsal_bars,
    result_bars,
    result_figures,
    zone_bar,
)
from duralog.console.drawing.partition_figures import (
    headline,
    log_figures,
    offset_figures,
    scan_figures,
    segment_figures,
)
from duralog.console.drawing.reader_zone import IN_UTC
from duralog.console.facts.partitions import CleanerState, PartitionFacts, SegmentFacts, SegmentScan
from duralog.console.facts.runs import CompactionResult, CompactionView, Rehearsal, RunState


def segment(base: int, end: int, size: int, *, is_active: bool = False) -> SegmentFacts:
    return SegmentFacts(
        base_offset=base,
        next_offset=end,
        size_bytes=size,
        is_active=is_active,
        is_clean=False,
        first_timestamp_ms=None,
        largest_timestamp_ms=None,
        files=(),
        index_entries=None,
        time_index_entries=0,
        index_density_bytes=None,
    )


LOG = PartitionFacts(
    topic="t",
    partition=0,
    start_offset=0,
    end_offset=400,
    high_watermark=400,
    last_stable_offset=390,
    policy="compact",
    size_bytes=1_000,
    segments=(
        segment(0, 100, 100),
        segment(100, 200, 200),
        segment(200, 300, 300),
        segment(300, 400, 400, is_active=True),
    ),
    first_timestamp_ms=0,
    latest_timestamp_ms=7_200_000,
    configs={},
    history=(),
    checkpoint=100,
    first_dirty_offset=100,
    first_uncleanable_offset=200,
    why_uncleanable="a transaction is open since offset 18300",
    dirty_ratio=0.66,
    min_dirty_ratio=0.5,
)
VIEW = CompactionView(
    topic="t",
    partition=0,
    state=RunState.RUNNING,
    started_ms=0,
    seconds=1.0,
    phase="mapping",
    round=1,
    share=0.5,
    bytes_done=512,
    bytes_total=1024,
    map_fill=0.1,
    records_read=0,
    records_kept=0,
)
RESULT = CompactionResult(
    size_before=1_000,
    size_after=400,
    segments_before=4,
    segments_after=2,
    records_before=100,
    records_after=30,
    superseded_records=65,
    expired_tombstones=5,
    aborted_records=0,
    keyless_records=0,
    rounds=1,
    seconds=0.5,
    notes=(),
    damage=(),
)


def test_the_bar_of_a_log_adds_up_to_its_size() -> None:
    bar = zone_bar(LOG)
    assert [(part.kind, part.size) for part in bar] == [("clean", 100), ("dirty", 200), ("waiting", 700)]
    assert zone_bar(replace(LOG, first_dirty_offset=None)) == []


def test_the_active_segment_is_never_to_be_compacted() -> None:
    bar = zone_bar(replace(LOG, first_uncleanable_offset=None))
    assert [(part.kind, part.size) for part in bar] == [("clean", 100), ("dirty", 500), ("waiting", 400)]


def test_the_bars_of_a_rehearsal_add_up() -> None:
    rehearsal = Rehearsal(
        text="",
        is_due=True,
        size_bytes=1_000,
        clean_bytes=100,
        cleanable_bytes=500,
        would_run=True,
        records_before=50,
        records_after=20,
        bytes_before=600,
        bytes_after=150,
        superseded_records=28,
        expired_tombstones=2,
    )
    (_, in_bytes), (_, in_records) = rehearsal_bars(rehearsal)
    assert [part.size for part in in_bytes] == [150, 450, 400]
    assert sum(part.size for part in in_bytes) == rehearsal.size_bytes
    assert [part.size for part in in_records] == [20, 28, 2]
    assert sum(part.size for part in in_records) == rehearsal.records_before
    assert rehearsal_bars(replace(rehearsal, would_run=False)) == []


def test_a_result_shows_before_after_and_why() -> None:
    before, after = result_bars(RESULT)
    assert sum(part.size for part in before) == sum(part.size for part in after) == 1_000
    assert "60 %" in after[-1].words
    figures = {figure.marker: figure for figure in result_figures(RESULT)}
    assert figures["result-records"].value == "100 → 30"
    assert figures["result-records"].about == "70 gone: 65 superseded, 5 expired tombstones"


def test_nothing_gone_is_no_part_of_the_bar() -> None:
    assert [part.kind for part in result_bars(replace(RESULT, size_after=1_000))[1]] == ["clean"]


def test_progress_only_grows_from_phase_to_phase() -> None:
    steps = [
        overall_share(replace(VIEW, phase=phase, share=share))
        for phase in ("opening", "mapping", "rewriting", "closing", "done")
        for share in (0.0, 0.5, 1.0)
    ]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0.0, 1.0)


def test_progress_in_words() -> None:
    assert progress_words(VIEW) == "Mapping: 512 B of 1 KiB"
    second = replace(VIEW, phase="rewriting", round=2, records_read=400, records_kept=120)
    assert progress_words(second) == "Rewriting, round 2: 512 B of 1 KiB, kept 120 of 400 records"


def test_offsets_next_to_the_picture() -> None:
    figures = {figure.marker: figure for figure in offset_figures(LOG, IN_UTC)}
    assert [figure.value for figure in figures.values()] == ["0", "100", "200", "390", "400", "400"]
    assert figures["first-uncleanable-offset"].about == "a transaction is open since offset 18,300"
    assert figures["last-stable-offset"].about == "10 offsets after the start of an open transaction."
    plain = offset_figures(replace(LOG, first_dirty_offset=None, first_uncleanable_offset=None), IN_UTC)
    assert [figure.marker for figure in plain] == ["start-offset", "last-stable-offset", "high-watermark", "end-offset"]


def test_tiles_of_a_log() -> None:
    figures = {figure.marker: figure for figure in log_figures(LOG)}
    assert (figures["size"].value, figures["offsets"].value, figures["time-range"].value) == (
        "1000 B",
        "400",
        "2 hours",
    )
    assert (figures["dirty-ratio"].value, figures["dirty-ratio"].about) == ("66 %", "cleaned above 50 %")
    empty = replace(LOG, end_offset=0, first_timestamp_ms=None, latest_timestamp_ms=None)
    assert headline(empty).endswith("no records")


def test_a_segment_without_an_index_says_so() -> None:
    figures = {figure.marker: figure.value for figure in segment_figures(LOG.segments[0], IN_UTC)}
    assert (figures["segment-index"], figures["segment-time-index"]) == ("none", "0 entries")


@pytest.mark.parametrize(("last", "share"), [(99, "50 % of its offsets"), (None, "")])
def test_a_read_segment_shows_how_much_is_left(last: int | None, share: str) -> None:
    scan = SegmentScan(
        base_offset=0,
        batches=5,
        records=50,
        control_batches=1,
        transactional_batches=0,
        codecs={"lz4": 1.0},
        formats={2: 5},
        stored_bytes=100,
        unpacked_bytes=250,
        compression_ratio=2.5,
        tombstones=3,
        keyless=0,
        first_offset=0,
        last_offset=last,
    )
    figures = {figure.marker: figure for figure in scan_figures(scan)}
    assert figures["scan-records"].about == share
    assert figures["scan-compression"].value == "2.50 : 1"
    assert figures["scan-batches"].about == "10 records each, 1 control batch"


@pytest.mark.parametrize(
    ("cleaner", "words"),
    [
        (CleanerState.ON, "at its next check."),
        (CleanerState.OFF, "log.cleaner.enable is false: stop it and run duralog compact"),
        (CleanerState.ABSENT, "No process has the directory open"),
        (CleanerState.UNKNOWN, "unless the broker's log.cleaner.enable is false"),
    ],
)
def test_who_compacts_a_log_that_is_due(cleaner: CleanerState, words: str) -> None:
    (due, *_) = cleaner_figures(replace(LOG, cleaner=cleaner))
    assert due.value == "due"
    assert words in due.about


def test_a_log_that_is_not_due_says_why() -> None:
    (waits, *_) = cleaner_figures(replace(LOG, cleaner=CleanerState.OFF, why_not_compacted="too little is new"))
    assert (waits.value, waits.about) == ("waits", "too little is new")
