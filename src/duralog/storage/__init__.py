"""The files of a log."""
