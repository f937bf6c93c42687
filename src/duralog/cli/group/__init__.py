"""`duralog group`."""
