"""The changes that the console can make, each with the equivalent command. Only `changer` opens anything."""
