"""Kernels of the GPU backend in Triton's interpreter, against the NumPy reference, byte for byte.

    TRITON_INTERPRET=1 python -m pytest -n 2 -m triton tests/interpreted

The variable counts when triton is imported: compiled code (tests/ptx) has runs of its own.
"""
