"""How kernels become machine code: when the wheel is built, or by numba on the user's machine.

| module | |
|---|---|
| `machine_code` | loads the code that came with the package |
| `just_in_time` | compiles a kernel at its first use, and keeps it in the disk cache, where that code does not fit |
| `numba_names` | what kernels take from numba; it is not imported where they are compiled already |
| `cpu`, `levels` | what the code in use was compiled for, and what it can be compiled for |
| `catalog`, `sources` | all kernels, and the digest of what they are compiled from |
| `objects`, `wrappers`, `building` | make the extension module: `python -m duralog.kernels.compilation` |

When a wheel is built, numba compiles as it would on a user's machine, with the same options. Kernels allocate nothing
and raise nothing, so their code needs nothing of numba at run time. Python's stable ABI makes one module do for every
Python from 3.11 on. That takes numba, a C compiler and Python's headers.
"""
