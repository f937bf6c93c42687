"""What the console knows of a directory."""
