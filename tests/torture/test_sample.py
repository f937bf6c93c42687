"""A sample of `make torture`: system calls that fail, mutated frames and requests, and kills for a few seconds."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.torture.campaign import Campaign
from tests.torture.interposer import is_available
from tests.torture.rounds import Stage, guarded_frames, http_requests, mutated_frames

FAILING = {"write": 0.02, "short write": 0.1, "read": 0.02}
"""Calls after which a broker works without a restart. A flush that cannot open its file needs one."""


def some_failing_calls(stage: Stage) -> None:
    if stage.interposer is not None:
        stage.interposer.fail(errno.EIO, FAILING)
        stage.wait(1, 1)


def some_guarded_frames(stage: Stage) -> None:
    guarded_frames(stage, most=20)


def some_http_requests(stage: Stage) -> None:
    http_requests(stage, most=20)


@pytest.mark.slow
def test_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    rounds = (some_failing_calls, mutated_frames, some_guarded_frames, some_http_requests)
    report = Campaign(tmp_path, seed=7).run(1, rounds)
    assert report.is_clean, "\n".join(report.lines())
    assert report.acknowledged > 0
    # The broker lived until the last kill, and the kill ended it.
    assert report.counts["kills"] == 1
    assert "ends of the broker by itself" not in report.counts
    assert report.counts["mutated frames"] > 0
    for when in ("before a log-in", "in the middle of a log-in", "after a log-in"):
        assert report.counts[f"mutated frames {when}"] == 20
    for where in ("the registry", "/metrics"):
        assert report.counts[f"mutated requests to {where}"] == 20
    assert bool(report.failed_calls) == is_available()
