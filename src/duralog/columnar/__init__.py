"""Records as Arrow tables, and back, with no Python object for a record."""
