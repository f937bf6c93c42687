"""What must be true of a batch before it is written, and what is known of the producers that send them."""
