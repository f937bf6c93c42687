"""Which records are wanted: conditions on key, value, headers and JSON in them, as text, as values, and over Arrow."""
