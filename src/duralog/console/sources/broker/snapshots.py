"""Snapshots of a broker for the overview and the tables of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from duralog.config.error_text import printable
from duralog.console.facts.overview import Overview, PartitionRow, Sample, SourceKind, TopicFacts, nothing_yet
from duralog.console.sources.broker.watch import BrokerPartition, BrokerView, BrokerWatch, Place
from duralog.console.sources.rates import NO_GROWTH, Growth, History, RecentRates, SizeHistory
from duralog.errors import DuralogError
from duralog.storage.disk.background import Clock

_INTERNAL = "__"
NO_SEGMENTS = "A broker does not show its segments: give its log directory with --data, too."


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    overview: Overview
    view: BrokerView
    rows: Mapping[str, tuple[PartitionRow, ...]]


class BrokerSnapshots:
    """`step` is for one thread at a time; `newest` is for all."""

    def __init__(self, watch: BrokerWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._history: History[Sample] = History()
        self._recent = RecentRates()
        self._sizes: dict[Place, SizeHistory] = {}
        note = f"{printable(watch.address)} has not answered yet."
        overview = nothing_yet(watch.address, SourceKind.BROKER, note, is_online=False)
        self.newest = BrokerSnapshot(overview=overview, view=BrokerView(), rows={})

    def step(self) -> None:
        before = self.newest
        now_ms = self._clock()
        try:
            view = self._watch.refresh()
        except DuralogError as error:
            overview = replace(before.overview, is_online=False, notes=(printable(str(error)),))
            self.newest = replace(before, overview=overview)
            return
        taken_ms = before.overview.taken_ms
        # After a pause the rate would be an average over the whole outage. A clock may be set back.
        seconds = max(now_ms - taken_ms, 0) / 1000 if taken_ms and before.overview.is_online else None
        grown = {place: _growth(before.view.partitions.get(place), found) for place, found in view.partitions.items()}
        self._remember(view, now_ms)
        is_sized = before.view.sizes_note is None and view.sizes_note is None
        self.newest = self._snapshot(view, grown, now_ms, seconds, seconds if is_sized else None)

    def size_history(self, place: Place) -> SizeHistory | None:
        return self._sizes.get(place)

    def _remember(self, view: BrokerView, now_ms: int) -> None:
        self._sizes = {place: self._sizes.get(place) or SizeHistory() for place in view.partitions}
        for place, found in view.partitions.items():
            if found.size_bytes is not None and found.start_offset is not None and found.end_offset is not None:
                self._sizes[place].add(now_ms, found.size_bytes, found.start_offset, found.end_offset)

    def _snapshot(
        self,
        view: BrokerView,
        grown: Mapping[Place, Growth],
        now_ms: int,
        seconds: float | None,
        sized_seconds: float | None,
    ) -> BrokerSnapshot:
        """`sized_seconds` is the time in which sizes have grown, if they are known of both refreshes."""
        rows: dict[str, list[PartitionRow]] = {}
        for place, found in view.partitions.items():
            rows.setdefault(place[0], []).append(_row(place, found, grown[place], seconds, sized_seconds))
        topics = self._recent.add([_topic(name, of_topic, view) for name, of_topic in rows.items()])
        sizes = [topic.size_bytes for topic in topics if topic.size_bytes is not None]
        size_bytes = sum(sizes) if sizes or not topics else None
        records_rate = sum(growth.records for growth in grown.values()) / seconds if seconds else None
        bytes_rate = None
        if sized_seconds and size_bytes is not None:
            bytes_rate = sum(growth.size_bytes for growth in grown.values()) / sized_seconds
        self._history.add(
            Sample(
                at_ms=now_ms,
                size_bytes=size_bytes,
                records_in_per_second=records_rate,
                bytes_in_per_second=bytes_rate,
            )
        )
        notes = [NO_SEGMENTS, view.sizes_note]
        overview = Overview(
            taken_ms=now_ms,
            target=self._watch.address,
            kind=SourceKind.BROKER,
            cluster_id=view.cluster_id,
            node_id=view.node_id,
            held_by=None,
            topics=topics,
            groups=(),
            partitions=len(view.partitions),
            size_bytes=size_bytes,
            records=sum(topic.records or 0 for topic in topics),
            bytes_in_per_second=bytes_rate,
            records_in_per_second=records_rate,
            history=self._history.all(),
            notes=tuple(printable(note) for note in notes if note is not None),
        )
        return BrokerSnapshot(
            overview=overview, view=view, rows={name: tuple(of_topic) for name, of_topic in rows.items()}
        )


def _growth(before: BrokerPartition | None, after: BrokerPartition) -> Growth:
    if before is None or before.end_offset is None or after.end_offset is None:
        return NO_GROWTH
    grown_bytes = (after.size_bytes or 0) - (before.size_bytes or 0) if before.size_bytes is not None else 0
    return Growth(max(after.end_offset - before.end_offset, 0), max(grown_bytes, 0))


def _row(
    place: Place, found: BrokerPartition, growth: Growth, seconds: float | None, sized_seconds: float | None
) -> PartitionRow:
    is_sized = found.size_bytes is not None
    return PartitionRow(
        topic=place[0],
        partition=place[1],
        size_bytes=found.size_bytes,
        segments=None,
        start_offset=found.start_offset,
        end_offset=found.end_offset,
        dirty_ratio=None,
        latest_timestamp_ms=None,
        trouble=None if found.trouble is None else printable(found.trouble),
        records_in_per_second=growth.records / seconds if seconds else None,
        bytes_in_per_second=growth.size_bytes / sized_seconds if sized_seconds and is_sized else None,
        leader=found.leader,
    )


def _topic(name: str, rows: list[PartitionRow], view: BrokerView) -> TopicFacts:
    sizes = [row.size_bytes for row in rows if row.size_bytes is not None]
    troubled = next((row for row in rows if row.trouble is not None), None)
    rates = [row.records_in_per_second for row in rows if row.records_in_per_second is not None]
    byte_rates = [row.bytes_in_per_second for row in rows if row.bytes_in_per_second is not None]
    return TopicFacts(
        name=name,
        partitions=len(rows),
        size_bytes=sum(sizes) if sizes else None,
        records=sum(row.records or 0 for row in rows),
        policy=view.policies.get(name, ""),
        is_internal=name.startswith(_INTERNAL),
        bytes_in_per_second=sum(byte_rates) if byte_rates else None,
        records_in_per_second=sum(rates) if rates else None,
        latest_timestamp_ms=None,
        trouble=None if troubled is None else f"partition {troubled.partition}: {troubled.trouble}",
    )
