"""Mutants of slots, pages, snapshots and forks."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

STORE = "specla.models.store"
PAGES = "specla.models.pages"
TESTS = "tests/models/test_store.py"

MUTANTS = (
    Mutant(
        name="recycled-slot-not-cleared",
        wrong="A new sequence starts with the convolution windows of the one before.",
        after="imp#1503",
        changes=(Change(STORE, "        self.backend.clear(self.recurrent.window, slot)\n", ""),),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{TESTS}::test_state_arrays_of_an_empty_sequence[numpy]"),
        ),
    ),
    Mutant(
        name="slot-given-twice",
        wrong="Opening takes the last free slot and crosses the first one off the list.",
        after="sglang#28484",
        changes=(
            Change(STORE, "        self._free_slots.pop()\n", "        self._free_slots.pop(0)\n"),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_slots_run_out_and_come_back[numpy]")),
    ),
    Mutant(
        name="commit-that-died-can-be-repeated",
        wrong="A commit whose copies died half-way leaves the sequence as if nothing had happened.",
        after="lucebox, by reading",
        changes=(
            Change(
                STORE,
                '                stack.enter_context(sequence.ledger.writing("a commit"))',
                '                sequence.ledger.require_open("commit")',
            ),
        ),
        caught_by=(
            Named("tests/lifecycle/test_failures.py::test_an_interrupt_at_any_line[numpy-commit]"),
        ),
    ),
    Mutant(
        name="snapshot-misses-the-decays",
        wrong="Copies of a sequence hold pending keys, deltas and inputs, but not the decays.",
        after="vllm#54928",
        changes=(
            Change(
                STORE,
                "for a in (pool.key, pool.delta, pool.decay, pool.inputs)]",
                "for a in (pool.key, pool.delta, pool.inputs)]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_snapshots_survive_everything[numpy]")),
    ),
    Mutant(
        name="fork-copies-the-wrong-bank",
        wrong="Copies of a sequence hold the first bank, whichever of the two is pending.",
        after="llama.cpp#20075",
        changes=(
            Change(
                STORE,
                "            index = (slot, bank, slice(None), slice(count))",
                "            index = (slot, 0 * bank, slice(None), slice(count))",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{TESTS}::test_copies_carry_what_is_pending[numpy-path0]"),
        ),
    ),
    Mutant(
        name="fork-shares-a-bank",
        wrong="A fork's pending factors stay in the slot of the sequence that it was made from.",
        after="llama.cpp#20075",
        changes=(
            Change(
                STORE,
                "                self.backend.copy(target, target_index, source, source_index)",
                "                if not isinstance(target_index, tuple) or len(target_index) < 4:\n"
                "                    self.backend.copy(target, target_index, source, source_index)",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{TESTS}::test_copies_carry_what_is_pending[numpy-path0]"),
        ),
    ),
    Mutant(
        name="snapshot-holds-no-pages",
        wrong="Pages of a snapshot can be given to others while it is kept.",
        changes=(
            Change(
                STORE,
                "        self.pages.pool.share(pages)\n        return Snapshot(state, pages, arrays)",
                "        return Snapshot(state, pages, arrays)",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_snapshots_survive_everything[numpy]")),
    ),
    Mutant(
        name="features-of-rejected-rows",
        wrong="A commit moves keys and values onto the spine, but not the captured features.",
        changes=(
            Change(
                STORE,
                "                self.backend.feature_move(self.features, plan)",
                "                pass",
            ),
        ),
        caught_by=(
            Fuzz("engine"),
            Named("tests/engine/test_engine.py::test_features_follow_the_accepted_path"),
        ),
    ),
    Mutant(
        name="features-not-copied",
        wrong="A fork or a restored sequence has the features of whoever had the slot before.",
        changes=(
            Change(
                STORE,
                "        if self.features is not None and state.length:\n",
                "        if self.features is not None and not state.length:\n",
            ),
        ),
        caught_by=(
            Fuzz("engine"),
            Named(f"{TESTS}::test_features_are_copied_with_a_sequence[numpy]"),
        ),
    ),
    Mutant(
        name="page-shared-without-copy-on-write",
        wrong="The page that is still being written isn't copied before a fork writes to it.",
        changes=(
            Change(
                PAGES,
                "        in_reach = range(first // PAGE, min(len(pages), pages_for(last)))",
                "        in_reach = range(pages_for(first), min(len(pages), pages_for(last)))",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{TESTS}::test_a_fork_shares_full_pages_and_copies_the_last[numpy-1]"),
        ),
    ),
    Mutant(
        name="copy-on-write-of-keys-only",
        wrong="A page that is copied before it is written loses its values.",
        changes=(
            Change(
                PAGES,
                "        for cache in (self.kv.key, self.kv.value):\n",
                "        for cache in (self.kv.key,):\n",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named(f"{TESTS}::test_a_fork_shares_full_pages_and_copies_the_last[numpy-1]"),
        ),
    ),
    Mutant(
        name="page-table-not-uploaded-again",
        wrong="After a restore the device still knows the pages of the state that was replaced.",
        after="vllm-ddtree",
        changes=(
            Change(
                PAGES,
                "        before = sequence.pages\n        sequence.table_stale = True\n",
                "        before = sequence.pages\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_a_restore_tells_the_device_its_pages[numpy]"),),
    ),
    Mutant(
        name="room-for-the-path-only",
        wrong="Pages are reserved for the depth of a tree, not for all of its rows.",
        after="vllm#41233",
        changes=(
            Change(
                "specla.models.qwen35.target",
                "        for sequence, tree in items:\n            self.store.pages.reserve(sequence, len(tree))\n",
                "        for sequence, tree in items:\n"
                "            self.store.pages.reserve(sequence, max(tree.depths) + 1)\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_a_wide_tree_reaches_into_the_next_page[numpy]"),),
    ),
)
