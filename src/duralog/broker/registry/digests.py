"""Finds the schema that a registry has already, in whatever text. The digest of each stored schema is made once."""

from __future__ import annotations

from duralog.broker.registry.state import RegistryState
from duralog.schemas.compatibility.identity import digest_of
from duralog.schemas.registered_schema import RegisteredSchema, SubjectVersion


class SchemaDigests:
    """Any thread may ask: at worst, two of them make the same digest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], dict[int, tuple[str, bytes]]] = {}
        """Texts and their digests by id, for each context; normalized or not."""

    def same_id(self, state: RegistryState, schema: RegisteredSchema, normalize: bool) -> RegisteredSchema | None:
        """The schema of a context that equals one."""
        wanted = digest_of(schema, normalize)
        known: dict[int, tuple[str, bytes]] = {}
        before = self._known.get((schema.context, normalize), {})
        found = None
        for number in state.catalogue.ids(schema.context):
            one = state.by_id(number, schema.context)
            known[number] = _digest(before, number, one, normalize)
            if found is None and _is_like(one, schema) and known[number][1] == wanted:
                found = one
        # Without those that were deleted for good.
        self._known[schema.context, normalize] = known
        return found

    def same_version(
        self, versions: list[SubjectVersion], schema: RegisteredSchema, normalize: bool
    ) -> SubjectVersion | None:
        """The newest of some versions of a subject that has this schema."""
        return next((one for one in reversed(versions) if self.are_same(one.schema, schema, normalize)), None)

    def are_same(self, stored: RegisteredSchema, schema: RegisteredSchema, normalize: bool) -> bool:
        if not _is_like(stored, schema):
            return False
        number = stored.id
        assert number is not None
        known = self._known.setdefault((stored.context, normalize), {})
        known[number] = _digest(known, number, stored, normalize)
        return known[number][1] == digest_of(schema, normalize)


def _digest(
    known: dict[int, tuple[str, bytes]], number: int, schema: RegisteredSchema, normalize: bool
) -> tuple[str, bytes]:
    there = known.get(number)
    return there if there is not None and there[0] == schema.text else (schema.text, digest_of(schema, normalize))


def _is_like(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    return (one.type, one.references) == (other.type, other.references)
