"""The audit log: who changed what, and who was refused."""
