"""One partition: an immutable tuple of segments for readers, one writer, rolling, trimming and retention."""
