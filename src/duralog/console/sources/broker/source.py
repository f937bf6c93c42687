"""A broker as a source: any that speaks Kafka's protocol, through Confluent's client.

There are no segments, no files and no cleaner to show, and nothing is ever changed: what only a directory can show
raises `NotFromHere`, which says how to see it. While a broker does not answer, pages show the last snapshot, and a
note.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from duralog.client.connection import errors_of
from duralog.client.groups import GroupView
from duralog.config.error_text import printable
from duralog.console.facts.health import CleanerFacts
from duralog.console.facts.overview import GroupDetails, Overview, PartitionRow
from duralog.console.facts.partitions import PartitionFacts
from duralog.console.facts.records import RecordPage, ShownRecord
from duralog.console.source import DEFAULT_PAGE_RECORDS, UnknownGroup
from duralog.console.sources.broker.key_search import BrokerKeySearch
from duralog.console.sources.broker.records import BrokerRecords
from duralog.console.sources.broker.snapshots import NO_SEGMENTS, BrokerSnapshots
from duralog.console.sources.broker.topic_reading import BrokerTopicReader
from duralog.console.sources.broker.watch import BrokerGroupWatch, BrokerWatch
from duralog.console.sources.broker.without_files import WithoutFiles
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.group_lags import LagHistories, group_facts
from duralog.console.sources.payloads import AUTOMATIC, SourcePayloads
from duralog.console.sources.refreshing import Refresher
from duralog.console.sources.searches import Searches
from duralog.console.sources.topic_search import TopicSearches
from duralog.errors import DuralogError, UnknownTopic
from duralog.schemas.decode_options import Decode
from duralog.storage.disk.background import Clock, wall_clock_ms


class BrokerSource(WithoutFiles):
    """Made by `duralog.console.sources.opening.open_source`."""

    def __init__(
        self,
        address: str,
        *,
        metrics: CleanerMetrics | None = None,
        decode: Decode = AUTOMATIC,
        refresh_seconds: float = 2.0,
        clock: Clock = wall_clock_ms,
    ) -> None:
        self.address = address
        self._watch = BrokerWatch(address)
        self._snapshots = BrokerSnapshots(self._watch, clock)
        self._group_watch = BrokerGroupWatch(address)
        self._groups: Mapping[str, GroupView] = {}
        self._lags = LagHistories()
        self._records = BrokerRecords(address)
        reader = BrokerTopicReader(self._records)
        self.payloads = SourcePayloads(decode, reader, self.topic, clock)
        self.topic_searches = TopicSearches(reader, self.payloads)
        self._metrics = metrics
        self._clock = clock
        self._stepping = threading.Lock()
        self._searches: Searches[BrokerKeySearch] = Searches()
        self._overview = self._snapshots.newest.overview
        self._refresher = Refresher(self.step, refresh_seconds, at_once=True)

    def start(self) -> None:
        """Start to refresh in the background: at once, and then every few seconds."""
        self._refresher.start()

    def step(self) -> None:
        with self._stepping:
            self._snapshots.step()
            overview = self._snapshots.newest.overview
            if not overview.is_online:
                self._group_watch.forget_connection()
            elif self._group_watch.step():
                self._groups = {view.group: view for view in self._group_watch.views}
                self._lags.add(overview.taken_ms, list(self._group_watch.views))
            if self._metrics is not None:
                self._metrics.step()
            notes: list[str | None] = [*overview.notes]
            if self._metrics is not None:
                notes += [self._metrics.note, self._metrics.held_note]
            if overview.is_online and self._group_watch.trouble is not None:
                notes.append(f"The groups are as they were last seen: {self._group_watch.trouble}")
            self._overview = replace(
                overview,
                groups=tuple(group_facts(view, self._rows_of) for view in self._groups.values()),
                notes=tuple(note for note in notes if note is not None),
            )

    # Quick

    def overview(self) -> Overview:
        return self._overview

    def topic(self, topic: str) -> tuple[PartitionRow, ...]:
        rows = self._snapshots.newest.rows.get(topic)
        if rows is None:
            self._check_seen()
            raise UnknownTopic(f"there is no topic {printable(topic)} at {self.address}")
        return rows

    def group(self, name: str) -> GroupDetails:
        view = self._groups.get(name)
        if view is None:
            self._check_seen()
            raise UnknownGroup(f"there is no group {printable(name)} at {self.address}")
        return self._lags.details(view, self._rows_of)

    def cleaner(self) -> CleanerFacts:
        figures: Mapping[str, float] = {} if self._metrics is None else self._metrics.figures
        return CleanerFacts(rows=(), partitions=0, due=0, metrics=figures, notes=(NO_SEGMENTS,))

    # Reads

    def partition(self, topic: str, partition: int) -> PartitionFacts:
        row = self._known(topic, partition)
        if row.trouble is not None:
            raise DuralogError(f"{printable(topic)}-{partition}: {row.trouble}")
        place = topic, partition
        with errors_of(self.address):
            start = self._offset(place, latest=False)
            end = self._offset(place, latest=True)
            stable = self._offset(place, latest=True, is_committed=True)
            latest_ms = self._watch.latest_timestamp_ms(place)
        snapshot = self._snapshots.newest
        history = self._snapshots.size_history(place)
        return PartitionFacts(
            topic=topic,
            partition=partition,
            start_offset=start,
            end_offset=end,
            high_watermark=end,
            last_stable_offset=min(stable, end),
            policy=snapshot.view.policies.get(topic, ""),
            size_bytes=row.size_bytes,
            segments=(),
            first_timestamp_ms=None,
            latest_timestamp_ms=latest_ms,
            configs=snapshot.view.configs.get(topic, {}),
            history=() if history is None else history.all(),
            notes=(NO_SEGMENTS,),
        )

    def records(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        time_ms: int | None = None,
        limit: int = DEFAULT_PAGE_RECORDS,
        backwards: bool = False,
        committed_only: bool = False,
    ) -> RecordPage:
        self._known(topic, partition)
        return self._records.page(
            topic,
            partition,
            offset=offset,
            time_ms=time_ms,
            limit=limit,
            backwards=backwards,
            committed_only=committed_only,
        )

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        self._known(topic, partition)
        return self._records.one(topic, partition, offset)

    def tail(self, topic: str, partition: int, from_offset: int, limit: int = 200) -> RecordPage:
        self._known(topic, partition)
        return self._records.tail(topic, partition, from_offset, limit)

    def find_key(
        self, topic: str, partition: int, key: bytes, *, from_offset: int | None = None, limit: int = 100
    ) -> BrokerKeySearch:
        self._known(topic, partition)
        return self._searches.start(
            lambda: BrokerKeySearch(self._records, topic, partition, key, from_offset=from_offset, limit=limit)
        )

    def close(self) -> None:
        self._searches.close()
        self.topic_searches.close()
        self._refresher.stop()
        self._records.close()

    # What they share

    def _rows_of(self, topic: str) -> tuple[PartitionRow, ...]:
        return self._snapshots.newest.rows.get(topic, ())

    def _check_seen(self) -> None:
        """Before the first refresh, nothing counts as missing."""
        overview = self._snapshots.newest.overview
        if not overview.taken_ms:
            raise DuralogError(overview.notes[0])

    def _known(self, topic: str, partition: int) -> PartitionRow:
        """Look up a partition to read. While the broker does not answer, this raises at once: a request would block a
        worker thread for seconds.
        """
        overview = self._snapshots.newest.overview
        if not overview.is_online:
            raise DuralogError(overview.notes[0])
        for row in self.topic(topic):
            if row.partition == partition:
                return row
        raise UnknownTopic(f"there is no partition {partition} of {printable(topic)} at {self.address}")

    def _offset(self, place: tuple[str, int], *, latest: bool, is_committed: bool = False) -> int:
        found = self._watch.offsets([place], latest=latest, is_committed=is_committed).get(place)
        if isinstance(found, int):
            return found
        raise found or DuralogError(f"{self.address}: the broker does not answer")
