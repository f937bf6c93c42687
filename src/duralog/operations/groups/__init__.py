"""Consumer groups of a directory, and plans that reset their offsets, of a directory or of a broker."""
