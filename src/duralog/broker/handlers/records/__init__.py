"""Records, offsets and producers of logs: Produce, Fetch, ListOffsets, DeleteRecords, and others."""
