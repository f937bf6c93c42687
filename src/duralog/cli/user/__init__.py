"""`duralog user`: users that log in by SCRAM."""
