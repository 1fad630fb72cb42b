"""Mutants of the ledger: phases, epochs, what is pending."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

LEDGER = "specla.core.lifecycle"
TESTS = "tests/core/test_lifecycle.py"
FAILURES = "tests/lifecycle/test_failures.py"

MUTANTS = (
    Mutant(
        name="pending-folded-twice-after-a-retry",
        wrong="A layer that has folded isn't remembered, so a retry folds it again.",
        after="lucebox, by reading",
        changes=(
            Change(
                LEDGER,
                "            # inside: an interrupt before this line leaves the sequence BROKEN, never wrong\n"
                "            epochs[layer] = self._epoch\n",
                "",
            ),
        ),
        caught_by=(Named(f"{FAILURES}::test_a_failure_at_each_kernel[numpy-verify-before]"),),
    ),
    Mutant(
        name="pending-lost-after-a-retry",
        wrong="What is pending counts as folded when a verify begins, even if it fails.",
        after="lucebox, by reading",
        changes=(
            Change(
                LEDGER,
                '        self.require_open("verify")\n        self.tree = None\n',
                '        self.require_open("verify")\n'
                "        self.banks, self.tree = Banks(self.banks.pending_bank, 0), None\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_each_layer_folds_exactly_once"),),
    ),
    Mutant(
        name="epoch-not-raised-at-commit",
        wrong="Accepted factors look as if every layer had folded them.",
        changes=(Change(LEDGER, "        self._epoch += 1\n", ""),),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_lengths_and_banks")),
    ),
    Mutant(
        name="window-epoch-confused-with-state-epoch",
        wrong="A pass that dies between a layer's window and its state folds the window twice.",
        changes=(
            Change(
                LEDGER,
                "            pending_window=tuple(count if e < self._epoch else 0 for e in self._window_epochs),",
                "            pending_window=tuple(count if e < self._epoch else 0 for e in self._state_epochs),",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_a_failure_where_nothing_is_written_costs_nothing"),),
    ),
    Mutant(
        name="stale-pending-count-after-restore",
        wrong="A restore brings the bank back, but keeps the count of the state that it replaces.",
        after="sglang#19415",
        changes=(
            Change(
                LEDGER,
                "        self.banks = state.banks\n",
                "        self.banks = Banks(state.banks.pending_bank, self.banks.pending_count)\n",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{FAILURES}::test_a_failure_at_each_kernel[numpy-verify-wreck]"),
        ),
    ),
    Mutant(
        name="pending-lost-by-restore",
        wrong="After a restore the recurrent states count as folded, though factors are pending.",
        after="imp#1503",
        changes=(
            Change(
                LEDGER,
                "        self._state_epochs = list(state.state_epochs)\n",
                "        self._state_epochs = [state.epoch] * self._n_layers\n",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_each_layer_folds_exactly_once")),
    ),
    Mutant(
        name="discard-that-commits",
        wrong="Dropping a verify keeps its root in the state.",
        after="llama.cpp#26695",
        changes=(
            Change(
                LEDGER,
                '        self.require("discard", Phase.VERIFIED)\n        self.tree = None\n',
                '        self.require("discard", Phase.VERIFIED)\n'
                "        self.end_commit(self.plan_commit((0,)))\n",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_table[discard-Phase.VERIFIED]")),
    ),
    Mutant(
        name="tree-outlives-the-verify-that-overwrote-it",
        wrong="After a second verify that failed, the first one's nodes can still be committed.",
        changes=(
            Change(
                LEDGER,
                '        self.require_open("verify")\n        self.tree = None\n',
                '        self.require_open("verify")\n',
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_verify_again_folds_nothing_and_takes_the_new_tree"),),
    ),
    Mutant(
        name="freed-slot-still-written",
        wrong="A closed sequence can go on, in a slot that may be another's by then.",
        after="sglang#29449",
        changes=(
            Change(
                LEDGER,
                "OPEN_PHASES = (Phase.EMPTY, Phase.CLEAN, Phase.PENDING, Phase.VERIFIED)",
                "OPEN_PHASES = (Phase.EMPTY, Phase.CLEAN, Phase.PENDING, Phase.VERIFIED, Phase.CLOSED)",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(
                "tests/models/test_store.py::test_a_closed_sequence_is_refused_everywhere[numpy]"
            ),
        ),
    ),
    Mutant(
        name="position-advanced-twice",
        wrong="A flush moves the position on once more, as if the tokens were replayed.",
        after="lucebox, by reading",
        changes=(
            Change(
                LEDGER,
                '        """Every layer has folded."""\n',
                '        """Every layer has folded."""\n        self.length += self.banks.pending_count\n',
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{FAILURES}::test_a_failure_at_each_kernel[numpy-flush-before]"),
        ),
    ),
    Mutant(
        name="broken-counts-as-pending",
        wrong="A fold that died in mid-write is tried again on top of what it left.",
        after="lucebox#606",
        changes=(
            Change(
                LEDGER,
                '        with self.writing(f"{what} (layer {layer})"):\n            yield\n',
                "        if True:\n            yield\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_a_failure_inside_a_durable_write_breaks"),),
    ),
)
