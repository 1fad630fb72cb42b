"""Mutants of banks, schedules, plans and the recurrence."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

MUTANTS = (
    Mutant(
        name="state-of-slot-0-after-acceptance",
        wrong="After acceptance the fold reads the bank's first factor only.",
        after="vllm#39273",
        changes=(
            Change(
                "specla.backends.numpy.gdn",
                "        for i in range(count):\n            factor = (slot, bank, layer, i)",
                "        for i in range(count):\n            factor = (slot, bank, layer, 0)",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named("tests/backends/test_numpy_recurrence.py"),
        ),
    ),
)
