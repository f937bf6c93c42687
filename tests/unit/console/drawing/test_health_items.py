"""Health by severity, and configs by where they come from."""

from __future__ import annotations

from dataclasses import replace

from duralog.client.groups import GroupView
from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS
from duralog.config.entries import PASSWORD, Entry, Value
from duralog.console.drawing.config_rows import config_rows
from duralog.console.drawing.health_items import (
    cleaner_figures,
    growth_of_lag,
    health_items,
    shown_cleaner_rows,
    verdict,
)
from duralog.console.facts.health import CleanerFacts, CleanerRow, HealthItem, Severity
from duralog.console.facts.overview import (
    GroupDetails,
    GroupFacts,
    LagSample,
    Overview,
    PartitionRow,
    SourceKind,
    nothing_yet,
)
from duralog.console.facts.runs import RunState, VerifyView

NOW_MS = 1_700_000_000_000
SEEN = replace(nothing_yet("data", SourceKind.DIRECTORY, "", is_online=True), notes=(), taken_ms=NOW_MS)
CLEAN = CleanerFacts(rows=(), partitions=0, due=0)
CHECK = VerifyView(
    state=RunState.DONE,
    started_ms=NOW_MS,
    seconds=1,
    bytes_done=1,
    bytes_total=1,
    share=1,
    current=None,
    partitions_done=1,
    partitions_total=1,
    batches=1,
    records=1,
    errors=0,
    findings=(),
)


def cleaner_row(topic: str, *, is_due: bool) -> CleanerRow:
    return CleanerRow(
        topic=topic,
        partition=0,
        checkpoint=None,
        dirty_ratio=0.7 if is_due else 0,
        min_dirty_ratio=0.5,
        cleanable_bytes=1,
        clean_bytes=1,
        is_due=is_due,
        reason="",
    )


def group(*lags: int, state: str | None = "stable", without_commit: int = 0, every_ms: int = 10_000) -> GroupDetails:
    history = tuple(LagSample(at_ms=NOW_MS + place * every_ms, lag=lag) for place, lag in enumerate(lags))
    facts = GroupFacts(
        name="billing",
        state=state,
        protocol="classic",
        members=0,
        lag=lags[-1],
        topics=("orders",),
        without_commit=without_commit,
    )
    return GroupDetails(facts=facts, view=GroupView(group="billing", state=state, kind="classic"), history=history)


def found(
    overview: Overview = SEEN,
    *,
    rows: tuple[PartitionRow, ...] = (),
    groups: tuple[GroupDetails, ...] = (),
    cleaner: CleanerFacts = CLEAN,
    check: VerifyView | None = None,
    quarantined: int = 0,
) -> list[HealthItem]:
    return health_items(overview, rows, groups, cleaner, check, quarantined=quarantined, now_ms=NOW_MS)


def test_nothing_to_say() -> None:
    internal = CleanerFacts(rows=(cleaner_row("__consumer_offsets", is_due=False),), partitions=1, due=0)
    items = found(groups=(group(0, 0, 0, state="empty"),), cleaner=internal, check=CHECK)
    assert items == []
    assert verdict(items) == ("good", "No problems found.")
    assert shown_cleaner_rows(internal.rows) == []


def test_the_worst_comes_first() -> None:
    row = PartitionRow(
        topic="orders",
        partition=3,
        size_bytes=None,
        segments=None,
        start_offset=None,
        end_offset=None,
        dirty_ratio=None,
        latest_timestamp_ms=None,
        trouble="it is damaged",
    )
    due = CleanerFacts(rows=(cleaner_row("__consumer_offsets", is_due=True),), partitions=1, due=1)
    items = found(
        replace(SEEN, notes=("Good to know.",)),
        rows=(row, replace(row, partition=4, trouble=None)),
        groups=(group(5, state="empty", without_commit=2),),
        cleaner=due,
        check=replace(CHECK, errors=2),
        quarantined=1,
    )
    assert [(item.severity, item.about) for item in items] == [
        (Severity.CRITICAL, "orders-3"),
        (Severity.CRITICAL, "the check"),
        (Severity.WARNING, "the quarantine"),
        (Severity.WARNING, "group billing"),
        (Severity.INFO, "the directory"),
        (Severity.INFO, "group billing"),
        (Severity.INFO, "the cleaner"),
    ]
    assert items[0].path == "/topic/orders/3"
    assert verdict(items) == ("bad", "2 critical, 2 warnings.")
    assert shown_cleaner_rows(due.rows) == list(due.rows)


def test_a_source_that_is_away_or_slow() -> None:
    (away,) = found(replace(SEEN, is_online=False, notes=("It does not answer.",)))
    assert (away.severity, away.sentence) == (Severity.CRITICAL, "It does not answer.")
    (slow,) = found(replace(SEEN, taken_ms=NOW_MS - 16_000))
    assert slow.severity is Severity.WARNING
    assert verdict([slow]) == ("warn", "1 warning.")


def test_a_lag_that_only_grows() -> None:
    assert growth_of_lag(group(*range(0, 90, 10)).history) == 60
    assert growth_of_lag(group(0, 10, 20, 30).history) == 0, "not a minute yet"
    assert growth_of_lag(group(0, 10, 20, 30, 40, 50, 60, 70, 65).history) == 0, "it fell"
    assert growth_of_lag(group(*[7] * 20).history) == 0, "it stays"
    assert growth_of_lag(()) == 0
    (item,) = found(groups=(group(*range(0, 90, 10)),))
    assert (item.severity, item.path) == (Severity.WARNING, "/groups/billing")


def test_figures_of_the_cleaner_have_units() -> None:
    figures = {
        "cleanings": 1234.0,
        "cleaner_dirty_percent": 75.0084,
        "cleaner_backlog_bytes": 266_627.0,
        "cleaner_seconds": 0.25,
        "cleaner_of_tomorrow": 12_345.5,
        "uncleanable_bytes": float("nan"),
    }
    assert [(label, text) for _, label, text in cleaner_figures(figures)] == [
        ("Compactions", "1,234"),
        ("Dirtiest log", "75 %"),
        ("To compact", "260 KiB"),
        ("Longest of the last compactions", "250 ms"),
        ("cleaner_of_tomorrow", "12,345.5"),
        ("To compact in those", "–"),
    ]


def test_configs_with_where_they_come_from() -> None:
    rows = config_rows(
        [
            Entry("segment.ms", "604800000", (Value("log.roll.ms", "604800000", 4),), "long", ""),
            Entry(
                "retention.ms",
                "-1",
                (Value("retention.ms", "-1", 1), Value("log.retention.ms", "5", 3)),
                "long",
                "",
            ),
            Entry("of.another.kafka", "x", (Value("of.another.kafka", "x", 5),), "string", ""),
        ],
        TOPIC_CONFIGS,
        stored=frozenset({1}),
    )
    assert [(row.name, row.value, row.default, row.source, row.is_set_here) for row in rows] == [
        ("of.another.kafka", "x", "x", "default", False),
        ("retention.ms", "-1", "604800000", "topic", True),
        ("segment.ms", "604800000", "604800000", "given at the start", False),
    ]
    assert rows[2].in_words == "7 days"
    assert "`" not in "".join(row.about for row in rows)


def test_a_secret_is_not_shown() -> None:
    entry = Entry("ssl.key.password", None, (Value("ssl.key.password", None, 2),), PASSWORD, "", read_only=False)
    (row,) = config_rows([entry], BROKER_CONFIGS, stored=frozenset({2, 3}))
    assert (row.value, row.typed, row.is_set_here, row.source) == ("(hidden)", "", True, "this broker, dynamic")
