"""Access control lists of a broker without an authorizer. With one: `tests/interop/security/test_acls.py`."""

from __future__ import annotations

from oracle.conformance.dialog import Dialog
from oracle.conformance.scenario import each_version

_ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ENTRY = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


@each_version(1, 3)
def acls_without_an_authorizer(dialog: Dialog, version: int) -> None:
    dialog.ask("describe_acls", version, **_ANYTHING)
    dialog.ask("create_acls", version, creations=[_ENTRY, _ENTRY])
    dialog.ask("delete_acls", version, filters=[_ANYTHING, _ANYTHING])
