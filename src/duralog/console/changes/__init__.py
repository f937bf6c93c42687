"""What the console can change, each change with the command that does the same. Only `changer` opens anything."""
