"""ApiVersions, versions 0 to 4: which APIs and versions this broker serves, and the features of its cluster.

The first request of a client. An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the versions of
this API, so that the client tries again. Produce is advertised from version 0 on, although versions below 3 are
refused: older clients of librdkafka would not compress otherwise. Features with a minimum level of 0 are left out up to
version 3, whose clients treat a 0 as an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from duralog.broker.runtime import Runtime
from duralog.broker.wire.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from duralog.broker.wire.request import Api, Fields, Request
from duralog.errors import DuralogError
from duralog.storage.metadata.folder import METADATA_PARTITION

SUPPORTED_FEATURES = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}
"""Kafka's features without those of share and streams groups, which are not supported."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE = 3
_FIRST_WITH_LEVEL_0 = 4


def handle(runtime: Runtime, apis: Mapping[int, Api], request: Request) -> Fields:
    if request.version >= _FIRST_WITH_SOFTWARE:
        message = request.message
        for text in (message.client_software_name, message.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                return {"error_code": INVALID_REQUEST}
    if request.login is not None:
        request.login.answered_versions()
    finalized = runtime.store.features
    return {
        "error_code": NONE,
        "api_keys": [_range(api) for api in apis.values()],
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or request.version >= _FIRST_WITH_LEVEL_0
        ],
        "finalized_features_epoch": _metadata_offset(runtime),
        "finalized_features": [
            {"name": name, "min_version_level": finalized[name], "max_version_level": finalized[name]}
            for name in SUPPORTED_FEATURES
            if finalized.get(name, 0) > 0
        ],
    }


def _metadata_offset(runtime: Runtime) -> int:
    """The last offset of the cluster metadata: the epoch of the features."""
    try:
        return max(runtime.store.partition(METADATA_PARTITION.topic, METADATA_PARTITION.partition).end_offset - 1, 0)
    except DuralogError:
        return 0


def refuse(_: Request, error_code: int, __: str | None) -> Fields:
    if error_code == UNSUPPORTED_VERSION:
        return {"error_code": error_code, "api_keys": [_range(API)]}
    return {"error_code": error_code}


def _range(api: Api) -> Fields:
    low = api.min_version if api.advertised_min_version is None else api.advertised_min_version
    return {"api_key": api.key, "min_version": low, "max_version": api.max_version}


API = Api(18, "ApiVersions", 0, 4, handle, refuse)
