"""The lowest layer of the store: one interface to the file system, locks on directories, background threads."""
