"""Facts from a running broker."""
