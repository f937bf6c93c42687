"""Log-in by SASL, and the SCRAM credentials of users."""
