"""How much a registry keeps in memory. A change is refused before its record is appended: what is stored loads."""

from __future__ import annotations

from collections.abc import Mapping

from duralog.broker.registry.answers import NOT_PERMITTED, RegistryError
from duralog.broker.registry.state import RegistryState
from duralog.schemas.catalogue import MAX_CATALOGUE_BYTES, MAX_SCHEMAS
from duralog.schemas.registered_schema import RegisteredSchema

MOST_VERSIONS = 1_000_000
MOST_CONFIGS = 100_000
"""Of subjects and contexts; and as many modes."""


def check_schema(state: RegistryState, schema: RegisteredSchema) -> None:
    """For one with a new id."""
    if not state.catalogue.has_room_for(schema):
        raise RegistryError(
            NOT_PERMITTED,
            f"the registry is full: it takes {MAX_SCHEMAS:,} schemas and {MAX_CATALOGUE_BYTES >> 20} MiB of their "
            "texts; delete subjects for good that are not read any more",
        )


def check_version(state: RegistryState) -> None:
    if state.catalogue.version_count >= MOST_VERSIONS:
        raise RegistryError(
            NOT_PERMITTED, f"the registry is full: it takes {MOST_VERSIONS:,} versions; delete some for good"
        )


def check_configs(subject: str, configs: Mapping[str, object]) -> None:
    """For a subject or a context."""
    if subject not in configs and len(configs) >= MOST_CONFIGS:
        raise RegistryError(NOT_PERMITTED, f"the registry takes {MOST_CONFIGS:,} configs: reset those of old subjects")
