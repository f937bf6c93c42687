"""What a registry knows, as one immutable value: subjects, versions, ids, GUIDs and references.

It is made once, at planning, from a `_schemas` topic, a registry, files or text, and sent to tasks. A schema is found
by its id even if its subject was deleted, softly or for good, as long as its record is there: records that were
written with an id mean that schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from duralog.errors import SchemaError
from duralog.schemas.registered_schema import (
    DEFAULT_CONTEXT,
    RegisteredSchema,
    SchemaReference,
    SchemaType,
    SubjectVersion,
    in_context,
)

MAX_REFERENCE_DEPTH = 32
MAX_REFERENCES = 1_000
MAX_REFERENCED_BYTES = 32 << 20
"""Of one schema with all that it imports. A registry's own schemas stay far below all three."""

MAX_SCHEMAS = 200_000
MAX_CATALOGUE_BYTES = 256 << 20

LATEST = "latest"


class SchemaCatalogue:
    """Schemas by id, by GUID, and by subject and version."""

    __slots__ = ("_by_guid", "_by_id", "_subjects", "characters", "levels", "problems", "version_count")

    def __init__(
        self,
        versions: Iterable[SubjectVersion] = (),
        schemas: Iterable[RegisteredSchema] = (),
        problems: Iterable[str] = (),
        levels: Mapping[str, str] | None = None,
    ) -> None:
        self._by_id: dict[tuple[str, int], RegisteredSchema] = {}
        self._by_guid: dict[UUID, RegisteredSchema] = {}
        self._subjects: dict[str, dict[int, SubjectVersion]] = {}
        self.problems: tuple[str, ...] = tuple(problems)
        """What could not be used of the source: records that were skipped, schemas of unknown types."""
        self.levels: Mapping[str, str] = dict(levels or {})
        """Of compatibility, by subject; `""` is the one of all others. As far as they are known."""
        self.characters = 0
        """Of the texts, each id's once."""
        self.version_count = 0
        """Of all subjects, with deleted ones."""
        for schema in schemas:
            self._add(schema)
        for each in versions:
            subject = in_context(each.subject, DEFAULT_CONTEXT)
            of_subject = self._subjects.setdefault(subject, {})
            self.version_count += each.version not in of_subject
            of_subject[each.version] = each
            self._add(each.schema)

    def _add(self, schema: RegisteredSchema) -> None:
        if schema.id is not None:
            place = (schema.context, schema.id)
            known = self._by_id.get(place)
            if known is schema:
                return
            if known is None:
                self.characters += len(schema.text)
            self._by_id[place] = schema
        if schema.guid is not None:
            self._by_guid[schema.guid] = schema

    def check_size(self) -> None:
        """Before it is kept or sent to tasks; raises `SchemaError`."""
        if len(self) > MAX_SCHEMAS or self.characters > MAX_CATALOGUE_BYTES:
            raise SchemaError(
                f"there are more than {MAX_SCHEMAS:,} schemas or {MAX_CATALOGUE_BYTES >> 20} MiB of them; "
                "name the subjects that you need"
            )

    def has_room_for(self, schema: RegisteredSchema) -> bool:
        """Whether one with a new id can be added within the limits."""
        return len(self) < MAX_SCHEMAS and self.characters + len(schema.text) <= MAX_CATALOGUE_BYTES

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"SchemaCatalogue({len(self._subjects)} subjects, {len(self._by_id)} ids)"

    # What there is.

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """The names of subjects with versions; `deleted` adds those whose versions are all soft-deleted."""
        return sorted(name for name in self._subjects if self.versions(name, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """All of a subject, oldest first. Empty for a subject that does not exist."""
        versions = self._subjects.get(in_context(subject, DEFAULT_CONTEXT), {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].deleted]

    def ids(self, context: str = DEFAULT_CONTEXT) -> list[int]:
        """The ids of a context's schemas, also of deleted ones."""
        return sorted(id_ for where, id_ in self._by_id if where == context)

    def contexts(self) -> list[str]:
        """All contexts that have an id."""
        return sorted({context for context, _ in self._by_id})

    # Finding one.

    def by_id(self, id_: int, context: str = DEFAULT_CONTEXT) -> RegisteredSchema | None:
        """The schema of an id, or None."""
        return self._by_id.get((context, id_))

    def by_guid(self, guid: UUID) -> RegisteredSchema | None:
        """The schema of a GUID, or None. GUIDs are the same in every context."""
        return self._by_guid.get(guid)

    def get(self, subject: str, version: int | str = LATEST) -> RegisteredSchema:
        """The schema of a subject's version; raises `SchemaError` if it does not exist."""
        return self._version(subject, version).schema

    def _version(self, subject: str, version: int | str) -> SubjectVersion:
        versions = self._subjects.get(in_context(subject, DEFAULT_CONTEXT))
        if not versions:
            raise SchemaError(f"the schema registry has no subject {subject!r}{_similar(subject, self.subjects())}")
        if version in (LATEST, -1):
            living = [number for number, each in versions.items() if not each.deleted]
            if not living:
                raise SchemaError(f"all versions of subject {subject!r} are deleted; name one of {sorted(versions)}")
            return versions[max(living)]
        found = versions.get(int(version))
        if found is None:
            raise SchemaError(f"subject {subject!r} has no version {version}, only {sorted(versions)}")
        return found

    def resolve(self, schema: RegisteredSchema) -> dict[str, RegisteredSchema]:
        """All schemas that one imports, by the names of the references, those that others import first."""
        found: dict[str, RegisteredSchema] = {}
        finished: set[str] = set()
        count = 0
        size = len(schema.text)

        def follow(referrer: RegisteredSchema, name: str, path: tuple[str, ...]) -> None:
            nonlocal count, size
            if len(path) >= MAX_REFERENCE_DEPTH:
                raise SchemaError(
                    f"{schema.name}: its references are nested deeper than {MAX_REFERENCE_DEPTH}: {_path(path)}"
                )
            for reference in referrer.references:
                count += 1
                if count > MAX_REFERENCES:
                    raise SchemaError(f"{schema.name}: it has more than {MAX_REFERENCES:,} references")
                target = self._referenced(reference, referrer, name)
                known = found.get(reference.name)
                if known is not None and (known.text, known.references) != (target.text, target.references):
                    raise SchemaError(
                        f"{name}: reference {reference.name!r} is another schema than the one that "
                        f"{schema.name} imports under this name elsewhere"
                    )
                if reference.name in path:
                    raise SchemaError(f"{schema.name}: its references form a cycle: {_path((*path, reference.name))}")
                if reference.name in finished:
                    continue
                size += len(target.text)
                if size > MAX_REFERENCED_BYTES:
                    raise SchemaError(
                        f"{schema.name}: it has more than {MAX_REFERENCED_BYTES >> 20} MiB with its references"
                    )
                follow(target, f"subject {reference.subject!r} version {reference.version}", (*path, reference.name))
                finished.add(reference.name)
                found[reference.name] = target

        follow(schema, schema.name, ())
        return found

    def _referenced(self, reference: SchemaReference, referrer: RegisteredSchema, name: str) -> RegisteredSchema:
        subject = in_context(reference.subject, referrer.context)
        versions = self._subjects.get(subject, {})
        if reference.version == -1 and versions:
            return self._version(subject, LATEST).schema
        found = versions.get(reference.version)
        if found is None:
            raise SchemaError(
                f"subject {reference.subject!r} version {reference.version} is gone: {name} references it "
                f"as {reference.name!r}. Restore it, or give the schema as text with its imports"
            )
        return found.schema

    # Others made from this one.

    def merged(self, other: SchemaCatalogue) -> SchemaCatalogue:
        """All of both; where both have an id or a version, the other's."""
        return SchemaCatalogue(
            (each for one in (self, other) for versions in one._subjects.values() for each in versions.values()),
            (each for one in (self, other) for each in (*one._by_id.values(), *one._by_guid.values())),
            (*self.problems, *other.problems),
            {**self.levels, **other.levels},
        )

    def only(self, type_: SchemaType, context: str = DEFAULT_CONTEXT) -> SchemaCatalogue:
        """The ids of one type and context, with what they reference: what a task needs that decodes them."""
        kept = [each for each in self._by_id.values() if each.type == type_ and each.context == context]
        kept += [each for each in self._by_guid.values() if each.type == type_]
        referenced: dict[tuple[str, int], SubjectVersion] = {}
        pending = list(kept)
        while pending:
            schema = pending.pop()
            for reference in schema.references:
                subject = in_context(reference.subject, schema.context)
                versions = self._subjects.get(subject, {})
                # The latest may be meant: all versions go along.
                for number in versions if reference.version == -1 else [reference.version]:
                    if (subject, number) not in referenced and number in versions:
                        referenced[subject, number] = versions[number]
                        pending.append(versions[number].schema)
        return SchemaCatalogue(referenced.values(), kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaCatalogue) and self._contents() == other._contents()

    def __hash__(self) -> int:
        return hash(len(self))

    def _contents(self) -> tuple[object, ...]:
        return self._by_id, self._by_guid, self._subjects


def find_schema(catalogue: SchemaCatalogue, choice: str) -> RegisteredSchema:
    """What a person names as `id:7`, `guid:...`, `orders-value` (its latest version) or `orders-value:3`."""
    kind, _, rest = choice.partition(":")
    if kind == "id" and rest.isdecimal():
        found = catalogue.by_id(int(rest))
        if found is None:
            raise SchemaError(f"the schema registry has no id {rest}")
        return found
    if kind == "guid":
        try:
            found = catalogue.by_guid(UUID(rest))
        except ValueError:
            raise SchemaError(f"{rest!r} is not a GUID") from None
        if found is None:
            raise SchemaError(f"the schema registry has no GUID {rest}")
        return found
    subject, separator, version = choice.rpartition(":")
    if separator and subject and (version.isdecimal() or version == LATEST) and not catalogue.versions(choice):
        return catalogue.get(subject, version)
    return catalogue.get(choice)


def _path(names: tuple[str, ...]) -> str:
    shown = names if len(names) <= 6 else (*names[:3], "...", *names[-2:])
    return " -> ".join(shown)


def _similar(subject: str, subjects: list[str]) -> str:
    wanted = subject.lower()
    near = [name for name in subjects if wanted in name.lower() or name.lower() in wanted][:3]
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""
