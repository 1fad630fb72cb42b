"""Mutants of the guard around adapters and of the adapters."""

from __future__ import annotations

from mutants.mutant import Change, Mutant, Named

GUARD = "specla.adapters.guard"
ENGINE_TESTS = "tests/engine/test_engine.py"
BAD = f"{ENGINE_TESTS}::test_a_bad_proposal_costs_a_round_and_is_named"

MUTANTS = (
    Mutant(
        name="root-token-not-updated",
        wrong="The root of a tree stays the prompt's last token.",
        changes=(
            Change(
                "specla.core.proposal",
                "        return Tree.build((view.root, *tokens), up, vocab_size=vocab_size)",
                "        root = view.tokens[view.prompt_length - 1]\n"
                "        return Tree.build((root, *tokens), up, vocab_size=vocab_size)",
            ),
        ),
        caught_by=(
            Named(f"{ENGINE_TESTS}::test_any_budgets_give_the_same_text_logits_and_state[numpy]"),
        ),
    ),
    Mutant(
        name="max-depth-ignored",
        wrong="Candidates too deep to be used are verified.",
        changes=(
            Change(
                GUARD,
                "        pruned, kept = prune(tree, view.max_depth)",
                "        pruned, kept = prune(tree, len(tree))",
            ),
        ),
        caught_by=(
            Named(f"{ENGINE_TESTS}::test_candidates_too_deep_to_be_used_are_not_verified[numpy]"),
        ),
    ),
    Mutant(
        name="twins-merged",
        wrong="Siblings with the same token are taken for one: the second is never accepted.",
        changes=(
            Change(
                "specla.core.topology", "            if twin != i:\n", "            if twin > i:\n"
            ),
        ),
        caught_by=(Named(f"{BAD}[numpy-duplicate siblings]"),),
    ),
    Mutant(
        name="forward-parents-accepted",
        wrong="A parent may come after its child, or be the child itself.",
        after="sglang#36201",
        changes=(
            Change(
                "specla.core.proposal",
                "            if not -1 <= parent < i:\n",
                "            if not -1 <= parent < len(tokens):\n",
            ),
            Change(
                "specla.core.topology",
                "            if i and not 0 <= parent < i:\n",
                "            if i and not 0 <= parent < len(ids):\n",
            ),
        ),
        caught_by=(Named(f"{BAD}[numpy-forward parent]"),),
    ),
    Mutant(
        name="budget-from-the-adapters-own-view",
        wrong="A proposal is measured by a view that the adapter can change.",
        changes=(
            Change(
                GUARD, "self._adapter.propose([replace(view)])", "self._adapter.propose([view])"
            ),
        ),
        caught_by=(
            Named(
                "tests/engine/test_engine.py::test_nor_do_these_reach_further[numpy-_greedy_for_room]"
            ),
        ),
    ),
    Mutant(
        name="features-can-be-written",
        wrong="An adapter that normalises features in place changes what others see.",
        changes=(
            Change(
                "specla.backends.arrays",
                "            view.flags.writeable = False\n",
                "            view.flags.writeable = True\n",
            ),
        ),
        caught_by=(Named("tests/adapters/test_untrusted.py::test_features_cannot_be_written"),),
    ),
    Mutant(
        name="one-bias-for-all-branches",
        wrong="All nodes of a depth get the Markov bias of the first one that is asked for.",
        after="lucebox, by reading",
        changes=(
            Change(
                "specla.adapters.block_rows",
                "        bias = self._bias(node.depth, node.token)",
                '        token = vars(self).setdefault(f"_token_{node.depth}", node.token)\n'
                "        bias = self._bias(node.depth, token)",
            ),
        ),
        caught_by=(
            Named("tests/adapters/test_dspark.py::test_each_branch_is_corrected_by_its_own_tokens"),
        ),
    ),
    Mutant(
        name="selector-asked-about-the-root",
        wrong="The path selector scores every node's children as if they followed the root.",
        after="lucebox, by reading",
        changes=(
            Change(
                "specla.adapters.block_rows",
                "self._selector.scores(self._draft, node.depth, [node.token])",
                "self._selector.scores(self._draft, node.depth, [self._draft.root])",
            ),
        ),
        caught_by=(
            Named(
                "tests/adapters/test_ddtree.py::test_a_selector_scores_each_branch_by_its_own_token"
            ),
        ),
    ),
    Mutant(
        name="ties-of-the-heap",
        wrong="Of two equally likely nodes the one whose parent was taken last comes first.",
        after="lucebox, by reading",
        changes=(
            Change(
                "specla.core.trees.search",
                "(order, depth + 1, rank, number, child, value, score)",
                "(order, depth + 1, rank, -number, child, value, score)",
            ),
            Change(
                "specla.core.trees.search",
                "        key, depth, _, parent, token, value, q = heapq.heappop(heap)\n",
                "        key, depth, _, parent, token, value, q = heapq.heappop(heap)\n"
                "        parent = -parent if parent < 1 else -1\n",
            ),
        ),
        caught_by=(
            Named(
                "tests/core/test_trees.py::test_ties_go_to_the_smaller_depth_then_rank_then_parent"
            ),
        ),
    ),
    Mutant(
        name="suffix-counts-itself",
        wrong="The suffix that is looked up counts as one of its own earlier occurrences.",
        changes=(
            Change(
                "specla.adapters.suffix.adapter",
                "        earlier = count[state] - 1\n",
                "        earlier = count[state]\n",
            ),
        ),
        caught_by=(Named("tests/adapters/test_suffix.py::test_counts_make_the_tree"),),
    ),
    Mutant(
        name="inner-adapter-told-in-the-offered-numbers",
        wrong="The inner adapter of `adaptive` is told numbers of the part that was offered.",
        changes=(
            Change(
                "specla.adapters.adaptive.adapter",
                "        accepted = tuple(round_.kept[i] for i in outcome.accepted)",
                "        accepted = outcome.accepted",
            ),
        ),
        caught_by=(
            Named(
                "tests/adapters/test_adaptive.py::test_the_inner_adapter_is_told_in_its_own_numbers"
            ),
        ),
    ),
    Mutant(
        name="draft-cut-after-the-doubtful-token",
        wrong="A chain ends after the first token below p_min instead of before it.",
        changes=(
            Change(
                "specla.adapters.autoregressive",
                "                if not guess.confidence >= self.options.p_min:\n"
                "                    break\n"
                "                tokens.append(guess.token)\n"
                "                log_probs.append(guess.log_prob)\n",
                "                tokens.append(guess.token)\n"
                "                log_probs.append(guess.log_prob)\n"
                "                if not guess.confidence >= self.options.p_min:\n"
                "                    break\n",
            ),
        ),
        caught_by=(
            Named(
                "tests/adapters/test_chain.py::test_a_draft_ends_before_the_first_token_below_p_min"
            ),
        ),
    ),
)
