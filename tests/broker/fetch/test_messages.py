"""Fetch answers written by hand, against kio's readers, in every version."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from duralog.broker.fetch.response import encode
from duralog.broker.fetch.wanted import FetchedPartition, Wanted
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire import messages
from duralog.broker.wire.request import FileSlice
from duralog.format.checkpoints import EpochStart
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.disk.file_system import File, LocalFileSystem
from tests.support.broker.record_desk import FETCH, bytes_of

VERSIONS = range(4, 19)
_IDS = {name: UUID(int=number + 1).bytes for number, name in enumerate(("a", "b"))}


@pytest.fixture
def file(tmp_path: Path) -> File:
    path = tmp_path / "log"
    path.write_bytes(random.Random(7).randbytes(200_000))
    return LocalFileSystem().open(str(path))


def _wanted(version: int, topic: str, number: int) -> Wanted:
    return Wanted(topic, _IDS[topic] if version >= 13 else None, number, 0, 0, -1, -1)


def _result(
    wanted: Wanted,
    *,
    code: int = 0,
    aborted: tuple[AbortedTransaction, ...] | None = None,
    file: File | None = None,
    position: int = 0,
    size: int = 0,
    diverging: EpochStart | None = None,
    leader_epoch: int = -1,
) -> FetchedPartition:
    return FetchedPartition(
        wanted, code, 100 + wanted.number, 90, 10, aborted, file, position, size, diverging, leader_epoch
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_written_as_kio_reads_them(version: int, file: File) -> None:
    aborted = tuple(
        AbortedTransaction(producer_id=n, first_offset=n * 10, last_offset=n * 20, last_stable_offset=n) for n in (1, 2)
    )
    results = [
        _result(_wanted(version, "a", 0), file=file, position=5, size=70_000),
        _result(_wanted(version, "a", 1)),
        _result(_wanted(version, "b", 2), aborted=aborted, file=file, position=0, size=127),
        _result(_wanted(version, "b", 3), aborted=()),
        _result(_wanted(version, "a", 4), code=codes.OFFSET_OUT_OF_RANGE),
        _result(_wanted(version, "a", 5), diverging=EpochStart(3, 2**40)),
        _result(_wanted(version, "a", 6), code=codes.FENCED_LEADER_EPOCH, leader_epoch=8),
        _result(_wanted(version, "a", 7), code=codes.KAFKA_STORAGE_ERROR),
        _result(_wanted(version, "a", 8), file=file, position=1, size=16_384),
    ]
    answer = encode(results, version, session_id=2**31 - 1, node_id=4)
    assert [part.size for part in answer.parts if isinstance(part, FileSlice)] == [70_000, 127, 16_384]
    read = messages.decode_response(FETCH, version, bytes_of(answer))
    assert read.throttle_time == 0
    if version >= 7:
        assert (read.error_code, read.session_id) == (0, 2**31 - 1)
    topics = [one.topic_id.bytes if version >= 13 else one.topic for one in read.responses]
    assert topics == ([_IDS[name] for name in "aba"] if version >= 13 else ["a", "b", "a"])
    found = [one for topic in read.responses for one in topic.partitions]
    assert [one.partition_index for one in found] == list(range(9))
    for one, result in zip(found, results, strict=True):
        expected = result.error_code
        if expected == codes.KAFKA_STORAGE_ERROR and version < 6:
            expected = codes.NOT_LEADER_OR_FOLLOWER
        assert one.error_code == expected
        assert (one.high_watermark, one.last_stable_offset) == (100 + one.partition_index, 90)
        if version >= 5:
            assert one.log_start_offset == 10
        if result.aborted is None:
            assert one.aborted_transactions is None
        else:
            listed = [(each.producer_id, each.first_offset) for each in one.aborted_transactions]
            assert listed == [(each.producer_id, each.first_offset) for each in result.aborted]
        if version >= 11:
            assert one.preferred_read_replica == -1
        assert one.records == (file.read(result.position, result.size) if result.size else b"")
        if version >= 12:
            end = result.diverging or EpochStart(-1, -1)
            assert (one.diverging_epoch.epoch, one.diverging_epoch.end_offset) == (end.epoch, end.start_offset)
            is_told = version >= 16 and result.leader_epoch >= 0
            assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == ((4, 8) if is_told else (-1, -1))


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_without_partitions(version: int) -> None:
    answer = encode((), version, session_id=0, node_id=1, error_code=codes.FETCH_SESSION_ID_NOT_FOUND)
    read = messages.decode_response(FETCH, version, bytes_of(answer))
    assert read.responses == ()
    if version >= 7:
        assert read.error_code == codes.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_many_partitions(version: int, file: File) -> None:
    results = [_result(_wanted(version, "a", n), file=file, position=n, size=n + 1) for n in range(300)]
    read = messages.decode_response(FETCH, version, bytes_of(encode(results, version, session_id=1, node_id=1)))
    (topic,) = read.responses
    assert [one.records for one in topic.partitions] == [file.read(n, n + 1) for n in range(300)]
