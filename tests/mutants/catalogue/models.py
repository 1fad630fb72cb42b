"""Mutants of the target's passes and of the draft models' own state."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

TARGET = "specla.models.qwen35.target"
LAYERS = "specla.models.qwen35.layers"
COMPOSITIONS = "specla.backends.compositions"
STORE_TESTS = "tests/models/test_store.py"
MTP_TESTS = "tests/models/mtp/test_mtp_drafter.py"

MUTANTS = (
    Mutant(
        name="prefill-keeps-what-is-pending",
        wrong="A prefill walks on from a state that has yet to fold what was accepted.",
        after="vllm#39273",
        changes=(
            Change(
                TARGET,
                "        for sequence in sequences:\n            self.store.flush(sequence)\n",
                "",
            ),
        ),
        caught_by=(
            Fuzz("engine"),
            Named("tests/engine/test_engine.py::test_extend_is_a_longer_prompt[numpy]"),
        ),
    ),
    Mutant(
        name="rotary-position-is-the-cache-row",
        wrong="Siblings are rotated as if they followed one another.",
        after="mlxcel#1214",
        changes=(
            Change(
                LAYERS,
                "rotation = (step.plan.position, step.table)",
                "rotation = (step.plan.kv_row, step.table)",
            ),
            Change(
                COMPOSITIONS,
                "rms_norm_rotary(k, weight, eps, plan.position, table, room)",
                "rms_norm_rotary(k, weight, eps, plan.kv_row, table, room)",
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
        name="product-chosen-by-the-number-of-rows",
        wrong="One row goes through another product than several: other roundings.",
        after="llama.cpp#23335",
        changes=(
            Change(
                "specla.backends.numpy.products",
                "            out[n, part] = segmented_sum(halving_tree(products, axis=0))",
                "            total = segmented_sum(halving_tree(products, axis=0))\n"
                "            out[n, part] = total if len(x) > 1 else products.sum(axis=(0, 1))",
            ),
        ),
        caught_by=(
            Fuzz("engine"),
            Named(f"{STORE_TESTS}::test_any_chunking_any_company_same_bytes[numpy-F32]"),
        ),
    ),
    Mutant(
        name="failed-prefill-can-be-repeated",
        wrong="A prefill that died in mid-write leaves the sequence as if it were clean.",
        after="lucebox, by reading",
        changes=(
            Change(
                TARGET,
                '                stack.enter_context(sequence.ledger.writing("a prefill"))',
                '                sequence.ledger.require_open("prefill")',
            ),
        ),
        caught_by=(Named("tests/lifecycle/test_failures.py::test_a_prefill_that_dies_breaks"),),
    ),
    Mutant(
        name="features-of-a-closed-sequence",
        wrong="A view that an adapter kept reads the features of whoever has the slot now.",
        after="sglang#28484",
        changes=(Change(TARGET, '        sequence.ledger.require_open("features")\n', ""),),
        caught_by=(Named(f"{STORE_TESTS}::test_a_closed_sequence_is_refused_everywhere[numpy]"),),
    ),
    Mutant(
        name="rejected-guesses-stay-in-the-drafts-cache",
        wrong="The extra prediction layer keeps keys and values of what it guessed.",
        after="mlx-lm#1446",
        changes=(
            Change(
                "specla.models.mtp.drafter",
                "            if first:\n"
                "                # made of the target's hidden state: it stays\n"
                "                context.cached.ledger.length, context.last = root + 1, token\n",
                "            context.cached.ledger.length, context.last = position + 1, token\n",
            ),
        ),
        caught_by=(Named(f"{MTP_TESTS}::test_drafts_are_a_function_of_the_decided_text"),),
    ),
    Mutant(
        name="hidden-state-of-the-same-position",
        wrong="The extra prediction layer joins a token and the hidden state that it led to.",
        changes=(
            Change(
                "specla.models.mtp.drafter",
                "            features = view.features(first - 1, stop - 1)\n",
                "            features = view.features(max(first - 2, 0), max(first - 2, 0) + stop - first)\n",
            ),
        ),
        caught_by=(Named(f"{MTP_TESTS}::test_it_computes_what_an_independent_layer_computes"),),
    ),
    Mutant(
        name="cursor-moves-before-the-rows-are-written",
        wrong="A drafter's context counts positions whose keys and values may never be written.",
        after="sglang#31099",
        changes=(
            Change(
                "specla.models.dflash.drafter",
                "            self._append(context, view.features(start, start + count), start, count)\n"
                "            # only now: whatever failed above is done again\n"
                "            context.advance(view, start + count)\n",
                "            context.advance(view, start + count)\n"
                "            self._append(context, view.features(start, start + count), start, count)\n",
            ),
        ),
        caught_by=(Named("tests/models/dflash/test_draft_failures.py::test_features_may_fail"),),
    ),
    Mutant(
        name="draft-sees-later-drafts",
        wrong="Slots of a causal block see those behind them.",
        after="mlx-vlm#1188",
        changes=(
            Change(
                "specla.models.dflash.sight",
                "    if causal:\n        return Sight(",
                "    if causal and slots < 2:\n        return Sight(",
            ),
        ),
        caught_by=(Named("tests/models/dflash/test_sight.py::test_sight"),),
    ),
    Mutant(
        name="sliding-window-off-by-one",
        wrong="A drafter's sliding layers see one position more than they were trained with.",
        changes=(
            Change(
                "specla.models.dflash.sight",
                "np.maximum(query - (window - 1), 0)",
                "np.maximum(query - window, 0)",
            ),
        ),
        caught_by=(Named("tests/models/dflash/test_sight.py::test_sight"),),
    ),
    Mutant(
        name="rejected-context-kept-by-the-drafter",
        wrong="A drafter that took up a text goes on from it when the text is another one.",
        after="mlx-lm#1486",
        changes=(
            Change(
                "specla.models.dflash.contexts",
                "        if beyond or (self.length and view.tokens[self.length - 1] != self.tail):\n",
                "        if beyond:\n",
            ),
        ),
        caught_by=(
            Named("tests/models/dflash/test_drafter.py::test_many_sequences_and_keys_again"),
        ),
    ),
    Mutant(
        name="draft-takes-back-its-length-only",
        wrong="A draft model guesses on the decided text and then only resets its length.",
        after="mlx-lm#1446",
        changes=(
            Change(
                "specla.models.draft_target",
                "        fork = self.target.fork(text.state)\n",
                "        fork, length = text.state, text.state.length\n",
            ),
            Change(
                "specla.models.draft_target",
                "            self.target.close(fork)\n",
                "            fork.ledger.length = length\n",
            ),
        ),
        caught_by=(
            Named("tests/adapters/test_chain.py::test_drafts_are_a_function_of_the_decided_text"),
        ),
    ),
)
