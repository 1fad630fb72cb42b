"""Mutants of the decode loop, of verification and of acceptance."""

from __future__ import annotations

from mutants.mutant import Change, Mutant, Named

ENGINE = "specla.engine"
CHOOSING = "specla.choosing"
VERIFICATION = "specla.verification"
ACCEPTANCE = "specla.core.acceptance"
TESTS = "tests/engine/test_engine.py"

MUTANTS = (
    Mutant(
        name="stop-commits-past-the-emitted-text",
        wrong="A stop inside an accepted run commits the whole run.",
        after="fak#12422",
        changes=(
            Change(
                VERIFICATION,
                "            self._commit(cut(self._accepted, self._tree, count).path)",
                "            self._commit(self._accepted.path)",
            ),
        ),
        caught_by=(
            Named(
                f"{TESTS}::test_a_stop_inside_an_accepted_run_leaves_plain_decodings_state"
                "[numpy-stop id-3-0-greedy]"
            ),
        ),
    ),
    Mutant(
        name="stop-token-committed",
        wrong="After a stop the last emitted token is in the state, though it is the next root.",
        after="lucebox, by reading",
        changes=(
            Change(
                ACCEPTANCE,
                "    return Acceptance(path[:n_emit], ",
                "    return Acceptance(path[: n_emit + 1], ",
            ),
        ),
        caught_by=(Named("tests/core/test_acceptance.py::test_cut_hand_worked"),),
    ),
    Mutant(
        name="one-token-proposal-accepted-unverified",
        wrong="The only candidate of a proposal is accepted whatever the target says.",
        after="lattice#243",
        changes=(
            Change(
                ACCEPTANCE,
                "        child = tree.child_with_token(path[-1], token)\n",
                "        alone = len(tree) == 2 and len(path) == 1\n"
                "        child = 1 if alone else tree.child_with_token(path[-1], token)\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_a_wrong_guess_of_one_token_is_not_accepted[numpy]"),),
    ),
    Mutant(
        name="first-candidate-accepted-by-default",
        wrong="Where no child carries the target's token, the first one is accepted.",
        after="lattice#243",
        changes=(
            Change(
                ACCEPTANCE,
                "        if child is None:\n",
                "        if child is None and tree.children[path[-1]] and len(tree) > 6:\n"
                "            child = tree.children[path[-1]][0]\n"
                "        if child is None:\n",
            ),
        ),
        caught_by=(
            Named(
                "tests/core/test_acceptance.py::test_any_tree_and_any_cut_give_the_sequential_tokens"
            ),
        ),
    ),
    Mutant(
        name="penalties-counted-over-candidates",
        wrong="The sampler's history holds rejected candidates, too.",
        changes=(
            Change(
                ACCEPTANCE,
                "choose(path[-1], tuple(accepted))",
                "choose(path[-1], tuple(tree.tokens[1 : path[-1] + 1]))",
            ),
        ),
        caught_by=(Named("tests/core/test_acceptance.py::test_walk_hand_worked"),),
    ),
    Mutant(
        name="penalties-miss-accepted-candidates",
        wrong="The sampler's history ends with the root, however deep the node is.",
        changes=(
            Change(
                CHOOSING,
                "sampler.choose(row, [*tokens, *accepted], position)",
                "sampler.choose(row, tokens, position)",
            ),
        ),
        caught_by=(
            Named(
                f"{TESTS}::test_what_depends_on_history_or_position_is_plain_decodings[numpy-repetition]"
            ),
        ),
    ),
    Mutant(
        name="random-number-of-the-round",
        wrong="All choices of a round are made with the random number of its first position.",
        changes=(Change(CHOOSING, "len(tokens) + len(accepted)", "len(tokens)"),),
        caught_by=(
            Named(
                f"{TESTS}::test_what_depends_on_history_or_position_is_plain_decodings[numpy-top k]"
            ),
        ),
    ),
    Mutant(
        name="context-limit-off-by-one",
        wrong="Decoding stops one position before the context is full.",
        changes=(
            Change(
                ENGINE,
                "        if len(self._tokens) - 1 + count >= self.target.options.context:",
                "        if len(self._tokens) + count >= self.target.options.context:",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_the_context_can_be_filled_to_the_last_position[numpy]"),),
    ),
    Mutant(
        name="staged-tokens-appended-twice",
        wrong="After an interrupt around the commit its tokens are appended twice, or too early.",
        changes=(
            Change(
                ENGINE,
                "        self._tokens += self._staged[: self.sequence.length + 1 - len(self._tokens)]",
                "        self._tokens += self._staged",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_an_interrupt_around_the_commit_loses_no_token"),),
    ),
    Mutant(
        name="gate-after-the-verify",
        wrong="Candidates that the limit forbids are verified all the same.",
        after="sglang#30204",
        changes=(
            Change(
                ENGINE,
                "        max_depth = min(remaining - 1, room)",
                "        max_depth = min(remaining, room)",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_candidates_too_deep_to_be_used_are_not_verified[numpy]"),),
    ),
    Mutant(
        name="outcome-numbered-in-the-pruned-tree",
        wrong="The adapter is told numbers of the tree without the candidates that were too deep.",
        changes=(
            Change(ENGINE, "nodes.append(kept[step.node] - 1)", "nodes.append(step.node - 1)"),
        ),
        caught_by=(Named(f"{TESTS}::test_outcomes_are_numbered_as_in_the_proposal[numpy]"),),
    ),
    Mutant(
        name="cancel-heard-after-the-round",
        wrong="A cancel between two tokens lets the rest of the accepted run through.",
        changes=(
            Change(
                ENGINE,
                "                if self._cancelled and self.stop is None:\n"
                "                    self.stop = Stop.CANCELLED\n",
                "",
            ),
        ),
        caught_by=(
            Named(
                f"{TESTS}::test_cancelling_between_two_tokens_is_the_same_with_and_without_speculation[numpy]"
            ),
        ),
    ),
    Mutant(
        name="replay-of-the-first-rows",
        wrong="The replay runs through the tree's first rows instead of the accepted path.",
        after="TheTom/llama-cpp-turboquant#345",
        changes=(
            Change(
                VERIFICATION,
                "        tokens = [self._tree.tokens[node] for node in path]",
                "        tokens = list(self._tree.tokens[: len(path)])",
            ),
        ),
        caught_by=(
            Named(
                "tests/engine/test_verification.py::test_the_same_text_logits_and_state[numpy-ReplayVerifier]"
            ),
        ),
    ),
    Mutant(
        name="sequential-round-commits-ahead",
        wrong="The one-by-one verifier commits the newest node although its token wasn't emitted.",
        after="fak#12422",
        changes=(
            Change(
                VERIFICATION,
                "        if count and self.sequence.length == self._start + count - 1:",
                "        if self.sequence.length >= self._start + count - 1:",
            ),
        ),
        caught_by=(
            Named(
                "tests/engine/test_verification.py::test_a_choice_that_fails_leaves_a_session_that_can_go_on[numpy-SequentialVerifier]"
            ),
        ),
    ),
)
