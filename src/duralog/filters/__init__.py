"""Conditions on key, value, headers and JSON of records: parsed from text, represented as values, applied to Arrow
batches.
"""
