"""Counts and distributions of the records of a directory, collected by threads or by Spark."""
