"""Records and offsets: Produce, Fetch and what looks into logs."""
