"""The reference backend: every kernel in plain NumPy, written to be read.

This is the number contract (docs/arithmetic.md) in code. Floats whose bits count are added only by
``halving_tree`` and ``segmented_sum``, never by ``np.sum``, ``np.dot`` or ``@``, whose order is not
specified; elementary functions come from ``specla.core.elementary``.
"""
