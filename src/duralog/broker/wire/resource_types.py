"""What has configs, by Kafka's numbers."""

from __future__ import annotations

from typing import Final

from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

TOPIC: Final = TOPIC_RESOURCE
BROKER: Final = BROKER_RESOURCE
LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = GROUP_RESOURCE
