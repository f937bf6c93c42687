"""The APIs that this broker serves. Each is a module with an `API`; what is not in this table is not advertised."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from duralog.broker.request import Api

HANDLERS = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "write_txn_markers",
    "txn_offset_commit",
    "describe_configs",
    "alter_configs",
    "describe_log_dirs",
    "create_partitions",
    "delete_groups",
    "incremental_alter_configs",
    "offset_delete",
    "describe_cluster",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
    "consumer_group_heartbeat",
    "consumer_group_describe",
    "describe_topic_partitions",
)
"""The modules, by the keys of their APIs."""


def load_apis() -> Mapping[int, Api]:
    """The APIs by key."""
    found: list[Api] = [importlib.import_module(f"{__name__}.{name}").API for name in HANDLERS]
    return {api.key: api for api in found}
