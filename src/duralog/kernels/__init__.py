"""The hot loops, compiled by numba: when the wheel was built, or on this machine (`duralog.kernels.compilation`).

Importing a module of this package loads numpy, and numba only where it has to compile; nothing else does.

Kernels may take more than seven parameters: numba compiles plain arrays and numbers, and a value that holds them would
be unpacked on every call.
"""
