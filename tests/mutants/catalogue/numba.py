"""Mutants of the compiled CPU backend: its kernels, its recorded steps, its threads.

Those in compiled modules compile what the named test needs anew, which takes seconds.
"""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

NUMBA = "specla.backends.numba"
STEPS = "tests/backends/test_numba_steps.py"

MUTANTS = (
    Mutant(
        name="recorded-step-keeps-its-first-plan",
        wrong="A recorded step is walked with the array sizes that it was recorded with.",
        after="vllm-ddtree",
        changes=(
            Change(
                f"{NUMBA}.program",
                "            descriptor[:] = describe(array)\n",
                "            descriptor[0] = describe(array)[0]\n",
            ),
        ),
        caught_by=(
            Fuzz("kernels", "numba"),
            Named(f"{STEPS}::test_recorded_steps_are_the_single_calls[features0-32-1]"),
        ),
    ),
    Mutant(
        name="progress-of-the-step-before",
        wrong="An interrupt before a step is answered with how far the last one came.",
        changes=(
            Change(
                f"{NUMBA}.steps",
                "        program.reset()\n        self._current = program\n",
                "        self._current = program\n",
            ),
        ),
        caught_by=(Named(f"{STEPS}::test_interrupts_around_a_step"),),
    ),
    Mutant(
        name="programs-told-apart-by-rows-only",
        wrong="Two sequences of two rows run the program that was recorded for one of four.",
        changes=(
            Change(
                f"{NUMBA}.steps",
                "        key = (key, plan.n_rows, plan.n_sequences)",
                "        key = (key, plan.n_rows)",
            ),
        ),
        caught_by=(Named("tests/backends/test_numba_steps.py::test_commits_of_equally_many_rows"),),
    ),
    Mutant(
        name="last-unit-skipped",
        wrong="Of a kernel with several units the last one is never run.",
        changes=(
            Change(
                f"{NUMBA}.program",
                "            (kernel.address, base + 8 * start, units, int(share and units > 1))",
                "            (kernel.address, base + 8 * start, max(units - 1, 1), int(share and units > 1))",
            ),
        ),
        caught_by=(
            Fuzz("kernels", "numba"),
            Named("tests/backends/test_numba_copies.py::test_feature_write"),
        ),
    ),
    Mutant(
        name="window-looked-up-one-step-too-far",
        wrong="After an ancestor the compiled convolution reads the window by depth.",
        after="vllm#40738",
        changes=(Change(f"{NUMBA}.conv", "        older += at < 0\n", "        older += 1\n"),),
        caught_by=(Named("tests/backends/test_numba_recurrence.py::test_prefill"),),
    ),
    Mutant(
        name="compiled-gather-forgets-the-decays",
        wrong="The compiled gather copies keys, deltas and inputs only.",
        after="vllm#51812",
        changes=(
            Change(
                f"{NUMBA}.copies",
                "                _copy(decay[s, 1 - source, layer, i], decay[s, source, layer, node])\n",
                "",
            ),
        ),
        caught_by=(Named("tests/backends/test_numba_copies.py::test_gather"),),
    ),
    Mutant(
        name="compiled-attention-takes-a-tree-for-a-chain",
        wrong="The compiled attention finds a node's ancestors in the rows before it.",
        after="sglang#27463",
        changes=(
            Change(
                f"{NUMBA}.attention_blocks",
                "        row = position if position < committed else paths[path + position - committed]\n",
                "        row = position\n",
            ),
        ),
        caught_by=(Named("tests/backends/test_numba_attention.py::test_attention"),),
    ),
    Mutant(
        name="keys-recorded-by-the-first-head-only",
        wrong="The compiled walk records the key of the first key head only.",
        changes=(
            Change(f"{NUMBA}.gdn_walk", "    if head < k.shape[1]:\n", "    if head == 0:\n"),
        ),
        caught_by=(Named("tests/backends/test_numba_recurrence.py::test_verify"),),
    ),
    Mutant(
        name="compiled-argmax-takes-the-last-chunk",
        wrong="Of equal logits in two chunks the compiled argmax takes the later one.",
        after="vllm#42960",
        changes=(
            Change(
                f"{NUMBA}.choices", "            if top > best:\n", "            if top >= best:\n"
            ),
        ),
        caught_by=(Named("tests/backends/test_numba_elementwise.py::test_choices"),),
    ),
)
