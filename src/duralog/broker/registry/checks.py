"""Parses and compares the schemas of requests: what takes long, without the registry's lock.

Two at a time, so that clients of the broker get their share of the processor. A request that waits too long for its
turn is refused, so that requests that only read find a free connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from duralog.broker.registry.answers import INVALID_SCHEMA, NOT_INSTALLED, TOO_MANY_REQUESTS, RegistryError
from duralog.broker.registry.levels import Level
from duralog.broker.registry.state import RegistryState
from duralog.errors import MissingExtra, SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.compatibility import ParsedSchema, parse
from duralog.schemas.compatibility.avro_defaults import check_defaults
from duralog.schemas.compatibility.work import Work
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, SubjectVersion

_AT_ONCE = 2
_LONGEST_WAIT_SECONDS = 5.0
_LONGEST_COMPARISON_SECONDS = 20.0
"""With many versions of Protobuf, which another process compiles. The next comparison finds those compiled."""


class SchemaChecks:
    def __init__(self) -> None:
        self._turns = threading.Semaphore(_AT_ONCE)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_LONGEST_WAIT_SECONDS):
            raise RegistryError(TOO_MANY_REQUESTS, "too many schemas are being checked: try again later")
        try:
            yield
        finally:
            self._turns.release()

    def parsed(self, state: RegistryState, schema: RegisteredSchema, *, is_new: bool = False) -> ParsedSchema:
        """`is_new`: it may not have faults that stored schemas are allowed."""
        with self._turn():
            try:
                found = parse(schema, state.catalogue.resolve(schema))
                if is_new and schema.type is SchemaType.AVRO:
                    check_defaults(found.content)
            except SchemaError as error:
                raise RegistryError(INVALID_SCHEMA, f"invalid schema: {error}") from error
            except MissingExtra as error:
                raise RegistryError(NOT_INSTALLED, str(error)) from error
            return found

    def problems(
        self, state: RegistryState, level: Level, new: ParsedSchema, earlier: list[SubjectVersion]
    ) -> list[str]:
        """Why a schema does not go with earlier versions. The newest is compared first."""
        if level is Level.NONE or not earlier:
            return []
        with self._turn():
            return _problems(state.catalogue, level, new, earlier)


def _problems(catalogue: SchemaCatalogue, level: Level, new: ParsedSchema, earlier: list[SubjectVersion]) -> list[str]:
    work = Work(len(earlier), until=monotonic() + _LONGEST_COMPARISON_SECONDS)
    for one in reversed(earlier):
        try:
            work.check_time()
            references = catalogue.resolve(one.schema)
            for each in (one.schema, *references.values()):
                work.add_text(each.text)
            found = level.problems(new, parse(one.schema, references), work)
        except SchemaError as error:
            return [f"version {one.version} cannot be compared: {error}"]
        if found:
            return [f"version {one.version}: {why}" for why in found]
    return []
