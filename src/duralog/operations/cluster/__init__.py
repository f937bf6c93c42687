"""The log directories of a cluster: explain which copy counts, compare the copies, heal them."""
