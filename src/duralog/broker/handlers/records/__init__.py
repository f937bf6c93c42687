"""Records and offsets: Produce, Fetch and other requests that read logs."""
