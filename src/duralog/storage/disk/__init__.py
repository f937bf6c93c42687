"""The floor of the store: the file system behind one interface, locks on directories, worker threads."""
