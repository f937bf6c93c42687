"""Validation of batches before they are written, and the state of their producers."""
