"""Converts records to and from Arrow tables, without a Python object per record."""
