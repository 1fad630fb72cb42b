"""Every kernel of the protocol, interpreted, has the reference's bytes, whatever is drawn.

Shapes and floats come from the cases of specla.testing.kernels: a new kernel joins by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from interpreted.planted import PLANTED, Bug, planted  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.testing.arrays import MOODS  # noqa: E402
from specla.testing.errors import ConformanceError  # noqa: E402
from specla.testing.kernels import kernel_cases  # noqa: E402
from specla.testing.kernels.bench import compare, compare_one  # noqa: E402

pytestmark = MARKS

EXAMPLES = {name: 3 if name == "attention" else 12 for name in kernel_cases.cases}
"""Attention has most programs by far; the interpreter takes milliseconds for each."""

TRITON, NUMPY = TritonBackend(), NumpyBackend()


@pytest.mark.parametrize("name", kernel_cases.cases)
def test_every_kernel_has_the_reference_bytes(name: str) -> None:
    # a seed draws everything at once: there is no smaller one to look for
    @settings(max_examples=EXAMPLES[name], phases=[Phase.reuse, Phase.generate])
    @given(seed=st.integers(0, 2**32 - 1), mood=st.sampled_from(MOODS))
    def drawn(seed: int, mood: str) -> None:
        compare_one(name, kernel_cases.cases[name], TRITON, NUMPY, seed, mood)

    drawn()


def test_small_bfloat16_is_widened_exactly() -> None:
    """The interpreter's own conversion took subnormals for something else."""
    case = kernel_cases.cases["embed"]
    compare_one("embed", case, TRITON, NUMPY, 1_165_185_863, "tiny")


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    case = kernel_cases.cases[bug.kernel]
    with pytest.raises(ConformanceError) as caught:
        compare(bug.kernel, case, planted(bug, tmp_path), NUMPY, 20)
    assert caught.value.check == bug.kernel
    assert "differ" in str(caught.value)


def test_a_change_that_is_no_bug_passes(tmp_path: Path) -> None:
    harmless = Bug("harmless", "gather", "gather", "Gather", "BLOCK = 512", "BLOCK = 64")
    compare("gather", kernel_cases.cases["gather"], planted(harmless, tmp_path), NUMPY, 5)
