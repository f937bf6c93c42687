"""The APIs that this broker serves, one module each. An API that is not in this table is not advertised.

A module has `handle`, `refuse` and `API`. The last parameter of `handle` is the request; those before it name the parts
of the broker that the handler uses, which the dispatcher hands in once, when the broker opens (`Api.bound_to`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from duralog.broker.wire.request import Api

HANDLERS = (
    "records.produce",
    "records.fetch",
    "records.list_offsets",
    "topics.metadata",
    "groups.offset_commit",
    "groups.offset_fetch",
    "cluster.find_coordinator",
    "groups.join_group",
    "groups.heartbeat",
    "groups.leave_group",
    "groups.sync_group",
    "groups.describe_groups",
    "groups.list_groups",
    "security.sasl_handshake",
    "cluster.api_versions",
    "topics.create_topics",
    "topics.delete_topics",
    "records.delete_records",
    "transactions.init_producer_id",
    "records.offset_for_leader_epoch",
    "transactions.add_partitions_to_txn",
    "transactions.add_offsets_to_txn",
    "transactions.end_txn",
    "transactions.write_txn_markers",
    "transactions.txn_offset_commit",
    "acls.describe_acls",
    "acls.create_acls",
    "acls.delete_acls",
    "cluster.describe_configs",
    "cluster.alter_configs",
    "cluster.alter_replica_log_dirs",
    "cluster.describe_log_dirs",
    "security.sasl_authenticate",
    "topics.create_partitions",
    "groups.delete_groups",
    "cluster.elect_leaders",
    "cluster.incremental_alter_configs",
    "cluster.alter_partition_reassignments",
    "cluster.list_partition_reassignments",
    "groups.offset_delete",
    "cluster.describe_client_quotas",
    "cluster.alter_client_quotas",
    "security.describe_user_scram_credentials",
    "security.alter_user_scram_credentials",
    "cluster.describe_quorum",
    "cluster.update_features",
    "cluster.describe_cluster",
    "records.describe_producers",
    "transactions.describe_transactions",
    "transactions.list_transactions",
    "groups.consumer_group_heartbeat",
    "groups.consumer_group_describe",
    "cluster.list_config_resources",
    "topics.describe_topic_partitions",
)
"""The modules, by the keys of their APIs."""


def load_apis() -> Mapping[int, Api]:
    """The APIs by key."""
    found: list[Api] = [importlib.import_module(f"{__name__}.{name}").API for name in HANDLERS]
    return {api.key: api for api in found}
