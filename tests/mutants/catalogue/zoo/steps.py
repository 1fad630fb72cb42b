"""The zoo's mutants: batches, trees, positions."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "gates-not-gathered",
        "q, k and v of a row are its own, its gates those of another row.",
        "vllm#51812",
        "batches::test_vllm_51812_a_mixed_batch_with_a_plain_row_first",
        change(
            "backends.numpy.gdn",
            (
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], "
                "decay[row], beta[row])"
            ),
            (
                "            own = row - plan.row_offset[b]\n"
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], "
                "decay[own], beta[own])"
            ),
        ),
    ),
    zoo(
        "freed-sequence-in-the-batch",
        "A closed sequence passes for an open one.",
        "sglang#29449",
        "batches::test_sglang_29449_a_freed_sequence_is_in_no_batch",
        change(
            "core.lifecycle",
            "        if self._closed:\n",
            "        if self._closed and not self.length:\n",
        ),
    ),
    zoo(
        "slot-keeps-the-last-requests-state",
        "A slot that is used again starts with the state that its last sequence left.",
        "sglang#28484",
        "batches::test_sglang_28484_slots_recycled_under_churn",
        change("models.store", "        self.backend.clear(self.recurrent.state, slot)\n", ""),
    ),
    zoo(
        "stale-boundary-mask",
        ("After a larger step, which rows keep a boundary state is read from that step's mask."),
        "sglang#19415",
        "batches::test_sglang_19415_nothing_is_left_of_a_larger_steps_metadata",
        change(
            "backends.plans",
            "        return self._backend.upload(host, into=buffer)",
            (
                '        if name[1] == "boundary_of_row" and buffer.shape[0] > len(host):\n'
                "            return self._backend.rows(buffer, len(host))\n"
                "        return self._backend.upload(host, into=buffer)"
            ),
        ),
    ),
    zoo(
        "cursor-without-the-write",
        "A commit moves the length on, but not the captured features.",
        "sglang#31099",
        "batches::test_sglang_31099_where_the_length_moved_everything_was_written",
        change(
            "models.store",
            "                self.backend.feature_move(self.features, plan)",
            "                pass",
        ),
    ),
    zoo(
        "ancestors-of-request-0",
        "Ancestors are looked up among the rows of the batch's first sequence.",
        "vllm-ddtree",
        "batches::test_vllm_ddtree_11_ancestors_of_the_second_request",
        change(
            "core.plan",
            "        paths.extend(kv_row[offset + node] for node",
            "        paths.extend(kv_row[node] for node",
        ),
    ),
    zoo(
        "slot-0-is-none",
        "The sequence in slot 0 has nothing to fold.",
        "vllm-ddtree",
        "batches::test_vllm_ddtree_11_slot_0_is_a_slot_like_any_other",
        change(
            "core.lifecycle",
            (
                "            pending_state=tuple(count if e < self._epoch else 0 for e in "
                "self._state_epochs),"
            ),
            (
                "            pending_state=tuple(\n"
                "                count if self.slot and e < self._epoch else 0 for e in "
                "self._state_epochs\n"
                "            ),"
            ),
        ),
    ),
    zoo(
        "tree-as-chain",
        "A step ignores the parents.",
        "sglang#27463",
        "trees::test_sglang_27463_a_tree_is_verified_as_a_tree",
        change(
            "core.plan",
            "    schedule = heavy_light(forest)",
            (
                "    forest = Forest(tuple(Tree.chain(tree.tokens) for tree in forest.trees))\n"
                "    schedule = heavy_light(forest)"
            ),
        ),
        change(
            "core.plan",
            "from specla.core.topology import Forest",
            "from specla.core.topology import Forest, Tree",
        ),
    ),
    zoo(
        "wide-trees-as-chains",
        "A step ignores the parents of trees of more than 8 nodes.",
        "vllm-ddtree",
        "trees::test_vllm_ddtree_11_wide_trees_stay_trees",
        change(
            "core.plan",
            "    schedule = heavy_light(forest)",
            (
                "    forest = Forest(\n"
                "        tuple(Tree.chain(t.tokens) if len(t) > 8 else t for t in "
                "forest.trees)\n"
                "    )\n"
                "    schedule = heavy_light(forest)"
            ),
        ),
        change(
            "core.plan",
            "from specla.core.topology import Forest",
            "from specla.core.topology import Forest, Tree",
        ),
    ),
    zoo(
        "parents-unchecked",
        "A parent may come after its child.",
        "sglang#36201",
        "trees::test_sglang_36201_a_malformed_tree_is_refused",
        change(
            "core.topology",
            "            if i and not 0 <= parent < i:",
            "            if i and not 0 <= parent < len(ids):",
        ),
    ),
    zoo(
        "adapters-parents-unchecked",
        "A candidate's parent may come after it.",
        "sglang#36201",
        "trees::test_sglang_36201_an_adapters_malformed_tree_costs_a_round",
        change(
            "core.proposal",
            "            if not -1 <= parent < i:",
            "            if not -1 <= parent < len(parents):",
        ),
        change(
            "core.topology",
            "            if i and not 0 <= parent < i:",
            "            if i and not 0 <= parent < len(ids):",
        ),
    ),
    zoo(
        "position-by-index",
        "A node's position is its index in the tree, not its depth.",
        "mlxcel#1214",
        "trees::test_mlxcel_1214_a_position_is_a_depth",
        change(
            "core.plan",
            "        position += [place.committed + depth for depth in tree.depths]",
            "        position += range(place.committed, place.committed + len(tree))",
        ),
    ),
    zoo(
        "optimistic-length",
        "A commit counts every verified node as accepted.",
        "vllm-ddtree",
        "trees::test_vllm_ddtree_11_positions_count_what_was_accepted",
        change(
            "core.lifecycle",
            "        self.length += acceptance.banks.pending_count",
            "        self.length += len(self.tree)",
        ),
    ),
    zoo(
        "captured-positions",
        "A step of the same size as the last one uses that one's positions.",
        "vllm-ddtree",
        "trees::test_vllm_ddtree_11_depths_change_from_step_to_step",
        change(
            "backends.plans",
            "        return self._backend.upload(host, into=buffer)",
            (
                '        if name[1] == "position":\n'
                '            if self.__dict__.get("captured") == len(host):\n'
                "                return self._backend.rows(buffer, len(host))\n"
                '            self.__dict__["captured"] = len(host)\n'
                "        return self._backend.upload(host, into=buffer)"
            ),
        ),
    ),
    zoo(
        "later-draft-seen",
        "A node sees the one that comes after it.",
        "mlx-vlm#1188",
        "trees::test_mlx_vlm_1188_no_node_sees_a_later_draft",
        change(
            "backends.numpy.attention",
            "    ancestors = plan.paths[start : start + depth + 1]",
            "    ancestors = plan.paths[start : start + depth + 2]",
        ),
    ),
    zoo(
        "order-of-equal-scores",
        "Of siblings with equal scores the last one is taken first.",
        "lucebox",
        "trees::test_lucebox_equal_scores_have_one_tree",
        change(
            "core.trees.search",
            "(order, depth + 1, rank, number, child, value, score)",
            "(order, depth + 1, -rank, number, child, value, score)",
        ),
    ),
    zoo(
        "bias-of-the-spine",
        "All nodes of a depth are corrected by the token that came first.",
        "lucebox",
        "trees::test_lucebox_a_branch_is_corrected_by_its_own_token",
        change(
            "adapters.block_rows",
            "        bias = self._bias(node.depth, node.token)",
            (
                '        first = self.__dict__.setdefault("first", {})\n'
                "        bias = self._bias(node.depth, first.setdefault(node.depth, "
                "node.token))"
            ),
        ),
    ),
)
