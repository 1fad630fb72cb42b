"""The zoo's mutants: sampling, stops, drift."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "one-random-stream",
        "Drafts and target draw the same random numbers.",
        "mlx-vlm#1188",
        "sampling::test_mlx_vlm_1188_a_draft_has_random_numbers_of_its_own",
        change("core.sampling.random", "DRAFT_STREAM = 1", "DRAFT_STREAM = 0"),
    ),
    zoo(
        "random-numbers-have-an-order",
        "Random numbers come from a shared generator, one after the other.",
        "mlx-vlm#1188",
        "sampling::test_mlx_vlm_1188_the_text_does_not_depend_on_a_drafts_draws",
        change(
            "core.sampling.random",
            "    return float((int(generator.random_raw()) >> 11) * 2.0**-53)",
            "    return float(np.random.random())",
        ),
    ),
    zoo(
        "nothing-accepted-when-sampling",
        "No candidate is considered unless the target is greedy.",
        "omlx#3370",
        "sampling::test_omlx_3370_drafts_are_accepted_when_the_target_samples",
        change(
            "engine",
            "        max_depth = min(remaining - 1, room)",
            (
                "        max_depth = min(remaining - 1, room) if "
                "request.sampler.params.is_greedy else 0"
            ),
        ),
    ),
    zoo(
        "first-draft-unverified",
        "The first candidate of a chain is accepted whatever the target says.",
        "lattice#243",
        "sampling::test_lattice_243_a_draft_of_one_token_is_verified",
        change(
            "core.acceptance",
            "        child = tree.child_with_token(path[-1], token)",
            (
                "        child = tree.child_with_token(path[-1], token)\n"
                "        if len(path) == 1 and len(tree) > 1:\n"
                "            child = 1"
            ),
        ),
    ),
    zoo(
        "two-forwards-per-step",
        "Each round verifies its tree twice.",
        "lucebox",
        "sampling::test_lucebox_one_forward_per_step_also_when_sampling",
        change(
            "verification",
            "        verified = self._verify(tree)\n",
            ("        self._verify(tree)\n        verified = self._verify(tree)\n"),
        ),
    ),
    zoo(
        "commit-past-the-text",
        "A stop inside an accepted path commits the whole path.",
        "fak#12422",
        "stops::test_fak_12422_what_was_emitted_is_what_is_committed",
        change(
            "verification",
            "            self._commit(cut(self._accepted, self._tree, count).path)",
            "            self._commit(self._accepted.path)",
        ),
    ),
    zoo(
        "state-ahead-of-the-position",
        "A stop inside an accepted path commits the whole path and counts what was emitted.",
        "lucebox",
        "stops::test_lucebox_the_state_is_never_ahead_of_the_position",
        change(
            "verification",
            "            self._commit(cut(self._accepted, self._tree, count).path)",
            (
                "            self._commit(self._accepted.path)\n"
                "            self.sequence.ledger.length -= len(self._accepted.path) - count"
            ),
        ),
    ),
    zoo(
        "position-advanced-twice",
        "A prefill after a round counts the accepted tokens once more.",
        "lucebox",
        "stops::test_lucebox_forced_closing_tokens_advance_the_position_once",
        change(
            "models.qwen35.target",
            ("        for sequence in sequences:\n            self.store.flush(sequence)\n"),
            (
                "        for sequence in sequences:\n"
                "            sequence.ledger.length += sequence.ledger.pending_count\n"
                "            self.store.flush(sequence)\n"
            ),
        ),
    ),
    zoo(
        "unusable-candidates-verified",
        "Candidates beyond the token limit are verified all the same.",
        "lucebox",
        "stops::test_lucebox_at_the_limit_no_choice_is_wasted_or_lost",
        change(
            "engine", "        max_depth = min(remaining - 1, room)", "        max_depth = room"
        ),
    ),
    zoo(
        "open-loop-factors",
        "Updates are computed from a state that was rounded to half precision.",
        "sglang#28695",
        "drift::test_sglang_28695_no_drift_over_many_rounds",
        change(
            "backends.numpy.gdn",
            ("        state = pool.state[slot, layer] if source < 0 else pool.boundary[source]"),
            (
                "        state = pool.state[slot, layer] if source < 0 else "
                "pool.boundary[source]\n"
                "        state = state.astype(np.float16).astype(np.float32)"
            ),
        ),
    ),
    zoo(
        "control-with-more-than-one-row",
        "The control, which has one row per step, has two.",
        "vllm-ddtree",
        "drift::test_vllm_ddtree_11_a_control_that_cannot_be_wrong",
        change(
            "verification",
            "            verified = self._verify(Tree.lone(tree.tokens[node]))",
            "            verified = self._verify(Tree.chain((tree.tokens[node],) * 2))",
        ),
    ),
)
