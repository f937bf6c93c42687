"""The audit log: changes, refusals and failed log-ins."""
