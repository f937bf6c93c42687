"""Work on many partitions at once: all are tried, failures are reported per partition, progress is shown, and an
interrupt ends the work."""

from __future__ import annotations

import threading

import pytest

from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.parallel import ByteCount, Progress, for_each_partition

PARTITIONS = [TopicPartition("orders", number) for number in range(20)]


def test_all_are_done_and_failures_are_listed() -> None:
    def work(partition: TopicPartition, count: ByteCount) -> int:
        if partition.partition % 3 == 0:
            raise LookupError(str(partition))
        return partition.partition * 2

    outcome = for_each_partition(PARTITIONS, work, threads=3)
    assert outcome.results == {
        partition: partition.partition * 2 for partition in PARTITIONS if partition.partition % 3
    }
    assert {str(error) for error in outcome.failures.values()} == {f"orders-{number}" for number in range(0, 20, 3)}


def test_it_continues_at_the_same_time() -> None:
    together = threading.Barrier(2)
    outcome = for_each_partition(PARTITIONS[:2], lambda _partition, _count: together.wait(60), threads=2)
    assert len(outcome.results) == 2


def test_progress_begins_with_nothing_and_ends_with_everything() -> None:
    shown: list[Progress] = []
    for_each_partition(
        PARTITIONS,
        lambda partition, count: count.add(partition.partition),
        threads=2,
        bytes_total=190,
        show=shown.append,
    )
    assert shown[0] == Progress(partitions_done=0, partitions_total=20, bytes_done=0, bytes_total=190)
    assert shown[-1] == Progress(partitions_done=20, partitions_total=20, bytes_done=190, bytes_total=190)
    assert [progress.partitions_done for progress in shown] == sorted(progress.partitions_done for progress in shown)


def test_progress_is_shown_while_a_long_one_runs() -> None:
    seen_half = threading.Event()

    def work(_partition: TopicPartition, count: ByteCount) -> bool:
        count.add(5)
        return seen_half.wait(60)

    def show(progress: Progress) -> None:
        if progress.bytes_done == 5:
            seen_half.set()

    outcome = for_each_partition(PARTITIONS[:1], work, threads=1, bytes_total=10, show=show)
    assert [*outcome.results.values()] == [True]


def test_nothing_to_do_is_done() -> None:
    shown: list[Progress] = []
    assert for_each_partition([], lambda _partition, _count: None, threads=2, show=shown.append).results == {}
    assert {progress.partitions_done for progress in shown} == {0}


def test_an_interruption_drops_what_has_not_begun() -> None:
    begun: list[TopicPartition] = []
    never = threading.Event()

    def work(partition: TopicPartition, count: ByteCount) -> None:
        begun.append(partition)
        if len(begun) > 1:
            never.wait(0.1)

    def show(progress: Progress) -> None:
        if progress.partitions_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each_partition(PARTITIONS * 50, work, threads=1, show=show)
    assert len(begun) < len(PARTITIONS * 50)


def test_what_ends_a_thread_ends_the_whole() -> None:
    def work(partition: TopicPartition, count: ByteCount) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each_partition(PARTITIONS, work, threads=2)
