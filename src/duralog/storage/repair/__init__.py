"""Changes of a directory on request: repair, restore from quarantine, upgrade of old record formats."""
