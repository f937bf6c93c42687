"""A stall is explained by what was done before and during it, and by the calls that clients were in."""

from __future__ import annotations

import pytest

from tests.torture import clients, journal
from tests.torture.clients import Progress
from tests.torture.journal import Journal


def test_the_longest_stall_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    for module in (clients, journal):
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
    written, progress = Journal(), Progress()
    events = [
        (1.0, lambda: written.note("round: kills")),
        (2.0, lambda: progress.acknowledge("single")),
        (2.5, lambda: progress.call("lister", "commit_transaction")),
        (3.0, lambda: written.note("the broker is killed")),
        (6.5, lambda: written.note("it is ready")),
        (7.0, lambda: progress.acknowledge("lister")),
        (8.0, lambda: written.note("round: pauses")),
        (9.0, lambda: progress.acknowledge("single")),
    ]
    for at, event in events:
        now = at
        event()
    assert progress.longest_stall.seconds == 5
    assert written.explained(progress.longest_stall) == [
        "it began 2.0 s after the start, lister ended it",
        "  -1.0 s: round: kills",
        "  +1.0 s: the broker is killed",
        "  +4.5 s: it is ready",
        "  lister was in commit_transaction, for 4.5 s",
    ]
