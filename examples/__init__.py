"""Runnable examples: `python -m examples.NAME` from the root of the project. docs/uses.md explains them."""
