"""Mutants of the sampler and of ties."""

from __future__ import annotations

from mutants.mutant import Change, Mutant, Named

SAMPLER = "specla.core.sampling.sampler"
TESTS = "tests/core/sampling/test_sampler.py"

MUTANTS = (
    Mutant(
        name="argmax-ties-by-place-in-memory",
        wrong="Of equal logits the last one wins in the kernel, the first one on the host.",
        after="vllm#42960",
        changes=(
            Change(
                "specla.backends.numpy.choices",
                "    best = np.argmax(clean, axis=-1)\n",
                "    best = clean.shape[-1] - 1 - np.argmax(clean[:, ::-1], axis=-1)\n",
            ),
        ),
        caught_by=(Named("tests/backends/test_numpy_elementwise.py::test_argmax"),),
    ),
    Mutant(
        name="top-k-ties-by-place-in-memory",
        wrong="Which of equal logits come into the top k depends on the partition.",
        after="vllm#42960",
        changes=(
            Change(
                "specla.core.sampling.ranking",
                "        keep = np.flatnonzero(values >= threshold)",
                "        keep = np.argpartition(values, values.size - k)[values.size - k :]",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_large_row_with_many_ties"),),
    ),
    Mutant(
        name="unstable-top-k-kernel",
        wrong="The kernel's top k orders equal logits by falling ids.",
        after="vllm#42960",
        changes=(
            Change(
                "specla.backends.numpy.choices",
                '    order = np.argsort(-clean, axis=-1, kind="stable")[:, :k]',
                '    order = np.argsort(clean, axis=-1, kind="stable")[:, ::-1][:, :k]',
            ),
        ),
        caught_by=(Named("tests/backends/test_numpy_elementwise.py::test_top_k"),),
    ),
    Mutant(
        name="draft-and-target-share-a-random-stream",
        wrong="A draft that samples reads the numbers that decide the text.",
        after="mlx-vlm#1188",
        changes=(
            Change(
                "specla.core.sampling.random",
                "DRAFT_STREAM = 1\n",
                "DRAFT_STREAM = TARGET_STREAM\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_streams_are_independent"),),
    ),
    Mutant(
        name="random-numbers-by-calls",
        wrong="Random numbers are counted, so choices that a stop dropped use some up.",
        after="mlx-vlm#1188",
        changes=(
            Change(
                SAMPLER,
                "        number = uniform(self.params.seed, position, self.stream)",
                '        self.calls = getattr(self, "calls", -1) + 1\n'
                "        number = uniform(self.params.seed, self.calls, self.stream)",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_evaluation_order_does_not_matter"),),
    ),
    Mutant(
        name="random-position-off-by-one",
        wrong="Choices from the whole row use the random number of the position before.",
        changes=(
            Change(
                SAMPLER,
                "        values, ids = rank(row, self.params.top_k)\n        return self._draw(values, ids, position)",
                "        values, ids = rank(row, self.params.top_k)\n"
                "        return self._draw(values, ids, max(position - 1, 0))",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_golden_choices"),),
    ),
    Mutant(
        name="penalty-window-from-the-beginning",
        wrong="A penalty's window is taken at the beginning of the text.",
        changes=(
            Change(
                "specla.core.sampling.processors",
                "history[-window:] if window",
                "history[:window] if window",
            ),
        ),
        caught_by=(
            Named("tests/core/sampling/test_processors.py::test_window_sees_the_last_tokens_only"),
        ),
    ),
    Mutant(
        name="parameters-silently-ignored",
        wrong="With penalties set, greedy choices still come from the kernel's argmax.",
        after="lucebox#105",
        changes=(
            Change(
                SAMPLER,
                "        if self.needs_full_logits:\n            return None\n        return 1",
                "        if self.needs_full_logits and not self.params.is_greedy:\n"
                "            return None\n        return 1",
            ),
        ),
        caught_by=(
            Named(
                "tests/engine/test_engine.py::test_what_depends_on_history_or_position_is_plain_decodings[numpy-repetition]"
            ),
        ),
    ),
)
