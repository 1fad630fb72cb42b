"""Mutants of the kernels of the recurrent layers: folds, the walk, the convolution, the gather."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

GDN = "specla.backends.numpy.gdn"
CONV = "specla.backends.numpy.conv"
TESTS = "tests/backends/test_numpy_recurrence.py"

MUTANTS = (
    Mutant(
        name="state-of-slot-0-after-acceptance",
        wrong="After acceptance the fold reads the bank's first factor only.",
        after="vllm#39273",
        changes=(
            Change(
                GDN,
                "            factor = (slot, bank, layer, i)",
                "            factor = (slot, bank, layer, 0)",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
    Mutant(
        name="convolution-offset-lost",
        wrong="The window takes in the first accepted input only, though the state is folded right.",
        after="vllm#40738",
        changes=(
            Change(
                CONV, "pool.inputs[slot, bank, layer, :count]", "pool.inputs[slot, bank, layer, :1]"
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
    Mutant(
        name="rejected-input-in-the-window",
        wrong="The window takes in one input more than was accepted.",
        after="vllm#50272",
        changes=(
            Change(
                CONV,
                "pool.inputs[slot, bank, layer, :count]",
                "pool.inputs[slot, bank, layer, : count + 1]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
    Mutant(
        name="gates-not-gathered-with-q-k-v",
        wrong="In a mixed batch decay and beta are taken by node, q, k and v by row.",
        after="vllm#51812",
        changes=(
            Change(
                GDN,
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], decay[row], beta[row])",
                "            at = row - plan.row_offset[b]\n"
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], decay[at], beta[at])",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_gdn_verify")),
    ),
    Mutant(
        name="decay-left-behind-by-the-gather",
        wrong="A commit gathers keys, deltas and inputs of the accepted path, but not the decays.",
        after="vllm#51812",
        changes=(
            Change(
                GDN,
                "        for bank in (pool.key, pool.delta, pool.decay, pool.inputs):",
                "        for bank in (pool.key, pool.delta, pool.inputs):",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_verify_gather_fold_is_prefill")),
    ),
    Mutant(
        name="gather-overlaps-itself",
        wrong="The path is moved to the front within its bank, last node first, and then copied.",
        changes=(
            Change(
                GDN,
                "            bank[slot, 1 - source, :, : len(nodes)] = bank[slot, source][:, nodes]",
                "            for i, node in reversed(list(enumerate(nodes))):\n"
                "                bank[slot, source, :, i] = bank[slot, source, :, node]\n"
                "            bank[slot, 1 - source, :, : len(nodes)] = bank[slot, source, :, : len(nodes)]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_verify_gather_fold_is_prefill")),
    ),
    Mutant(
        name="offsets-right-for-the-first-sequence-only",
        wrong="A commit of several sequences gathers the first one's nodes for all of them.",
        after="vllm-ddtree",
        changes=(
            Change(
                GDN,
                "commit.nodes[commit.node_offset[b] : commit.node_offset[b + 1]]",
                "commit.nodes[: commit.node_offset[b + 1] - commit.node_offset[b]]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_verify_gather_fold_is_prefill")),
    ),
    Mutant(
        name="convolution-ignores-parents",
        wrong="A node's convolution looks back along the rows instead of along its ancestors.",
        after="sglang#27463",
        changes=(
            Change(CONV, "n_window + plan.parent)", "n_window + np.arange(plan.n_rows) - 1)"),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_conv_verify")),
    ),
    Mutant(
        name="prefill-of-several-tokens-drops-the-state",
        wrong="A prefill of more than one token starts from an empty state.",
        after="transformers#45513",
        changes=(
            Change(
                GDN,
                "        state = pool.state[plan.slot[b], layer]\n",
                "        alone = plan.row_offset[b + 1] - plan.row_offset[b] == 1\n"
                "        state = pool.state[plan.slot[b], layer] * np.float32(alone)\n",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_prefill")),
    ),
    Mutant(
        name="factor-folded-by-another-formula",
        wrong="The fold computes (S + k delta / decay) decay: equal on paper, not in bits.",
        after="sglang#33630",
        changes=(
            Change(
                GDN,
                "    return state * decay[:, None, None] + spread(k, len(state)) * delta[:, None, :]",
                "    scaled = (delta / decay[:, None])[:, None, :]\n"
                "    return (state + spread(k, len(state)) * scaled) * decay[:, None, None]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
    Mutant(
        name="beta-rounded-on-one-path",
        wrong="The verify rounds beta to half precision, the prefill doesn't.",
        after="sglang#35541",
        changes=(
            Change(
                GDN,
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], decay[row], beta[row])",
                "            rate = beta[row].astype(np.float16).astype(np.float32)\n"
                "            state, delta, out[row] = step(state, q[row], k[row], v[row], decay[row], rate)",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_gdn_verify")),
    ),
    Mutant(
        name="state-rounded-on-one-path",
        wrong="The fold rounds the durable state to half precision, the prefill doesn't.",
        after="sglang#35150",
        changes=(
            Change(
                GDN,
                "        pool.state[slot, layer] = state",
                "        pool.state[slot, layer] = state.astype(np.float16)",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
    Mutant(
        name="chain-starts-from-the-durable-state",
        wrong="Light chains start from the sequence's state, not from that of their parent.",
        changes=(
            Change(
                GDN,
                "        state = pool.state[slot, layer] if source < 0 else pool.boundary[source]",
                "        state = pool.state[slot, layer]",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_gdn_verify")),
    ),
    Mutant(
        name="pending-folded-for-the-first-sequence-only",
        wrong="The kernel folds what is pending for the first sequence of a batch only.",
        after="vllm#55504",
        changes=(
            Change(
                GDN,
                "        count = int(plan.pending_state[layer, b])",
                "        count = int(plan.pending_state[layer, b]) if b == 0 else 0",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named(f"{TESTS}::test_folds")),
    ),
)
