"""How stores, logs and reports look in a notebook."""
