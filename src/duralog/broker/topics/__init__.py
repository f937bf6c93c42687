"""Topics and partitions of the node, and their leaders."""
