"""Run the PTX that Triton compiles, on NumPy: compiled code is tested without a GPU.

All threads of a launch advance together, one NumPy operation per instruction (``machine.py``).

Modelled: registers of 8 to 64 bits, integer and logical instructions, float32, float16 and
bfloat16 arithmetic rounded to nearest even (fused multiply-adds exactly, ``fma.py``), minimum and
maximum with PTX's rules for NaN and signed zeros, conversions, global and shared memory,
``cp.async``, shuffles, votes and warp reductions, ``ldmatrix`` and ``stmatrix``, integer
``mma.sync`` and ``wgmma``, integer atomics, and control flow in which threads part and meet again.
Every access is checked: inside an allocation, and aligned as the hardware wants it. Shared memory
starts as NaN. NaN results are the GPU's own NaN.

Not modelled: time, caches, and races. Threads run in lockstep, barriers only check that all threads
of a block arrive together, and ``cp.async`` and ``wgmma`` act at once: a missing barrier or wait is
NOT found. Blocks of one launch run side by side in chunks; a kernel that waits for another block
never ends. Float atomics, float ``mma`` and ``wgmma``, ``tcgen05`` and approximate instructions are
refused. An unknown instruction is refused by name.
"""
