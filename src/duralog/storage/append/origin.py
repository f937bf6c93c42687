"""Who appends to a log. It decides which rules an append has to keep."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    CLIENT = "client"
    """A producer. Nothing of what it sends is trusted."""
    COORDINATOR = "coordinator"
    """The broker itself, as the coordinator of groups or transactions. It may write control batches."""
    CHECKED = "checked"
    """A client whose records were checked by the topic's rules when the append was decided: a clock that has gone on
    since, or a config that was changed, does not undo the decision."""
    AS_IS = "as is"
    """A copy of another log: batches keep their offsets, leader epochs and producers, whatever they are."""
    RESTORED = "restored"
    """Records brought back with the offsets that they had: as a copy, but a batch without a leader epoch is written in
    the log's own."""
