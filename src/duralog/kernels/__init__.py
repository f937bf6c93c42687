"""The hot loops, compiled by numba. Importing a module of this package loads numba; nothing else does.

Kernels may take more than seven parameters: numba compiles plain arrays and numbers, and a value that holds them would
be unpacked on every call.
"""
