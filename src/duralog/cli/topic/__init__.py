"""`duralog topic`."""
