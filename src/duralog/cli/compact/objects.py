"""What `duralog compact` has found or done, as objects of JSON. Times are milliseconds since 1970."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

from duralog.cli.compact.advice import advice, verdict
from duralog.config import TopicConfig
from duralog.operations.explain import ExplainedPartition
from duralog.storage.compaction.delete_horizons import DeleteHorizons
from duralog.storage.compaction.gone_records import GoneRecord
from duralog.storage.compaction.preview import Explanation
from duralog.storage.compaction.report import CompactionReport


def explained_object(done: ExplainedPartition, now_ms: int) -> dict[str, Any]:
    if done.explanation is None:
        topic, partition = done.partition
        return {"kind": "partition", "topic": topic, "partition": partition, "failure": done.failure}
    return _explanation_object(done.explanation, done.config, now_ms)


def _explanation_object(explanation: Explanation, config: TopicConfig, now_ms: int) -> dict[str, Any]:
    dirty = explanation.dirty
    limit = dirty.first_uncleanable
    report = explanation.report
    return {
        "kind": "partition",
        "topic": explanation.topic,
        "partition": explanation.partition,
        "now": now_ms,
        "is_due": dirty.is_eligible,
        "reason": verdict(dirty),
        "start_offset": explanation.start_offset,
        "end_offset": explanation.end_offset,
        "last_stable_offset": explanation.last_stable_offset,
        "segments": explanation.segments,
        "bytes": explanation.size_bytes,
        "active_bytes": explanation.active_bytes,
        "checkpoint": explanation.checkpoint,
        "checkpoint_correction": dirty.correction,
        "first_dirty_offset": dirty.first_dirty_offset,
        "first_uncleanable_offset": limit.offset,
        "limit": limit.limit.value,
        "limit_reason": limit.reason(),
        "cleanable_from": limit.cleanable_from_ms,
        "open_transactions": [dataclasses.asdict(found) for found in explanation.open_transactions],
        "dirty_ratio": dirty.dirty_ratio,
        "min_dirty_ratio": dirty.min_dirty_ratio,
        "clean_bytes": dirty.clean_bytes,
        "cleanable_bytes": dirty.cleanable_bytes,
        "overdue_ms": dirty.overdue_ms,
        "would": None if report is None else _would(explanation, report),
        "delete_horizons": _horizons_object(explanation.horizons),
        "map": None if explanation.map is None else dataclasses.asdict(explanation.map),
        "records": [_record_object(record) for record in explanation.records],
        "damaged_batches": [] if report is None else report.corrupt_batches,
        "left_segments": [] if report is None else report.left_segments,
        "advice": list(advice(explanation, config)),
        "failure": None,
    }


def _would(explanation: Explanation, report: CompactionReport) -> dict[str, Any]:
    after = explanation.horizons_after
    return {
        "end_offset": report.end_offset,
        "records_before": report.records_before,
        "records_after": report.records_after,
        "superseded_records": report.superseded_records,
        "expired_tombstones": report.expired_tombstones,
        "keyless_records": report.keyless_records,
        "aborted_records": report.aborted_records,
        "spent_markers": explanation.spent_markers,
        "kept_tombstones": report.kept_tombstones,
        "bytes_before": report.bytes_before,
        "bytes_after": report.bytes_after,
        "freed_bytes": report.bytes_before - report.bytes_after,
        "segments_before": report.segments_before,
        "segments_after": report.segments_after,
        "groups": [dataclasses.asdict(group) for group in explanation.groups],
        "delete_horizons": None if after is None else _horizons_object(after),
    }


def _horizons_object(horizons: DeleteHorizons) -> dict[str, Any]:
    return {
        "batches": horizons.batches,
        "passed_batches": horizons.passed_batches,
        "earliest": horizons.earliest_ms,
        "latest": horizons.latest_ms,
        "times": [{"time": time_ms, "batches": horizons.by_time[time_ms]} for time_ms in sorted(horizons.by_time)],
    }


def _record_object(record: GoneRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "offset": record.offset,
        "reason": record.reason.value,
        "superseded_by": record.superseded_by,
    }
    if record.key is None:
        return {**fields, "key": None}
    try:
        return {**fields, "key": record.key.decode()}
    except UnicodeDecodeError:
        return {**fields, "key_base64": base64.b64encode(record.key).decode()}
