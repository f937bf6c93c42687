"""`duralog produce` and `duralog consume`."""
