"""The zoo's mutants: failures, configuration, the cost of a step."""

from __future__ import annotations

from mutants.catalogue.zoo.zoo_mutant import change, zoo

MUTANTS = (
    zoo(
        "layers-folded-again",
        "A layer doesn't remember that it has folded before a step died.",
        "lucebox",
        "failures::test_lucebox_a_failure_between_layers_folds_each_layer_once",
        change(
            "core.lifecycle",
            (
                "            # inside: an interrupt before this line leaves the sequence "
                "BROKEN, never wrong\n"
                "            epochs[layer] = self._epoch\n"
            ),
            "",
        ),
    ),
    zoo(
        "half-written-state-used",
        "A write that died half-way leaves the sequence in use.",
        "lucebox",
        "failures::test_lucebox_a_half_written_state_is_never_used",
        change(
            "core.lifecycle",
            ("        self._writing = what\n        yield\n        self._writing = None\n"),
            (
                "        self._writing = what\n"
                "        try:\n"
                "            yield\n"
                "        finally:\n"
                "            self._writing = None\n"
            ),
        ),
    ),
    zoo(
        "failed-copy-ignored",
        "A commit ignores that the rows of the KV cache were not moved.",
        "lucebox",
        "failures::test_lucebox_a_copy_that_fails_is_not_ignored",
        change(
            "models.store",
            "            self.backend.kv_move(self.kv, plan)\n",
            (
                "            try:\n"
                "                self.backend.kv_move(self.kv, plan)\n"
                "            except Exception:\n"
                "                pass\n"
            ),
        ),
    ),
    zoo(
        "one-copy-per-sequence",
        "A commit copies for one sequence after the other.",
        "lucebox",
        "failures::test_lucebox_all_rows_of_a_commit_move_in_one_call",
        change(
            "models.store",
            "                self._copy_paths(self.upload_plan(build_commit_plan(copies)))",
            (
                "                for one in copies:\n"
                "                    self._copy_paths(self.upload_plan(build_commit_plan([one])))"
            ),
        ),
    ),
    zoo(
        "options-kept-after-a-refusal",
        "Options of a refused request are the next one's defaults.",
        "lucebox#692",
        "configuration::test_lucebox_692_a_refused_option_leaves_nothing_behind",
        change(
            "adapters.base",
            (
                "    values = {key: _convert(name, key, text, hints[key]) for key, text in "
                "given.items()}"
            ),
            (
                "    values = parse_options.__dict__.setdefault(name, {})\n"
                "    for key, text in given.items():\n"
                "        values[key] = _convert(name, key, text, hints[key])"
            ),
        ),
    ),
    zoo(
        "settings-read-once",
        "The environment is read once per process.",
        "lucebox",
        "configuration::test_lucebox_settings_are_no_property_of_the_process",
        change(
            "backends.options",
            ("    @classmethod\n    def resolve("),
            ("    @classmethod\n    @functools.cache\n    def resolve("),
        ),
        change(
            "backends.options",
            ("import inspect\nimport os"),
            ("import functools\nimport inspect\nimport os"),
        ),
    ),
    zoo(
        "gate-after-the-verify",
        "Tokens that the draft doubts are proposed all the same.",
        "sglang#30204",
        "configuration::test_sglang_30204_a_confidence_gate_shrinks_what_is_verified",
        change(
            "adapters.autoregressive",
            "                if not guess.confidence >= self.options.p_min:",
            "                if False:",
        ),
    ),
    zoo(
        "gate-of-another-model",
        "What was measured of one target is used for the next.",
        "lucebox#626",
        "configuration::test_lucebox_a_gate_measures_the_model_that_it_has",
        change(
            "adapters.adaptive.adapter",
            "        if self._target is not None and known != self._target:",
            "        if False:",
        ),
    ),
    zoo(
        "buffers-made-anew",
        "A step's plan goes to new buffers each time.",
        "lucebox",
        "configuration::test_lucebox_a_step_allocates_nothing",
        change(
            "backends.plans",
            "        if buffer is None or buffer.shape[0] < len(host):",
            "        if True:",
        ),
    ),
    zoo(
        "mask-of-the-context",
        "A step's plan has room for the whole context.",
        "lucebox",
        "configuration::test_lucebox_no_mask_grows_with_the_context",
        change(
            "core.plan",
            "        paths=_int32(paths),",
            ("        paths=_int32([*paths, *([0] * max(place.committed for place in places))]),"),
        ),
    ),
)
