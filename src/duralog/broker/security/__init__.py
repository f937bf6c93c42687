"""Who a client is: TLS, client certificates, and log-in by SASL. What a client may do is decided elsewhere."""
