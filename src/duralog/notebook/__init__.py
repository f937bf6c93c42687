"""The HTML views of stores, logs and reports in notebooks."""
