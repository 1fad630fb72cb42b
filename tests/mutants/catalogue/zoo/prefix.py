"""The zoo's mutants: prefixes, pages, snapshots, sizes."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "cached-prefix-without-pending",
        "Snapshots and forks don't hold the pending factors.",
        "vllm#48375",
        "prefix::test_vllm_48375_a_cached_prefix_and_speculation_equal_a_cold_start",
        change(
            "models.store",
            ("        if count:\n            index = (slot, bank"),
            ("        if not count:\n            index = (slot, bank"),
        ),
    ),
    zoo(
        "prefix-rounded-up-to-the-page",
        "A cached prefix claims all positions of its last page.",
        "vllm#45614",
        "prefix::test_vllm_45614_a_prefix_has_one_length_for_all_layers",
        change(
            "core.lifecycle",
            ("        return LedgerState(\n            self.length,"),
            ("        return LedgerState(\n            -(-self.length // 64) * 64,"),
        ),
    ),
    zoo(
        "fork-without-state",
        "A fork resumes where there are pages and factors, without the recurrent state.",
        "vllm#53505",
        "prefix::test_vllm_53505_every_way_to_a_prefix_leads_to_the_same_state",
        change(
            "models.store",
            "            for (target, target_index), (source, source_index) in pairs:",
            ("            for (target, target_index), (source, source_index) in list(pairs)[1:]:"),
        ),
    ),
    zoo(
        "tables-without-candidates",
        "Page tables are sized for the context, without the candidates behind it.",
        "vllm#41233",
        "prefix::test_vllm_41233_tables_have_room_for_candidates",
        "prefix::test_vllm_41233_what_a_step_needs_there_is",
        change(
            "models.qwen35.options",
            "    rows = options.context + options.max_nodes",
            "    rows = options.context",
        ),
    ),
    zoo(
        "no-page-for-one-token-more",
        "A token that is the first of a page gets none.",
        "vllm#46424",
        "prefix::test_vllm_46424_prompts_around_a_page",
        change(
            "core.paging",
            "    return -(-positions // PAGE)",
            "    return -(-positions // PAGE) - (positions > 1 and positions % PAGE == 1)",
        ),
    ),
    zoo(
        "shared-page-not-copied",
        "A shared page that is about to be written is replaced, but not copied.",
        "llama.cpp#20075",
        "prefix::test_llama_cpp_20075_a_shared_cell_is_copied_from_the_right_source",
        change("models.pages", "                    self._copy_page(pages[i], page)\n", ""),
    ),
    zoo(
        "shared-page-copied-from-another",
        "A shared page that is about to be written is copied from the first page.",
        "llama.cpp#20075",
        "prefix::test_llama_cpp_20075_a_shared_cell_is_copied_from_the_right_source",
        change(
            "models.pages",
            "                    self._copy_page(pages[i], page)\n",
            "                    self._copy_page(pages[0], page)\n",
        ),
    ),
    zoo(
        "shape-computed-twice",
        "What a window takes is computed once more, and differently.",
        "vllm#47635",
        "prefix::test_vllm_47635_shapes_are_computed_in_one_place",
        change(
            "backends.pools",
            "        return 4 * self.layers * (self.conv_width - 1) * self.channels",
            "        return 4 * self.layers * self.conv_width * self.channels",
        ),
    ),
)
