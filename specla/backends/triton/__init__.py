"""The GPU backend: Triton kernels on torch tensors, for CUDA and HIP; the reference's bytes.

Importing anything below here imports torch and triton, but for `packages`, `packing`, `sizes`
and `code_folder`.
"""
