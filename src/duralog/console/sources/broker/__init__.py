"""What the console knows of a running broker."""
