"""Mutants of what the host prepares for a step: banks, schedule, plan."""

from __future__ import annotations

from mutants.mutant import Change, Fuzz, Mutant, Named

BANKS = "specla.core.banks"
SCHEDULE = "specla.core.schedule"
PLAN = "specla.core.plan"

MUTANTS = (
    Mutant(
        name="banks-not-rotated",
        wrong="Accepting a prefix of the tree leaves the old bank pending.",
        changes=(
            Change(
                BANKS,
                "        return BankMove(Banks(banks.current_bank, len(path)), banks.current_bank, (), ())",
                "        return BankMove(Banks(banks.pending_bank, len(path)), banks.current_bank, (), ())",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named("tests/core/test_banks.py::test_truth_table")),
    ),
    Mutant(
        name="gather-in-the-order-of-the-walk-up",
        wrong="The accepted path is gathered from its leaf to its root.",
        changes=(
            Change(
                BANKS, "banks.current_bank, path, moves)", "banks.current_bank, path[::-1], moves)"
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named("tests/core/test_banks.py::test_truth_table"),
        ),
    ),
    Mutant(
        name="path-with-a-gap-rotates",
        wrong="A path that leaves out a single row counts as a prefix of the node order.",
        changes=(
            Change(
                BANKS,
                "    if not moves:\n",
                "    if not moves or len(path) == path[-1]:\n",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named("tests/core/test_banks.py::test_every_path_lands_in_path_order"),
        ),
    ),
    Mutant(
        name="boundary-state-of-the-wrong-parent",
        wrong="The boundary of a light chain is kept at the row before its head.",
        changes=(
            Change(
                SCHEDULE,
                "            row = offset + local.parent",
                "            row = offset + local.nodes[0] - 1",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named("tests/core/test_schedule.py::test_star_shares_one_boundary"),
        ),
    ),
    Mutant(
        name="boundary-slot-reused-too-early",
        wrong="Two boundary slots take turns, though an earlier state is still wanted.",
        changes=(
            Change(
                SCHEDULE,
                "                boundary[row] = n_boundaries\n",
                "                boundary[row] = n_boundaries % 2\n",
            ),
        ),
        caught_by=(Fuzz("kernels"), Named("tests/core/test_schedule.py::test_deep_waves")),
    ),
    Mutant(
        name="heavy-child-chosen-twice",
        wrong="Of equal children the first is left out as heavy, but the last is walked as such.",
        changes=(
            Change(
                SCHEDULE,
                "            nodes.append(heavy[nodes[-1]])",
                "            kids, sizes = tree.children[nodes[-1]], subtree_sizes(tree)\n"
                "            nodes.append(max(reversed(kids), key=lambda k: sizes[k]))",
            ),
        ),
        caught_by=(
            Fuzz("kernels"),
            Named("tests/core/test_schedule.py::test_star_shares_one_boundary"),
        ),
    ),
    Mutant(
        name="waves-of-the-whole-tree",
        wrong="All light chains are in one wave, those that branch off one another, too.",
        changes=(
            Change(
                SCHEDULE,
                "        level = 0 if parent < 0 else wave[parent] + 1",
                "        level = 0 if parent < 0 else 1",
            ),
        ),
        caught_by=(Named("tests/core/test_schedule.py::test_deep_waves"),),
    ),
    Mutant(
        name="pending-counts-read-by-layer",
        wrong="Counts by sequence and layer are read as counts by layer and sequence.",
        after="vllm#55504",
        changes=(
            Change(
                PLAN,
                "        pending_window=_int32([p.pending_window for p in places]).reshape(by_layer).T.copy(),",
                "        pending_window=_int32([p.pending_window for p in places]).reshape(by_layer[::-1]),",
            ),
        ),
        caught_by=(Named("tests/core/test_plan.py::test_two_sequences_by_hand"),),
    ),
    Mutant(
        name="position-is-the-index-in-the-tree",
        wrong="A node's position counts the rows before it instead of its depth.",
        after="mlxcel#1214",
        changes=(
            Change(
                PLAN,
                "        position += [place.committed + depth for depth in tree.depths]",
                "        position += [place.committed + node for node in range(len(tree))]",
            ),
        ),
        caught_by=(Fuzz("engine"), Named("tests/core/test_plan.py::test_two_sequences_by_hand")),
    ),
    Mutant(
        name="cache-row-is-the-depth",
        wrong="Siblings write their keys and values to one and the same row.",
        after="llama.cpp#20075",
        changes=(
            Change(
                PLAN,
                "        kv_row += range(place.committed, place.committed + len(tree))",
                "        kv_row += [place.committed + depth for depth in tree.depths]",
            ),
        ),
        caught_by=(Fuzz("engine"), Named("tests/core/test_plan.py::test_two_sequences_by_hand")),
    ),
    Mutant(
        name="path-of-the-chains-head",
        wrong="The first row of a light chain sees the ancestors of another chain.",
        after="vllm-ddtree",
        changes=(
            Change(
                PLAN,
                "        for row in chain.rows:\n            starts[row] = len(paths)\n",
                "        for row in chain.rows[1:]:\n            starts[row] = len(paths)\n",
            ),
        ),
        caught_by=(Fuzz("engine"), Named("tests/core/test_plan.py::test_two_sequences_by_hand")),
    ),
    Mutant(
        name="moves-not-shifted-by-the-committed-length",
        wrong="A commit moves rows of the prompt's beginning instead of the candidates'.",
        changes=(
            Change(
                PLAN,
                "[(a + length, b + length) for a, b in move.moves]",
                "[(a, b) for a, b in move.moves]",
            ),
        ),
        caught_by=(Fuzz("engine"), Named("tests/core/test_plan.py::test_commit_plan_by_hand")),
    ),
)
