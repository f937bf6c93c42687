"""A new home for topics: chosen topics of a cluster's directories, in one new directory."""
