"""The broker configs that `duralog config` works on: of a running broker, or of a directory that no broker holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duralog.cli.voice.opened_store import opened_store
from duralog.client.configs import ConfigClient
from duralog.operations.addresses import is_broker
from duralog.operations.broker_configs import BrokerConfigs, RunningBrokerConfigs, StoreConfigs


@contextmanager
def opened_configs(
    place: str, *, read_only: bool, server_properties: str | None = None, quiet: bool = False
) -> Iterator[BrokerConfigs]:
    if is_broker(place):
        with ConfigClient(place) as client:
            yield RunningBrokerConfigs(client)
        return
    with opened_store(place, read_only=read_only, server_properties=server_properties, quiet=quiet) as store:
        yield StoreConfigs(store)
