"""`duralog doctor`."""
