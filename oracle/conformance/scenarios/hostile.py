"""What no client sends: the same reaction, an answer or a closed connection, and nobody else notices."""

from __future__ import annotations

import struct
from typing import Any

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import scenario
from oracle.conformance.wire import API_KEYS, Closed, Connection, encode_request, header, is_flexible

VERSIONS = {
    "produce": (3, 13), "fetch": (4, 18), "list_offsets": (1, 11), "metadata": (0, 13), "offset_commit": (2, 10),
    "offset_fetch": (1, 10), "find_coordinator": (0, 6), "join_group": (0, 9), "heartbeat": (0, 4),
    "leave_group": (0, 5), "sync_group": (0, 5), "describe_groups": (0, 6), "list_groups": (0, 5),
    "create_topics": (2, 7), "delete_topics": (1, 6), "delete_records": (0, 2), "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5), "add_offsets_to_txn": (0, 4), "end_txn": (0, 5), "txn_offset_commit": (0, 5),
    "write_txn_markers": (1, 2),
    "describe_configs": (1, 4), "alter_configs": (0, 2), "describe_log_dirs": (1, 5), "create_partitions": (0, 3),
    "delete_groups": (0, 2), "incremental_alter_configs": (0, 1), "offset_delete": (0, 0), "describe_cluster": (0, 2),
    "describe_producers": (0, 0), "describe_transactions": (0, 0), "list_transactions": (0, 2),
    "consumer_group_heartbeat": (0, 1), "consumer_group_describe": (0, 1), "describe_topic_partitions": (0, 0),
    "api_versions": (0, 4), "alter_replica_log_dirs": (1, 2), "elect_leaders": (0, 2),
    "alter_partition_reassignments": (0, 1), "list_partition_reassignments": (0, 0), "describe_client_quotas": (0, 1),
    "alter_client_quotas": (0, 1), "describe_quorum": (0, 2), "update_features": (0, 2),
    "list_config_resources": (0, 1), "describe_acls": (1, 3), "create_acls": (1, 3), "delete_acls": (1, 3),
}  # fmt: skip
"""The APIs that duralog promises, with the versions that Kafka 4.3.1 serves."""


def reaction(dialog: Dialog, name: str, frame: bytes) -> None:
    """Written down as `answered` or `closed`: what is in an answer to garbage is nobody's business."""
    connection = dialog.fresh_connection()
    try:
        connection.send_frame(frame)
        connection.receive_frame()
        dialog.note(name, "answered")
    except Closed:
        dialog.note(name, "closed")
    finally:
        connection.close()


@scenario
def apis_that_do_not_exist(dialog: Dialog) -> None:
    for key in (-1, 4, 5, 6, 7, 93, 999, 32767, -32768):
        reaction(dialog, f"api {key}", header(key, 0, 1, "conformance", False))


@scenario
def versions_that_do_not_exist(dialog: Dialog) -> None:
    for api in VERSIONS:
        if api == "api_versions":
            continue  # The one API that answers any version.
        first, last = VERSIONS[api]
        for version in (first - 1, last + 1, -1, 32767):
            flexible = is_flexible(api, last)
            reaction(dialog, f"{api} v{version}", header(API_KEYS[api], version, 1, "conformance", flexible))


@scenario
def bodies_that_are_cut(dialog: Dialog) -> None:
    """Each API in its oldest and newest version, without the last byte."""
    for api in VERSIONS:
        for version in sorted({*VERSIONS[api]}):
            body = encode_request(api, version, {})
            if len(body) > 0:
                frame = header(API_KEYS[api], version, 1, "conformance", is_flexible(api, version)) + body[:-1]
                reaction(dialog, f"{api} v{version} cut", frame)


@scenario
def bodies_of_garbage(dialog: Dialog) -> None:
    for api in VERSIONS:
        if api == "api_versions":
            continue
        version = VERSIONS[api][1]
        frame = header(API_KEYS[api], version, 1, "conformance", is_flexible(api, version))
        for filler in (b"\xff", b"\x7f", b"\x80"):
            reaction(dialog, f"{api} v{version} filled with {filler!r}", frame + filler * 64)


@scenario
def bytes_behind_the_body(dialog: Dialog) -> None:
    for api in ("metadata", "find_coordinator", "list_groups", "describe_cluster"):
        version = VERSIONS[api][1]
        frame = header(API_KEYS[api], version, 1, "conformance", True) + encode_request(api, version, {})
        reaction(dialog, f"{api} v{version} and a tail", frame + b"tail")


@scenario
def frames_that_lie(dialog: Dialog) -> None:
    """Sizes that cannot be: the connection is closed before anything else comes."""
    for size in (-1, -(1 << 31), (1 << 31) - 1, 200_000_000, 104_857_601):
        _closed_by(dialog, f"size {size}", struct.pack(">i", size))
    for size in (0, 1, 2, 7):
        _closed_by(dialog, f"a frame of {size} bytes", struct.pack(">i", size) + bytes(size))


def _closed_by(dialog: Dialog, name: str, data: bytes) -> None:
    connection = dialog.fresh_connection()
    try:
        connection.send_bytes(data)
        connection.receive_frame()
        dialog.note(name, "answered")
    except Closed:
        dialog.note(name, "closed")
    finally:
        connection.close()


@scenario
def headers_that_lie(dialog: Dialog) -> None:
    good = encode_request("metadata", 9, {"topics": []})
    plain = struct.pack(">hhi", 3, 9, 1)
    cases = {
        "client id longer than the frame": plain + struct.pack(">h", 3000) + good,
        "client id of size -2": plain + struct.pack(">h", -2) + b"\0" + good,
        "no client id": plain + struct.pack(">h", -1) + b"\0" + good,
        "an empty client id": plain + struct.pack(">h", 0) + b"\0" + good,
        "client id that is no UTF-8": plain + struct.pack(">h", 2) + b"\xff\xfe" + b"\0" + good,
        "an unknown tag": plain + struct.pack(">h", -1) + b"\x01\x05\x02ab" + good,
        "a tag longer than the frame": plain + struct.pack(">h", -1) + b"\x01\x05\x7fab" + good,
        "tags without end": plain + struct.pack(">h", -1) + b"\xff\xff\xff\xff\x0f" + good,
    }
    for name, frame in cases.items():
        reaction(dialog, name, frame)


@scenario
def counts_that_lie(dialog: Dialog) -> None:
    """An array that says it has two thousand million elements takes no memory for them."""
    for api, version, before in (("metadata", 1, b""), ("delete_groups", 0, b""), ("describe_groups", 0, b"")):
        frame = header(API_KEYS[api], version, 1, "conformance", False) + before
        for count in ((1 << 31) - 1, 1 << 20, -2, -(1 << 31)):
            reaction(dialog, f"{api} v{version} of {count}", frame + struct.pack(">i", count))


@scenario
def strings_that_are_too_long(dialog: Dialog) -> None:
    """More than a length of 16 bits can say; the newer versions have room for more."""
    talk = dialog.on()
    for size in (32_767, 32_768, 40_000, 100_000):
        text = "x" * size
        named = {"name": text, "num_partitions": 1, "replication_factor": 1}
        talk.ask_or_be_closed(f"key of {size}", "find_coordinator", 3, key=text)
        talk.ask_or_be_closed(f"group of {size}", "heartbeat", 4, group_id=text, member_id="m", generation_id=1)
        talk.ask_or_be_closed(f"topic of {size}", "metadata", 9, topics=[{"name": text}])
        talk.ask_or_be_closed(f"new topic of {size}", "create_topics", 7, topics=[named], timeout=30_000)
        talk.ask_or_be_closed(f"transaction of {size}", "init_producer_id", 4, transactional_id=text)


@scenario
def requests_in_one_go(dialog: Dialog) -> None:
    """Many requests before the first answer is read, in pieces that end anywhere: answered in order."""
    connection: Connection = dialog.fresh_connection()
    asked = [("api_versions", 0), ("metadata", 1), ("describe_cluster", 0), ("find_coordinator", 1)] * 10
    sent = b""
    for number, (api, version) in enumerate(asked):
        fields: dict[str, Any] = (
            {"topics": []} if api == "metadata" else {"key": dialog.name} if api == "find_coordinator" else {}
        )
        frame = header(API_KEYS[api], version, number, "conformance", is_flexible(api, version))
        frame += encode_request(api, version, fields)
        sent += struct.pack(">i", len(frame)) + frame
    for start in range(0, len(sent), 37):
        connection.send_bytes(sent[start : start + 37])
    answered = [struct.unpack_from(">i", connection.receive_frame())[0] for _ in asked]
    dialog.note("correlation ids", answered)
    connection.close()
