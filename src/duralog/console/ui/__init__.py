"""The elements that the console's pages are made of."""
