"""UpdateFeatures, versions 0 to 2: raise and lower the levels of the features that this broker supports.

All updates are made, or none. As in Kafka, `metadata.version` cannot be lowered: records of the higher level may be in
the log. `kraft.version` belongs to the quorum of Kafka's controllers, and cannot be changed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from duralog.broker.handlers.cluster.api_versions import SUPPORTED_FEATURES
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.cluster_metadata import METADATA_VERSION

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_KRAFT_VERSION = "kraft.version"
_NEEDED_METADATA_VERSION = {"eligible.leader.replicas.version": 23}
_NO_ERROR = "NONE"
"""What Kafka sends as error message of a feature that was updated."""
_FIRST_WITHOUT_RESULTS = 2


def handle(runtime: Runtime, topics: Topics, request: Request) -> Answer:
    updates = request.message.feature_updates
    later = DelayedAnswer()

    def work() -> str | None:
        levels = runtime.store.features
        for reason in _faults(updates, levels, runtime.node.node_id):
            return reason
        if not optional(request.message, "validate_only", False):
            runtime.store.set_feature_levels({each.feature: each.max_version_level for each in updates})
        return None

    def then(reason: str | None, error: Exception | None) -> None:
        if error is not None:
            raise error
        if reason is not None:
            text = f"The update failed for all features since the following feature had an error: {reason}"
            later.answer(refuse(request, codes.INVALID_UPDATE_VERSION, text))
            return
        results = [
            {"feature": each.feature, "error_code": codes.NONE, "error_message": _NO_ERROR}
            for each in updates
            if request.version < _FIRST_WITHOUT_RESULTS
        ]
        later.answer({"error_code": codes.NONE, "error_message": None, "results": results})

    topics.change(work, then, later)
    return later


def _faults(updates: Iterable[Any], levels: Any, node_id: int) -> Iterator[str]:
    proposed = {**levels, **{each.feature: each.max_version_level for each in updates}}
    for each in updates:
        name, level = each.feature, each.max_version_level
        kind = optional(each, "upgrade_type", _UPGRADE)
        reason = _level_fault(name, level, levels.get(name, 0), kind, node_id)
        needed = _NEEDED_METADATA_VERSION.get(name, 0) if level else 0
        if reason is None and proposed.get(METADATA_VERSION, 0) < needed:
            reason = f"It depends on level {needed} of {METADATA_VERSION}."
        if reason is not None:
            yield f"Invalid update version {level} for feature {name}. {reason}"
        elif name == METADATA_VERSION and level < levels.get(name, 0):
            refused = (
                "Refusing to perform the requested downgrade because it might delete metadata information."
                if kind == _SAFE_DOWNGRADE
                else "Unsafe metadata downgrade is not supported in this version."
            )
            yield f"Unsupported metadata.version downgrade from {levels[name]} to {level}. {refused}"


def _level_fault(name: str, level: int, present: int, kind: int, node_id: int) -> str | None:
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        return f"Local controller {node_id} does not support this feature."
    low, high = supported
    if not low <= level <= high:
        return f"Local controller {node_id} only supports versions {low}-{high}"
    if level < present and kind == _UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if level > present and kind != _UPGRADE:
        return "Can't downgrade to a newer version."
    if name == _KRAFT_VERSION and level != present:
        return "It belongs to the quorum of Kafka's controllers: change it with Kafka, started on this directory."
    return None


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message, "results": []}


API = Api(57, "UpdateFeatures", 0, 2, handle, refuse)
