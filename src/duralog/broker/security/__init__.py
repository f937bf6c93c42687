"""Authentication: TLS, client certificates, and log-in by SASL. Authorization is separate."""
