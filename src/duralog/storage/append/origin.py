"""Who appends to a log. It decides which rules apply to an append. Kafka has `AppendOrigin` for this, too."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    CLIENT = "client"
    """A producer. Its bytes are not trusted."""
    COORDINATOR = "coordinator"
    """The broker itself, as the coordinator of groups or transactions. It may write control batches."""
    CHECKED = "checked"
    """A client whose records passed the rules of the topic before. A later clock or a changed config must not refuse
    them now."""
    AS_IS = "as is"
    """A copy of another log: batches keep their offsets, leader epochs and producers."""
    RESTORED = "restored"
    """Restored records with their old offsets: as a copy, but a batch without a leader epoch gets that of the log."""
