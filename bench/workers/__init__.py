"""The programs that are measured: each does its job a few times over and prints what every pass took."""
