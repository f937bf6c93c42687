"""`duralog config`: the configs of a broker, or of a directory that no broker holds."""
