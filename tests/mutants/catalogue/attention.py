"""Mutants of the KV cache and of attention over it."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

ATTENTION = "specla.backends.numpy.attention"
TESTS = "tests/backends/test_numpy_attention.py"

MUTANTS = (
    Mutant(
        name="siblings-that-see-each-other",
        wrong="A node attends to every row before it, as if the tree were a chain.",
        after="sglang#27463",
        changes=(
            Change(
                ATTENTION,
                "    ancestors = plan.paths[start : start + depth + 1]\n",
                "    ancestors = np.arange(committed, plan.kv_row[row] + 1, dtype=np.int32)\n",
            ),
        ),
        caught_by=(Fuzz("engine"), Named(f"{TESTS}::test_siblings_do_not_see_each_other")),
    ),
    Mutant(
        name="mask-from-a-stale-count",
        wrong="Committed positions are visible only once their factors are folded.",
        after="sglang#19415",
        changes=(
            Change(
                ATTENTION,
                "np.concatenate([np.arange(committed, dtype=np.int32), ancestors])",
                "np.concatenate(\n"
                "        [\n"
                "            np.arange(\n"
                "                committed - plan.pending_state[:, plan.sequence[row]].max(initial=0),\n"
                "                dtype=np.int32,\n"
                "            ),\n"
                "            ancestors,\n"
                "        ]\n"
                "    )",
            ),
        ),
        caught_by=(
            Fuzz("engine"),
            Named(
                "tests/engine/test_engine.py::test_any_budgets_give_the_same_text_logits_and_state[numpy]"
            ),
        ),
    ),
    Mutant(
        name="row-moved-before-it-is-read",
        wrong="Rows of the KV cache move onto the spine last one first.",
        changes=(
            Change(
                ATTENTION,
                "            cache[:, to_page, to_offset] = cache[:, from_page, from_offset]",
                "            for i in reversed(range(len(source))):\n"
                "                moved = cache[:, from_page[i], from_offset[i]]\n"
                "                cache[:, to_page[i], to_offset[i]] = moved",
            ),
        ),
        caught_by=(Fuzz("engine"), Named(f"{TESTS}::test_kv_move")),
    ),
    Mutant(
        name="features-by-position",
        wrong="Captured features of siblings are written to one and the same row.",
        changes=(
            Change(
                ATTENTION,
                "    features.rows[plan.slot[plan.sequence], plan.kv_row, index] = x",
                "    features.rows[plan.slot[plan.sequence], plan.position, index] = x",
            ),
        ),
        caught_by=(Fuzz("engine"), Named(f"{TESTS}::test_features")),
    ),
    Mutant(
        name="page-of-the-first-row-for-all",
        wrong="Rows that reach into the next page are written to the page of the first one.",
        after="vllm#46424",
        changes=(
            Change(
                ATTENTION,
                "        page, offset = _locate(kv, plan.slot[b], plan.kv_row[rows])\n",
                "        page, offset = _locate(kv, plan.slot[b], plan.kv_row[rows])\n"
                "        page = page[:1]\n",
            ),
        ),
        caught_by=(Named(f"{TESTS}::test_around_a_page_boundary"),),
    ),
)
