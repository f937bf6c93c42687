"""Elections, the quorum, features and log directories, beyond what the conformance tests compare with Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.storage.store import Store
from tests.support.broker.admin_desk import damage, make
from tests.support.broker.raw_client import RawClient

ALTER_REPLICA_LOG_DIRS, ELECT_LEADERS, DESCRIBE_QUORUM, UPDATE_FEATURES = 34, 43, 55, 57
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.mark.parametrize(("kind", "error_code"), [(0, 80), (1, 83)])
def test_a_partition_that_cannot_be_loaded_has_no_leader(
    client: RawClient, broker: Broker, kind: int, error_code: int
) -> None:
    make(client, "t", 2)
    damage(broker, "t", 1)
    asked = [{"topic": "t", "partitions": [0, 1]}]
    fields = {"election_type": kind, "topic_partitions": asked, "timeout": 1000}
    answer = client.ask(ELECT_LEADERS, 2, fields)
    codes = {each.partition_id: each.error_code for each in answer.replica_election_results[0].partition_result}
    assert codes == {0: 84, 1: error_code}
    answer = client.ask(ELECT_LEADERS, 2, {**fields, "topic_partitions": None})
    (result,) = answer.replica_election_results
    assert [each.partition_id for each in result.partition_result] == [1]


def test_the_quorum_follows_the_metadata_log(client: RawClient, broker: Broker) -> None:
    asked = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    make(client, "t")
    (before,) = client.ask(DESCRIBE_QUORUM, 2, asked).topics[0].partitions
    make(client, "u")
    (after,) = client.ask(DESCRIBE_QUORUM, 2, asked).topics[0].partitions
    assert before.high_watermark < after.high_watermark == after.current_voters[0].log_end_offset
    assert after.leader_epoch == broker.store.metadata_epoch > 0


def update(client: RawClient, feature: str, level: int, kind: int, *, validate_only: bool = False) -> str | None:
    asked = {"feature": feature, "max_version_level": level, "upgrade_type": kind}
    fields = {"timeout": 1000, "feature_updates": [asked], "validate_only": validate_only}
    answer = client.ask(UPDATE_FEATURES, 2, fields)
    assert answer.error_code == (0 if answer.error_message is None else 95)
    message: str | None = answer.error_message
    return message


def test_levels_are_kept(client: RawClient, broker: Broker) -> None:
    assert update(client, "transaction.version", 1, SAFE_DOWNGRADE, validate_only=True) is None
    assert broker.store.features["transaction.version"] == 2
    assert update(client, "transaction.version", 1, SAFE_DOWNGRADE) is None
    assert broker.store.features["transaction.version"] == 1
    assert update(client, "eligible.leader.replicas.version", 0, SAFE_DOWNGRADE) is None
    assert "eligible.leader.replicas.version" not in broker.store.features
    assert update(client, "eligible.leader.replicas.version", 1, UPGRADE) is None
    assert broker.store.configs_of(4, "")["min.insync.replicas"] == "1"


def test_the_quorum_of_kafkas_controllers_is_not_changed(client: RawClient) -> None:
    reason = update(client, "kraft.version", 1, UPGRADE)
    assert reason is not None
    assert reason.endswith("change it with Kafka, started on this directory.")
    assert update(client, "kraft.version", 0, UPGRADE) is None


def test_an_old_metadata_version(tmp_path: Path) -> None:
    """A feature that needs a later one is refused until that is raised."""
    with Store(str(tmp_path)) as store:
        store.set_feature_levels({"metadata.version": 22, "eligible.leader.replicas.version": 0})
    with Broker(str(tmp_path)) as broker:
        broker.start()
        client = RawClient("127.0.0.1", broker.address.port)
        reason = update(client, "eligible.leader.replicas.version", 1, UPGRADE)
        assert reason is not None
        assert reason.endswith("It depends on level 23 of metadata.version.")
        assert update(client, "metadata.version", 23, UPGRADE) is None
        assert update(client, "eligible.leader.replicas.version", 1, UPGRADE) is None
        client.close()


def test_the_one_log_directory(client: RawClient, broker: Broker) -> None:
    make(client, "t")
    for path, error_code in ((broker.store.path, 0), ("/elsewhere", 57)):
        asked = [{"path": path, "topics": [{"name": "t", "partitions": [0]}]}]
        (result,) = client.ask(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": asked}).results
        assert [each.error_code for each in result.partitions] == [error_code]
