"""The options of a write: each one's meaning, and a sentence for each that is wrong."""

from __future__ import annotations

import os

import pytest

from duralog.format.compression import Codec
from duralog.spark.option_text import InvalidOption
from duralog.spark.sink.write_options import AppVersion, WriteOptions


def parse(streaming: bool = False, **options: str) -> WriteOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return WriteOptions.of({"path": "/logs", **given}, streaming=streaming)


def test_nothing_but_a_path() -> None:
    options = parse()
    assert (options.path, options.topic, options.codec, options.batch_bytes) == ("/logs", None, None, 16384)
    assert not options.preserve_offsets
    assert options.bootstrap_servers is None


def test_everything() -> None:
    options = parse(
        TOPIC="orders",
        kafka__compression__type="zstd",
        level="3",
        kafka__batch__size="64k",
        partitions="6",
        topic__cleanup__policy="compact",
        store__log__segment__bytes="2000000",
        txnAppId="loader",
        txnVersion="12",
        kafka__linger__ms="5",
        kafka__max__block__ms="60000",
        kafka__acks="all",
    )
    assert options.topic == "orders"
    assert (options.codec, options.level, options.batch_bytes, options.partitions) == (Codec.ZSTD, 3, 65536, 6)
    assert options.new_topic_config().cleanup_policy == {"compact"}
    assert options.broker_config().topic_defaults().segment_bytes == 2_000_000
    assert options.transaction == AppVersion(application="loader", version=12)
    assert options.producer_configs == {"linger.ms": "5"}


def test_the_level_of_a_codec_by_the_name_that_producers_know() -> None:
    def level(**given: str) -> int | None:
        levels = {"kafka.compression.lz4.level": "9", "kafka.compression.zstd.level": "7"}
        return WriteOptions.of({"path": "/logs", **levels, **given}, streaming=False).level

    assert level(codec="zstd") == 7
    assert level(codec="zstd", level="3") == 3
    assert level(codec="none") is None
    assert level() is None


def test_a_client_knows_configs_that_kafkas_producer_does_not() -> None:
    options = parse(kafka__bootstrap__servers="h:1", kafka__queue__buffering__max__ms="5")
    assert options.producer_configs == {"queue.buffering.max.ms": "5"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:///a%20b/c", "/a b/c"),
        ("file:/a", "/a"),
        ("file:/a#b?c", "/a#b?c"),
        ("file://localhost/a", "/a"),
        ("/a%20b/../c", "/c"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    """Those of a read (`locations`)."""
    assert WriteOptions.of({"path": path}, streaming=False).path == expected


def test_a_relative_path_is_the_drivers() -> None:
    """Tasks run in folders of their own."""
    assert WriteOptions.of({"path": "rel/x"}, streaming=False).path == os.path.abspath("rel/x")


def test_no_secret_is_shown() -> None:
    assert "hunter2" not in repr(WriteOptions.of({"path": "/logs", "kafka.sasl.password": "hunter2"}, streaming=False))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": ""}, "option path is missing"),
        ({"path": "s3://bucket/logs"}, "a local or shared disk"),
        ({"topik": "t"}, "there is no option topik: did you mean topic? There are path, topic"),
        ({"topic": "a b"}, "option topic: a topic's name is made of"),
        ({"codec": "brotli"}, "option codec is 'brotli': give none or gzip or snappy or lz4 or zstd"),
        ({"codec": "lz4", "kafka.compression.type": "zstd"}, "differ"),
        ({"level": "3"}, "option level needs the option codec"),
        ({"codec": "zstd", "level": "99"}, "zstd has the levels"),
        ({"codec": "zstd", "level": "high"}, "a whole number"),
        ({"codec": "snappy", "level": "1"}, "snappy has no levels"),
        ({"batchSize": "0"}, "option batchSize"),
        ({"partitions": "-1"}, "option partitions is '-1'"),
        ({"partitions": "1000000"}, "at most 100000"),
        ({"preserveOffsets": "yes"}, "true or false"),
        ({"preserveOffsets": "true", "kafka.bootstrap.servers": "h:1"}, "a broker assigns new offsets"),
        ({"topic.cleanup.policy": "shred"}, "option topic.cleanup.policy"),
        ({"topic.clean.policy": "compact"}, "option topic.*: there is no topic config clean.policy; did you mean"),
        ({"topic.cleanup.polici": "compact"}, "cleanup.policy"),
        ({"store.log.segment.bytes": "few"}, "option store.log.segment.bytes"),
        ({"txnAppId": "a"}, "go together"),
        ({"txnAppId": "a", "txnVersion": "x"}, "option txnVersion is 'x'"),
        ({"kafka.transactional.id": "mine"}, "option kafka.transactional.id cannot be set"),
        ({"kafka.partitioner.class": "Mine"}, "option kafka.partitioner.class cannot be set: rows go to the partition"),
        ({"kafka.acks": "1"}, "option kafka.acks is '1': give all or -1, as every write has it"),
        (
            {"kafka.compresion.type": "zstd"},
            "Kafka's producer has no such config; did you mean compression.type",
        ),
        ({"codec": "zstd", "kafka.compression.zstd.level": "99"}, "option kafka.compression.zstd.level: zstd has the"),
    ],
)
def test_what_is_wrong_is_reported(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        WriteOptions.of({"path": "/logs", **options}, streaming=False)
    assert told in str(refused.value)


def test_a_streaming_query_is_known_without_an_option() -> None:
    with pytest.raises(InvalidOption, match="streaming query has its own"):
        parse(streaming=True, txnAppId="a", txnVersion="1")
