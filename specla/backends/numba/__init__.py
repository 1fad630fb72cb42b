"""The CPU backend: the kernels of the NumPy reference, compiled by Numba, with the same bytes.

Nothing here is imported before a backend of this kind is asked for.
"""
