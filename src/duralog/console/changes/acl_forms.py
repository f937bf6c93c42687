"""The forms for access control entries."""

from __future__ import annotations

from duralog.console.changes.acls import OPTIONS, AddAcl, RemoveAcl, acl_of
from duralog.console.changes.change import Change, WrongInput
from duralog.console.changes.forms import Field, Form, Values
from duralog.console.facts.acls import AclFacts
from duralog.storage.metadata.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Operation,
    ResourceType,
    acl_fault,
)

_CLUSTER = "cluster"
_NAMED = tuple(kind for kind in OPTIONS if kind != _CLUSTER)
_OPERATIONS = sorted(
    {Operation.ALL.name.lower()}
    | {each.name.lower() for kind in OPTIONS for each in OPERATIONS_OF[ResourceType[kind.upper()]]}
)


def can_be_named(entry: AclFacts) -> bool:
    """Whether the form and the command know the type of its resource."""
    return entry.resource_type in OPTIONS


def add_acl_form() -> Form:
    return Form(
        title="Add an ACL",
        verb="Add ACL",
        fields=(
            _select("permission", "Permission", ("allow", "deny")),
            Field(name="principal", label="Principal", placeholder="User:ana", about="User:* is everyone."),
            _select("operation", "Operation", _OPERATIONS, value="read"),
            _select("resource_type", "Resource", tuple(OPTIONS)),
            Field(name="name", label="Name", placeholder="orders", when=("resource_type", _NAMED), about="* is all."),
            Field(
                name="pattern",
                label="Pattern",
                kind="select",
                value="literal",
                choices=(("literal", "This name"), ("prefixed", "All names that begin with it")),
                when=("resource_type", _NAMED),
            ),
            Field(name="host", label="Host", value=WILDCARD, about="An address; * is all."),
        ),
        read=_added,
    )


def remove_acl_form(entry: AclFacts) -> Form:
    def read(_: Values) -> Change:
        return RemoveAcl(entry=entry)

    return Form(title=f"Remove an ACL of {entry.principal}", verb="Remove ACL", fields=(), read=read)


def _select(name: str, label: str, choices: tuple[str, ...] | list[str], *, value: str = "") -> Field:
    shown = tuple((choice, choice.replace("_", " ")) for choice in choices)
    return Field(name=name, label=label, kind="select", value=value or choices[0], choices=shown)


def _added(values: Values) -> Change:
    kind, operation = values["resource_type"], values["operation"]
    is_cluster = kind == _CLUSTER
    entry = AclFacts(
        permission=values["permission"],
        principal=values["principal"].strip(),
        operation=operation,
        resource_type=kind,
        resource_name=CLUSTER_NAME if is_cluster else values["name"].strip(),
        pattern="literal" if is_cluster else values["pattern"],
        host=values["host"].strip() or WILDCARD,
    )
    for name, text in (("principal", entry.principal), ("name", entry.resource_name), ("host", entry.host)):
        if not text.isprintable():
            raise WrongInput(name, "One line of printable characters.")
    if not entry.resource_name:
        raise WrongInput("name", "Name: the name of the resource, or * for all")
    kind_name, _, name = entry.principal.partition(":")
    if not kind_name or not name:
        raise WrongInput("principal", "Principal: a type and a name, such as User:ana")
    known = ["all", *(each.name.lower() for each in OPERATIONS_OF[ResourceType[kind.upper()]])]
    if operation not in known:
        listed = ", ".join(each.replace("_", " ") for each in known)
        raise WrongInput("operation", f"Operation: of a {kind.replace('_', ' ')}, one of {listed}")
    if (fault := acl_fault(acl_of(entry))) is not None:
        raise WrongInput("", fault)
    return AddAcl(entry=entry)
