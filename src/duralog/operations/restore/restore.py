"""Restores topics of a cluster's directories into one new directory: a store, and a log directory for Kafka.

Offsets, timestamps, topic ids, topic configs and the committed offsets of groups stay. Batches keep their bytes, and
come from the copy that consumers were served, or from another one where that is damaged.

What must always be true:
- The new directory gets its name when all of it is on disk and was read again: every partition has the batches that
  were read from the source, byte for byte.
- Nothing is lost silently. Without `accept_loss`, offsets that no copy has stop the restore.
- A broker of the new directory cannot confuse its clients: leader epochs continue above those of the source, no
  transaction stays open, and no producer id that a log has is given out again.

If the machine dies in the middle, nothing has the new name (`new_directory`). Run it again.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey
from duralog.broker.transactions.state import Transaction
from duralog.config import BrokerConfig
from duralog.config.plurals import plural
from duralog.config.progress import OnProgress, ignore
from duralog.errors import StorageError
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import uuid_text
from duralog.operations.opened_store import opened_for_writing
from duralog.operations.restore.access import Access, access_of, check_access, write_access
from duralog.operations.restore.coordinators import CoordinatorTopic, committed_offsets, prepared_commits
from duralog.operations.restore.log_contents import bytes_of
from duralog.operations.restore.new_directory import NewDirectory
from duralog.operations.restore.partition_copy import (
    CopiedPartition,
    PartitionSource,
    copy_partition,
    planned_losses,
)
from duralog.operations.restore.planning import TopicPlan, chosen_topics, plan_coordinator, plan_topics
from duralog.operations.restore.report import (
    EndedTransaction,
    LostRange,
    Note,
    RestoredGroup,
    RestoredPartition,
    RestoredTopic,
    RestoreReport,
    RestoreRequest,
)
from duralog.operations.restore.restored_groups import check_groups, write_groups
from duralog.operations.restore.transactions import end_transactions
from duralog.operations.workers import TWO_THREADS, Threads, ignore_result
from duralog.scanning.cluster.cluster import Cluster, open_cluster
from duralog.scanning.executor import Advance
from duralog.scanning.thread_executor import ThreadExecutor
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.retention import COMPACT, DELETE
from duralog.storage.store import Store

_ROOM = 1.02
"""Indexes and checkpoints take about one hundredth of the logs."""


def restore(
    request: RestoreRequest,
    workers: Threads = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[RestoredPartition], None] = ignore_result,
) -> RestoreReport:
    """`on_partition` is called with each partition at the end, by topic and number.

    If the report says that nothing was made, it has what is lost, or it was a dry run.
    """
    began = time.monotonic()
    target = NewDirectory(request.target)
    with open_cluster(list(request.paths), request.storage_options) as cluster:
        target.check([directory.location for directory in cluster.directories])
        topics = plan_topics(cluster, chosen_topics(cluster, request.topics), to_end=request.to_end)
        access = _access(cluster, request)
        work = _Restore(request, target, cluster, topics, access, ThreadExecutor(workers.count, on_progress))
        planned = [*work.planned()]
        is_refused = any(found.lost for found in planned) and not request.accept_loss
        if request.dry_run or is_refused:
            outcome = _Outcome(planned)
        else:
            target.check_space(int(_ROOM * sum(found.planned_bytes for found in planned)))
            outcome = work.run()
        report = RestoreReport(
            target=target.path,
            dry_run=request.dry_run,
            is_made=outcome.is_made,
            directories=len(cluster.directories),
            topics=tuple(_restored(topic) for topic in topics),
            partitions=tuple(outcome.partitions),
            groups=tuple(outcome.groups),
            notes=(*work.notes, *_advice(topics), *_access_advice(cluster, request)),
            problems=tuple(cluster.problems),
            seconds=time.monotonic() - began,
            access=access,
        )
    for each in report.partitions:
        on_partition(each)
    return report


@dataclass(frozen=True, slots=True)
class _Outcome:
    partitions: Sequence[RestoredPartition]
    groups: Sequence[RestoredGroup] = ()
    is_made: bool = False


@dataclass
class _Restore:
    request: RestoreRequest
    target: NewDirectory
    cluster: Cluster
    topics: Sequence[TopicPlan]
    access: Access | None
    executor: ThreadExecutor
    notes: list[Note] = field(default_factory=list)
    _prepared: Mapping[int, Transaction] | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _lost: list[str] = field(default_factory=list)
    """Of Kafka's own topics."""

    def planned(self) -> Iterator[RestoredPartition]:
        for topic in self.topics:
            found = {source.partition.partition: _planned(source) for source in topic.sources}
            found |= {number: _unreadable(topic.moved.name, number, why) for number, why in topic.missing}
            yield from (found[number] for number in sorted(found))

    def run(self) -> _Outcome:
        self.target.begin()
        try:
            finished, commits = self._build()
            if self._is_refused(finished):
                self.target.discard()
                return _Outcome(self._report(finished))
            self._prove(finished, commits)
            self.target.complete()
        except BaseException:
            self.target.discard()
            raise
        return _Outcome(self._report(finished), _groups(commits), is_made=True)

    def _build(self) -> tuple[list[_Finished], dict[OffsetKey, CommittedOffset]]:
        with opened_for_writing(self.target.building, BrokerConfig()) as store:
            for topic in self.topics:
                store.restore_topic(topic.moved)
            sources = [source for topic in self.topics for source in topic.sources]
            finished = self.executor.run(
                sources, partial(self._copy, store), name="copy", weight=lambda source: source.size_bytes
            )
            offsets, unreadable = plan_coordinator(self.cluster, CONSUMER_OFFSETS, to_end=self.request.to_end)
            self._lost += unreadable
            commits = self._commits(store, offsets, finished)
            write_groups(store, commits, offsets.partitions)
            largest = max((each.copied.largest_producer_id for each in finished), default=-1)
            metadata = self.cluster.metadata
            store.raise_producer_ids(max(largest + 1, 0 if metadata is None else metadata.next_producer_id))
            self._keep_cleaner_offsets(store.cleaner.checkpoint, finished)
            if self.access is not None:
                write_access(store, self.access)
        return finished, commits

    def _copy(self, store: Store, source: PartitionSource, advance: Advance) -> _Finished:
        log = store.partition(*source.partition)
        copied = copy_partition(source, log, advance)
        ended = end_transactions(
            log, source.copies.chosen.view, copied.end_offset, source.partition, self._prepared_commits
        )
        log.flush()
        return _Finished(copied, ended)

    def _prepared_commits(self) -> Mapping[int, Transaction]:
        with self._reading:
            if self._prepared is None:
                topic, unreadable = plan_coordinator(self.cluster, TRANSACTION_STATE, to_end=self.request.to_end)
                self._lost += unreadable
                self._prepared = prepared_commits(topic, self.target.scratch, self._note_losses)
            return self._prepared

    def _commits(
        self, store: Store, topic: CoordinatorTopic, finished: Sequence[_Finished]
    ) -> dict[OffsetKey, CommittedOffset]:
        ends = {each.copied.source.partition: each.copied.end_offset for each in finished}
        ids = {topic.moved.name: store.topic_id(topic.moved.name) for topic in self.topics}

        def is_wanted(key: OffsetKey, value: CommittedOffset) -> bool:
            place = TopicPartition(key.topic, key.partition)
            # Of a topic of this name that was deleted before, a group may still have offsets.
            is_same = value.topic_id is None or uuid_text(value.topic_id.bytes) == ids.get(key.topic)
            return place in ends and is_same

        found, has_more = committed_offsets(
            topic, self.target.scratch, is_wanted, self._prepared_commits, self._note_losses
        )
        if has_more:
            self._lost.append(
                f"{CONSUMER_OFFSETS}: by the groups in it, it has more than the {topic.partitions} partitions that are"
                " there: give all directories, with the cluster metadata"
            )
        for key, value in sorted(found.items()):
            place = TopicPartition(key.topic, key.partition)
            if value.offset > ends[place]:
                text = (
                    f"group {key.group_id} has committed offset {value.offset}, and the log ends at {ends[place]}:"
                    " consumers will go where auto.offset.reset says; set the offset with duralog group reset"
                )
                self.notes.append(Note(str(place), text))
        return found

    def _note_losses(self, copied: CopiedPartition) -> None:
        self._lost += [
            f"{copied.source.partition}: offsets {each.first_offset} to {each.last_offset}: {each.reason}"
            for each in copied.lost
        ]

    def _is_refused(self, finished: Sequence[_Finished]) -> bool:
        for text in self._lost:
            place, _, reason = text.partition(": ")
            self.notes.append(Note(place, f"{reason}; groups or transactions that were stored there are not known"))
        return bool(self._lost or any(each.copied.lost for each in finished)) and not self.request.accept_loss

    def _keep_cleaner_offsets(self, checkpoint: CleanerCheckpoint, finished: Sequence[_Finished]) -> None:
        """What the source's cleaner has done need not be done again."""
        for each in finished:
            source = each.copied.source
            cleaned_to = source.copies.chosen.state.cleaned_to
            is_of_one_copy = not each.copied.healed and source.is_of_one_copy
            if cleaned_to is not None and is_of_one_copy and source.start_offset <= cleaned_to <= source.end_offset:
                checkpoint.put(source.partition, cleaned_to)
        checkpoint.write()

    def _prove(self, finished: Sequence[_Finished], commits: Mapping[OffsetKey, CommittedOffset]) -> None:
        """Read the new directory as it is on disk, and compare. Raises `StorageError` if it differs."""
        with Store(self.target.building, read_only=True) as store:

            def check(each: _Finished, advance: Advance) -> None:
                copied = each.copied
                with store.loaded(*copied.source.partition) as log:
                    found = bytes_of(log.view, copied.end_offset, advance)
                if found != copied.bytes:
                    raise StorageError(
                        f"{self.target.building}: {copied.source.partition} is not what was read: expected"
                        f" {copied.bytes}, found {found}: check the disk, then run restore again"
                    )

            self.executor.run(finished, check, name="check", weight=lambda each: each.copied.contents.size_bytes)
            check_groups(store, commits)
            if self.access is not None:
                check_access(store, self.access)

    def _report(self, finished: Sequence[_Finished]) -> list[RestoredPartition]:
        by_partition = {each.copied.source.partition: each for each in finished}
        return [
            found if found.partition not in by_partition else _done(found, by_partition[found.partition])
            for found in self.planned()
        ]


@dataclass(frozen=True, slots=True)
class _Finished:
    copied: CopiedPartition
    transactions: tuple[EndedTransaction, ...]


def _planned(source: PartitionSource) -> RestoredPartition:
    return RestoredPartition(
        partition=source.partition,
        source=source.copies.chosen.url,
        start_offset=source.start_offset,
        end_offset=source.end_offset,
        planned_bytes=source.size_bytes,
        healed=source.healed,
        lost=tuple(planned_losses(source)),
    )


def _unreadable(topic: str, number: int, why: str) -> RestoredPartition:
    return RestoredPartition(
        partition=TopicPartition(topic, number),
        source=None,
        start_offset=0,
        end_offset=0,
        lost=(LostRange(None, None, why),),
    )


def _done(planned: RestoredPartition, done: _Finished) -> RestoredPartition:
    copied = done.copied
    return replace(
        planned,
        end_offset=copied.end_offset,
        contents=copied.contents,
        healed=copied.healed,
        lost=copied.lost,
        transactions=done.transactions,
    )


def _restored(topic: TopicPlan) -> RestoredTopic:
    moved = topic.moved
    return RestoredTopic(name=moved.name, topic_id=moved.topic_id, partitions=moved.partitions, configs=moved.configs)


def _groups(commits: Mapping[OffsetKey, CommittedOffset]) -> list[RestoredGroup]:
    by_group: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for key, value in commits.items():
        by_group[key.group_id][TopicPartition(key.topic, key.partition)] = value.offset
    return [RestoredGroup(name=name, offsets=offsets) for name, offsets in sorted(by_group.items())]


def _advice(topics: Sequence[TopicPlan]) -> Iterator[Note]:
    for topic in topics:
        name = topic.moved.name
        if not topic.knows_configs:
            text = (
                "no directory has the cluster metadata of this topic, so its configs are not known: it gets"
                " retention.ms=-1, so that nothing is deleted; set the others with duralog topic alter"
            )
            yield Note(name, text)
            continue
        expired = _expired_bytes(topic)
        if expired:
            text = (
                f"{plural(expired, 'byte')} are older than the topic keeps records, and a broker deletes them soon"
                f" after its start: to keep them, run duralog topic alter DIR --topic {name} --config retention.ms=-1"
            )
            yield Note(name, text)
        undercopied = [source for source in topic.sources if source.copies.chosen.has_grown()]
        if undercopied:
            text = f"{undercopied[0].copies.chosen.url} was written to meanwhile: later records are not restored"
            yield Note(str(undercopied[0].partition), text)


def _access(cluster: Cluster, request: RestoreRequest) -> Access | None:
    if not request.with_access:
        return None
    if cluster.metadata is None:
        raise StorageError(
            "no directory has the cluster metadata, so users, ACLs and quotas are not known: give the directory of a"
            " controller, with __cluster_metadata-0, or restore without them"
        )
    return access_of(cluster.metadata)


def _access_advice(cluster: Cluster, request: RestoreRequest) -> Iterator[Note]:
    if cluster.metadata is None or request.with_access:
        return
    found = access_of(cluster.metadata)
    if found.credentials or found.acls or found.quotas:
        yield Note(request.target, f"{found} of the old cluster are not restored: --with-access restores them")


def _expired_bytes(topic: TopicPlan) -> int:
    """What `retention.ms` deletes: whole segments, by their latest records."""
    total = 0
    for source in topic.sources:
        log = source.copies.chosen.log
        config = BrokerConfig().topic_defaults().with_stored(topic.moved.configs)
        if DELETE not in config.cleanup_policy or COMPACT in config.cleanup_policy or config.retention_ms < 0:
            continue
        oldest = wall_clock_ms() - config.retention_ms
        for info in log.segments:
            if info.largest_timestamp_ms >= oldest:
                break
            total += info.size_bytes
    return total
