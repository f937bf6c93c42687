"""The log directories of a cluster as one table: which copy of a partition counts, and what the others have."""
