"""What is in the logs of a directory that others may write to: looks, records, scans, searches. Nothing stays open."""
