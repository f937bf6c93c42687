"""`duralog bench`."""
