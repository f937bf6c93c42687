"""A sample of `make torture`: system calls that fail, kills and mutated frames for a few seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.campaign import Campaign
from tests.torture.rounds import failing_calls, mutated_frames


@pytest.mark.slow
def test_what_was_acknowledged_is_there(tmp_path: Path) -> None:
    report = Campaign(tmp_path, seed=7).run(8, (failing_calls, mutated_frames))
    assert report.is_clean, "\n".join(report.lines())
    assert report.acknowledged > 0
    assert report.counts["kills"] > 0
