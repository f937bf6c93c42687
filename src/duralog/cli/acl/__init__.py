"""`duralog acl`: the access control lists of a broker, or of a directory that no broker holds."""
