"""The part of a log that cleaners have been at: which copies are whole, and what the others can take from them."""
