"""Bytes to values and back, in plain Python: no files, no clock, no numpy. The reference for the kernels."""
