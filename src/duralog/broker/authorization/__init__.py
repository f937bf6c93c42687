"""Authorization: access control entries, the rules of each API, and the gate in front of the handlers."""
