"""Who may do what in a campaign, and what the users without rights try: log-ins, access control lists, web users.

Everyone on the plain listener is a super user. On the guarded one, `admin` is a super user, `lister` has what its
transactions need, and the intruder may read one topic. Whatever the intruder sends, the cluster stays as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from duralog.broker.security.web_users import Role, token_entry
from tests.support.broker.raw_client import RawClient
from tests.torture.clients import LISTS, SINGLES

GUARDED = "GUARDED"
ADMIN, LISTER, INTRUDER = "admin", "lister-1", "intruder"
_PASSWORDS = {ADMIN: "admin's secret", LISTER: "lister's secret", INTRUDER: "intruder's secret"}
PASSWORD = _PASSWORDS[INTRUDER]
_PREFIX = f"listener.name.{GUARDED.lower()}."
_MODULES = "org.apache.kafka.common.security"
_PLAIN_USERS = " ".join(f'user_{user}="{_PASSWORDS[user]}"' for user in (ADMIN, INTRUDER))
CONFIGS: dict[str, object] = {
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{GUARDED}:SASL_PLAINTEXT",
    f"{_PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{_PREFIX}plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {_PLAIN_USERS};",
    f"{_PREFIX}scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
    "connection.failed.authentication.delay.ms": 5,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
}
_RIGHTS = (
    (LISTER, ResourceType.TOPIC, LISTS, AclOperation.WRITE),
    (LISTER, ResourceType.TRANSACTIONAL_ID, LISTER, AclOperation.WRITE),
    (INTRUDER, ResourceType.TOPIC, SINGLES, AclOperation.READ),
)
_SECONDS = 120
METADATA, LIST_GROUPS, API_VERSIONS, DESCRIBE_ACLS, DESCRIBE_CONFIGS = 3, 16, 18, 29, 32
DESCRIBE_QUOTAS, DESCRIBE_SCRAM = 48, 50
_ANY = 1
_TOPIC, _BROKER = 2, 4


def plain_log_in(address: str, user: str) -> dict[str, str]:
    """librdkafka's configs."""
    return _log_in(address, user, "PLAIN")


def scram_log_in(address: str, user: str) -> dict[str, str]:
    return _log_in(address, user, "SCRAM-SHA-256")


def _log_in(address: str, user: str, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": _PASSWORDS[user],
    }


def create_users(admin: AdminClient) -> None:
    """The users of SCRAM and what they may do. REQUIRES: the topics exist."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    users: list[Any] = [
        UserScramCredentialUpsertion(user, info, _PASSWORDS[user].encode()) for user in (LISTER, INTRUDER)
    ]
    for stored in admin.alter_user_scram_credentials(users).values():
        stored.result(_SECONDS)
    rights = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for user, kind, name, operation in _RIGHTS
    ]
    for created in admin.create_acls(rights).values():
        created.result(_SECONDS)


class WebTokens:
    """The users of the registry and of `/metrics`: one who may look, one who may change."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "web-users"
        look, self.look = token_entry("looker", Role.LOOK)
        change, self.change = token_entry("changer", Role.CHANGE)
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{look}\n{change}\n")


def cluster_state(address: str) -> set[str]:
    """What administration has made: topics, configs, access control lists, users, quotas and features.

    No client of the campaign changes any of it, so it stays the same while only the intruder sends something else.
    Groups come and go; those of the intruder's are in it.
    """
    host, _, port = address.rpartition(":")
    with RawClient(host, int(port)) as client:
        metadata = client.ask(METADATA, 12, {"topics": None})
        topics = {each.name: (each.topic_id, len(each.partitions)) for each in metadata.topics}
        asked = [(_TOPIC, name) for name in topics] + [(_BROKER, name) for name in ("", str(metadata.controller_id))]
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in asked]
        configs = client.ask(DESCRIBE_CONFIGS, 4, {"resources": resources}).results
        kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), _ANY)
        anything = kinds | dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
        acls = client.ask(DESCRIBE_ACLS, 3, anything).resources
        users = client.ask(DESCRIBE_SCRAM, 0, {"users": None}).results
        quotas = client.ask(DESCRIBE_QUOTAS, 1, {"components": [], "strict": False}).entries
        features = client.ask(API_VERSIONS, 3, {"client_software_name": "torture", "client_software_version": "1"})
        groups = client.ask(LIST_GROUPS, 4, {}).groups
    found: dict[str, list[str]] = {
        "topics": [repr(topic) for topic in topics.items()],
        "configs": [
            f"{each.resource_type} {each.resource_name}: {config.name}={config.value} from {config.config_source}"
            for each in configs
            for config in each.configs
        ],
        "acls": [repr(each) for each in acls],
        "users": [repr(each) for each in users],
        "quotas": [repr(each) for each in quotas or ()],
        "features": [repr(each) for each in features.finalized_features],
        "groups": [each.group_id for each in groups if INTRUDER in each.group_id],
    }
    return {f"{kind}: {each}" for kind, all_of in found.items() for each in all_of}


def differences(before: set[str], after: set[str]) -> list[str]:
    return [f"removed {each}" for each in sorted(before - after)] + [f"added {each}" for each in sorted(after - before)]
