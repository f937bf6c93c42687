"""What `verify` checks, from one file to a whole directory. Nothing here writes."""
