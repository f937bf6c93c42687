"""The access control lists of a running broker, duralog's or Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duralog.client.connection import ANSWER_SECONDS, admin_client, admin_module, errors_of, kafka_client
from duralog.errors import DuralogError
from duralog.storage.metadata.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

_CLUSTER = "BROKER"
"""The client library's name for the cluster."""

_AUTHORIZER = "authorizer.class.name"


class AclsDisabled(DuralogError):
    """The broker has no authorizer: SECURITY_DISABLED."""


class BrokerAcls:
    def __init__(self, address: str) -> None:
        self._address = address
        self._types = admin_module()
        self._admin = admin_client(address)

    def find(self, wanted: AclFilter) -> list[Acl]:
        with errors_of(self._address):
            found = self._admin.describe_acls(self._filter(wanted), request_timeout=ANSWER_SECONDS).result()
            if not found:
                self._check_answer()
        return [_acl(each) for each in found]

    def _check_answer(self) -> None:
        """Librdkafka takes every error of DescribeAcls for an answer without entries. Find out whether it was one."""
        asked = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=ANSWER_SECONDS)
        cluster = asked.result()
        if self._types.AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
            raise DuralogError(
                f"{self._address}: the ACLs are not shown: that needs the operation describe on the cluster"
                " (CLUSTER_AUTHORIZATION_FAILED)"
            )
        broker = self._types.ConfigResource(self._types.ConfigResource.Type.BROKER, str(cluster.controller.id))
        (configs,) = self._admin.describe_configs([broker], request_timeout=ANSWER_SECONDS).values()
        try:
            authorizer = configs.result().get(_AUTHORIZER)
        except kafka_client().KafkaException:
            return  # Only its absence would be known.
        if authorizer is not None and not authorizer.value:
            raise AclsDisabled(f"{self._address}: the broker has no authorizer, and so no ACLs (SECURITY_DISABLED)")

    def add(self, acls: Sequence[Acl]) -> None:
        bindings = [self._types.AclBinding(*self._fields(acl)) for acl in acls]
        with errors_of(self._address):
            for future in self._admin.create_acls(bindings, request_timeout=ANSWER_SECONDS).values():
                future.result()

    def remove(self, filters: Sequence[AclFilter]) -> list[Acl]:
        wanted = [self._filter(each) for each in filters]
        with errors_of(self._address):
            futures = self._admin.delete_acls(wanted, request_timeout=ANSWER_SECONDS).values()
            removed = [_acl(each) for future in futures for each in future.result()]
        return list(dict.fromkeys(removed))

    def _filter(self, wanted: AclFilter) -> Any:
        return self._types.AclBindingFilter(*self._fields(wanted))

    def _fields(self, acl: Acl | AclFilter) -> tuple[Any, ...]:
        types = self._types
        kind = ResourceType(acl.resource_type).name
        return (
            types.ResourceType[_CLUSTER if kind == "CLUSTER" else kind],
            acl.resource_name,
            types.ResourcePatternType[PatternType(acl.pattern_type).name],
            acl.principal,
            acl.host,
            types.AclOperation[Operation(acl.operation).name],
            types.AclPermissionType[Permission(acl.permission_type).name],
        )


def _acl(binding: Any) -> Acl:
    kind = binding.restype.name
    return Acl(
        ResourceType["CLUSTER" if kind == _CLUSTER else kind],
        binding.name,
        PatternType[binding.resource_pattern_type.name],
        binding.principal,
        binding.host,
        Operation[binding.operation.name],
        Permission[binding.permission_type.name],
    )
