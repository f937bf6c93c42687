"""`duralog cluster`: the log directories of several nodes together."""
