"""Turns facts into pictures and texts. Nothing here depends on browsers or files."""
