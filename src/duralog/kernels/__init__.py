"""The hot loops, compiled by numba. Importing a module of this package loads numba; nothing else does."""
