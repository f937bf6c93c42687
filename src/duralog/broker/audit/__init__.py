"""The audit log: changes, failed changes, refusals and failed log-ins."""
