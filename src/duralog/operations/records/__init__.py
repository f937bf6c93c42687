"""Records for people: decoded and encoded by schemas, and appended to a directory."""
