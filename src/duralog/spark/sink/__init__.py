"""Writes: rows become segments that the driver commits once, or go through a broker in one transaction."""
