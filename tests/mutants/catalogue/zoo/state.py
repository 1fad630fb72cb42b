"""The zoo's mutants: state and windows after acceptance, rejection, rollback."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "state-of-slot-0-without-drafts",
        "A step without drafts folds the first accepted factor only into the state.",
        "vllm#39273",
        "state::test_vllm_39273_a_step_without_drafts_after_an_acceptance",
        "state::test_vllm_40738_state_and_window_each_by_itself",
        change(
            "core.plan",
            "_int32([p.pending_state for p in places]).reshape",
            (
                "_int32(\n"
                "            [\n"
                "                [min(n, 1) for n in p.pending_state] if len(t) == 1 else "
                "p.pending_state\n"
                "                for t, p in zip(forest.trees, places)\n"
                "            ]\n"
                "        ).reshape"
            ),
        ),
    ),
    zoo(
        "window-of-slot-0-without-drafts",
        ("A step without drafts folds the first accepted input only into the convolution window."),
        "vllm#40738",
        "state::test_vllm_39273_a_step_without_drafts_after_an_acceptance",
        "state::test_vllm_40738_state_and_window_each_by_itself",
        change(
            "core.plan",
            "_int32([p.pending_window for p in places]).reshape",
            (
                "_int32(\n"
                "            [\n"
                "                [min(n, 1) for n in p.pending_window] if len(t) == 1 else "
                "p.pending_window\n"
                "                for t, p in zip(forest.trees, places)\n"
                "            ]\n"
                "        ).reshape"
            ),
        ),
    ),
    zoo(
        "gate-by-another-formula",
        "What the fold multiplies by is computed anew, by exp(log(decay)).",
        "sglang#33630",
        "state::test_sglang_33630_right_outputs_are_no_proof_of_the_state",
        change(
            "backends.numpy.gdn",
            "            pool.decay[factor] = decay[row]",
            "            pool.decay[factor] = np.exp(np.log(decay[row]))",
        ),
    ),
    zoo(
        "discard-leaves-the-state",
        "A discard gives the positions back, and what was verified stays in the state.",
        "llama.cpp#26695",
        "state::test_llama_cpp_26695_everything_of_the_last_decode_is_rejected",
        change(
            "models.store",
            "        sequence.ledger.discard()",
            (
                "        ledger = sequence.ledger\n"
                '        ledger.require("discard", Phase.VERIFIED)\n'
                "        path = ledger.tree.path_to(len(ledger.tree) - 1)\n"
                "        self.commit(sequence, path)\n"
                "        ledger.length -= len(path)"
            ),
        ),
        change(
            "models.store",
            "from specla.core.lifecycle import Ledger, LedgerState",
            "from specla.core.lifecycle import Ledger, LedgerState, Phase",
        ),
    ),
    zoo(
        "replay-without-the-past",
        "A replay runs from position 0, so that attention sees the kept tokens only.",
        "rMLX#436",
        "state::test_rmlx_436_a_replay_across_both_kinds_of_layers",
        change(
            "verification",
            (
                "        for start in range(0, len(tokens), chunk):\n"
                "            self.target.prefill([(self.sequence, tokens[start : start + "
                "chunk])])\n"
            ),
            (
                "        length, self.sequence.ledger.length = self.sequence.length, 0\n"
                "        for start in range(0, len(tokens), chunk):\n"
                "            self.target.prefill([(self.sequence, tokens[start : start + "
                "chunk])])\n"
                "        self.sequence.ledger.length += length\n"
            ),
        ),
    ),
    zoo(
        "replay-of-the-first-nodes",
        "A replay feeds the tree's first nodes and not those of the accepted path.",
        "TheTom/llama-cpp-turboquant#345",
        "state::test_turboquant_345_a_wrong_replay",
        change(
            "verification",
            "        tokens = [self._tree.tokens[node] for node in path]",
            "        tokens = [self._tree.tokens[node] for node in range(len(path))]",
        ),
    ),
    zoo(
        "check-believes-the-text",
        "The check compares text and logits, but not the state.",
        "TheTom/llama-cpp-turboquant#345",
        "state::test_turboquant_345_acceptance_is_no_evidence",
        change(
            "check",
            "    for name, array in plain_state.items():",
            "    for name, array in list(plain_state.items())[:0]:",
        ),
    ),
    zoo(
        "snapshot-without-recurrent-state",
        "Snapshots and forks don't hold the recurrent state.",
        "imp#1503",
        "state::test_imp_1503_a_snapshot_holds_every_layer",
        change(
            "models.store", "[(pool.state, slot), (pool.window, slot)]", "[(pool.window, slot)]"
        ),
    ),
    zoo(
        "draft-trimmed-not-restored",
        "A draft model guesses in its text's own state and takes back the position only.",
        "mlx-lm#1446",
        "state::test_mlx_lm_1446_a_hybrid_draft_model_is_rolled_back_too",
        change(
            "models.draft_target",
            "                guess = self._guess(fork, [guess.token])",
            (
                "                guess = self._guess(text.state, [guess.token])\n"
                "                text.state.ledger.length -= 1"
            ),
        ),
    ),
    zoo(
        "window-keeps-a-rejected-input",
        "The window takes in one input more than was accepted.",
        "vllm#50272",
        "windows::test_vllm_50272_a_window_keeps_no_rejected_input",
        change(
            "backends.numpy.conv",
            "pool.inputs[slot, bank, layer, :count]",
            "pool.inputs[slot, bank, layer, : count + 1]",
        ),
    ),
    zoo(
        "counts-of-drafted-rows-for-plain-ones",
        (
            "In a mixed batch the windows of plain rows fold as many inputs as those of "
            "drafted ones."
        ),
        "vllm#55504",
        "windows::test_vllm_55504_windows_of_a_mixed_batch_with_counts_of_one",
        change(
            "core.plan",
            "_int32([p.pending_window for p in places]).reshape",
            (
                "_int32(\n"
                "            [\n"
                "                p.pending_window if len(t) > 1 else max(q.pending_window "
                "for q in places)\n"
                "                for t, p in zip(forest.trees, places)\n"
                "            ]\n"
                "        ).reshape"
            ),
        ),
    ),
)
