"""Talking to a broker that somebody else runs, through `confluent-kafka`."""
