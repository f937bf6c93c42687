"""`duralog compact`."""
