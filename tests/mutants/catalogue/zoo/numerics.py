"""The zoo's mutants: widths, rounding, ties."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "beta-rounded-in-verify",
        "A verify rounds beta to half precision; a prefill doesn't.",
        "sglang#35150",
        "numerics::test_sglang_35150_every_draft_is_rejected",
        change(
            "models.qwen35.layers",
            "        backend.gdn_inputs(q, k, config.rms_eps, dim**-0.5, *gates, *outs)",
            (
                "        backend.gdn_inputs(q, k, config.rms_eps, dim**-0.5, *gates, *outs)\n"
                "        if step.verify:\n"
                '            outs[3][...] = outs[3].astype("float16")'
            ),
        ),
    ),
    zoo(
        "product-by-row-count",
        "From three rows on a float product adds in another order.",
        "llama.cpp#23335",
        "numerics::test_llama_cpp_23335_any_width_gives_the_same_rows",
        change(
            "backends.numpy.products",
            ("        part = slice(start, start + tile)\n        for n in range(x.shape[0]):"),
            (
                "        part = slice(start, start + tile)\n"
                "        if x.shape[0] > 2:\n"
                "            flat = matrix.values.transpose(1, 0, 2)[:, :, "
                "part].reshape(-1, out[:, part].shape[1])\n"
                "            out[:, part] = np.asarray(pad_blocks(x)) @ flat\n"
                "            continue\n"
                "        for n in range(x.shape[0]):"
            ),
        ),
    ),
    zoo(
        "rows-rounded-elsewhere",
        "Several rows are multiplied by the two scales one after the other.",
        "mlxcel#1201",
        "numerics::test_mlxcel_1201_the_whole_model_at_every_width",
        change(
            "backends.numpy.products",
            "    terms: Float32 = sums * (matrix.scale[:, :, part] * scale)",
            (
                "    terms: Float32 = sums * (matrix.scale[:, :, part] * scale)\n"
                "    if sums.shape[1] > 1:\n"
                "        terms = (sums * matrix.scale[:, :, part]) * scale"
            ),
        ),
    ),
    zoo(
        "attention-by-width",
        "With several rows attention adds its positions in another order.",
        "lucebox",
        "numerics::test_lucebox_attention_at_every_width",
        change(
            "backends.numpy.attention",
            "        rows = _logical_rows(plan, row)\n",
            "        rows = _logical_rows(plan, row)[:: 1 if plan.n_rows == 1 else -1]\n",
        ),
    ),
    zoo(
        "pairs-in-the-verify",
        "Products of several long rows add neighbouring blocks in pairs first.",
        "Atlas#604",
        "numerics::test_atlas_435_products_at_production_widths",
        change(
            "backends.numpy.products",
            ("            out[:, part] = segmented_sum(_block_terms(values, scale, matrix, part))"),
            (
                "            terms = _block_terms(values, scale, matrix, part)\n"
                "            if n > 1 and len(terms) > 8 and len(terms) % 2 == 0:\n"
                "                terms = terms[0::2] + terms[1::2]\n"
                "            out[:, part] = segmented_sum(terms)"
            ),
        ),
    ),
    zoo(
        "pairs-of-wide-heads",
        "Sums of 128 and more terms add neighbours first.",
        "Atlas#604",
        "numerics::test_atlas_604_the_recurrence_at_production_head_sizes",
        change(
            "backends.numpy.sums",
            "    while size > 1:\n",
            (
                "    if size >= 128:\n"
                "        size //= 2\n"
                "        x = x[0::2] + x[1::2]\n"
                "    while size > 1:\n"
            ),
        ),
    ),
    zoo(
        "large-activations-clipped",
        "With two to six rows large activations are clipped.",
        "TyloQuant#6",
        "numerics::test_tyloquant_6_products_of_realistic_activations",
        change(
            "backends.numpy.quantise",
            "    scale = np.abs(blocks).max(axis=-1) / np.float32(127)",
            (
                "    most = np.float32(50 if 2 <= len(x) <= 6 else np.inf)\n"
                "    scale = np.minimum(np.abs(blocks).max(axis=-1), most) / np.float32(127)"
            ),
        ),
    ),
    zoo(
        "several-tokens-forget",
        "A prefill of several tokens starts from an empty state.",
        "transformers#45513",
        "numerics::test_transformers_45513_k_tokens_in_one_forward_are_k_forwards",
        change(
            "backends.numpy.gdn",
            ("        state = pool.state[plan.slot[b], layer]\n        for row in range("),
            (
                "        state = pool.state[plan.slot[b], layer] * np.float32(plan.n_rows "
                "== 1)\n"
                "        for row in range("
            ),
        ),
    ),
    zoo(
        "highest-of-equal-tokens",
        "Of equal logits argmax takes the highest token.",
        "vllm#42960",
        "numerics::test_vllm_42960_exact_ties_go_to_the_lowest_token",
        change(
            "backends.numpy.choices",
            "    best = np.argmax(clean, axis=-1)",
            "    best = clean.shape[-1] - 1 - np.argmax(clean[:, ::-1], axis=-1)",
        ),
    ),
)
