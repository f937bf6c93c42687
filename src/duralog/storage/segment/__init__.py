"""One segment: its log file, its indexes, and how a place in it is found and read."""
