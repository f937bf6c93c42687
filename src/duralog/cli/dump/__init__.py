"""`duralog dump`."""
