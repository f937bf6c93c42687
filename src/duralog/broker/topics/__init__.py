"""Topics and partitions of the node, and who leads them."""
