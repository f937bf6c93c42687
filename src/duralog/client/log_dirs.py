"""The sizes of a broker's logs, by DescribeLogDirs version 1, the oldest that Kafka 4 speaks."""

from __future__ import annotations

from duralog.client.api import Api
from duralog.client.connection import Place
from duralog.client.wire import WireConnection
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct

_TIMEOUT_SECONDS = 3.0

_PARTITION = Struct(
    (
        Field("partition", "int32"),
        Field("size_bytes", "int64"),
        Field("offset_lag", "int64"),
        Field("is_future", "boolean"),
    )
)
_TOPIC = Struct((Field("name", "string"), Field("partitions", ArrayOf(_PARTITION))))
_DIRECTORY = Struct((Field("error_code", "int16"), Field("path", "string"), Field("topics", ArrayOf(_TOPIC))))
_ASKED = Struct((Field("name", "string"), Field("partitions", ArrayOf("int32"))))
_DESCRIBE = Api(
    key=35,
    version=1,
    request=Message(
        "DescribeLogDirsRequest",
        (Field("topics", ArrayOf(_ASKED), nullable=True),),
        last_version=1,
        flexible_since=None,
    ),
    response=Message(
        "DescribeLogDirsResponse",
        (Field("throttle_ms", "int32"), Field("directories", ArrayOf(_DIRECTORY))),
        last_version=1,
        flexible_since=None,
    ),
)


def log_dir_sizes(host: str, port: int) -> dict[Place, int]:
    """The bytes of each partition that a broker has. Raises `DuralogError` if the broker does not answer."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with WireConnection(address, connect_seconds=_TIMEOUT_SECONDS, response_seconds=_TIMEOUT_SECONDS) as connection:
        directories = connection.ask(_DESCRIBE, {"topics": None})["directories"]
    return {
        (topic["name"], partition["partition"]): partition["size_bytes"]
        for directory in directories
        if not directory["error_code"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
        if not partition["is_future"]
    }
