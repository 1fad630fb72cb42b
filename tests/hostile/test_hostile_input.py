"""Hostile files, templates and proposals under limits: only our own errors, in bounds.

Each group runs in a process of its own with limits on memory and processor time, so that a crash
or a hang is a failed test and no more.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hostile_cases
import pytest

from specla.adapters.expression import parse
from specla.core.proposal import Proposal, SequenceView, to_tree
from specla.core.topology import Tree
from specla.errors import OptionError, ProposalError, SpeclaError, TopologyError
from specla.models.dflash.load import open_drafter
from specla.models.gguf import GgufFile
from specla.models.load import open_model
from specla.models.tokenizer import ChatTemplate

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="limits are set by Linux's means"
)
SPACE = 256 << 20
"""Bytes of address space for an input, beside the program: ten times what tracemalloc may count."""
SECONDS = 60
"""Processor time for a group, which takes about a tenth of it."""
NAMES = sorted(path.name for path in hostile_cases.FILES.iterdir()) + list(hostile_cases.MADE)


@cache
def outcomes(group: str) -> dict[str, str]:
    """Name of an input -> what it broke, or nothing."""

    def limit_time() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run(
        [sys.executable, hostile_cases.__file__, group, str(SPACE)],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=limit_time,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line[0]: line[1] for line in lines if isinstance(line, list)}
    begun = [line for line in lines if isinstance(line, str)]
    if done.returncode:
        what = begun[-1] if begun else "the beginning"
        found[what] = f"the process died with {done.returncode} in {what}: {done.stderr[-800:]}"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_regressions(name: str) -> None:
    assert outcomes("files").get(name, "was not run") == ""


REFUSED = {
    "a wide convolution in blocks": "ssm_conv1d.weight is Q4_0",
    "YaRN over nothing": "yarn_beta_fast is 5e-324",
    "YaRN over all": "yarn_beta_slow is 1e",
    "a YaRN factor of attention": "attn_factor is 1e",
    "a drafter's base near zero": "dflash.rope.freq_base is 1e-300",
    "a linear factor near zero": "scaling.factor is 1e-300",
    "a target's base near zero": "qwen35.rope.freq_base is 1e-300",
    "an epsilon of 1e300": "layer_norm_rms_epsilon is 1e",
    "a drafter of 2**40 layers": "block_count is 1099511627776",
}


@pytest.mark.parametrize("name", REFUSED)
def test_nonsense_is_refused_when_a_file_is_opened(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(hostile_cases.MADE[name]())
    drafter = GgufFile.open(path).architecture == "dflash"
    with pytest.raises(SpeclaError, match=re.escape(REFUSED[name])):
        (open_drafter if drafter else open_model)(path)


def _fails() -> Iterator[int]:
    yield 1
    raise LookupError("half\nway")


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        (Proposal([1], [-1], [10**400]), "OverflowError: "),
        (Proposal(_fails(), [-1]), "LookupError: half way"),  # type: ignore[arg-type]
    ],
)
def test_what_a_proposal_raises_is_a_bad_proposal(proposal: Proposal, words: str) -> None:
    view = SequenceView(1, [1, 2], 1, 4, 4, lambda start, stop: None)
    with pytest.raises(ProposalError, match=words):
        to_tree(proposal, view, vocab_size=9, adapter="a")


def test_trees_and_paths_without_end() -> None:
    with pytest.raises(TopologyError, match="at most 4096"):
        Tree.build(itertools.count(), itertools.count(-1))
    with pytest.raises(TopologyError, match=r"path\[2\]"):
        Tree.chain([1, 2]).check_path(itertools.count())


def test_an_adapters_name_is_short() -> None:
    with pytest.raises(
        OptionError, match=r"'dddddddddddddddddddd'\.\.\. is no adapter's name"
    ) as caught:
        parse("d" * 2000)
    assert len(str(caught.value)) < 400


def test_a_long_conversation_is_within_the_budget() -> None:
    from tools.fuzz_readers.seeds import TEMPLATE

    message = {"role": "user", "content": "x"}
    assert len(ChatTemplate(TEMPLATE).render([message] * 3000)) == 3000 * 29 + 12


def test_a_template_may_do_what_it_needs() -> None:
    """As much as a plain loop over the longest range, and texts of 100,000 characters."""
    loop = "{% for i in range(99999) %}{% endfor %}"
    source = loop + "{{ ('a' * 100000)|replace('a', 'b')|length }}"
    assert ChatTemplate(source).render([]) == "100000"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'aa'|replace('a', 'b', count=1) }}", "ba"),
        ("{{ 'aa'|replace(old='a', new='b') }}", "bb"),
        ("{{ [1, 2, 3]|batch(linecount=2, fill_with=0)|list }}", "[[1, 2], [3, 0]]"),
        ("{{ ' xax '|trim }}{{ 'xax'|trim(chars='x') }}", "xaxa"),
        ("{{ [1, 2]|sum(start=3) }}{{ 2.55|round(precision=1, method='floor') }}", "62.5"),
        ("{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|join(d='-') }}", "1-2"),
        ("{{ 'a\nb'|indent(width=2, first=true) }}", "  a\n  b"),
        ("{{ {'a': [1]}|tojson(indent=1) }}", '{\n "a": [\n  1\n ]\n}'),
        ("{{ '%s-%03d' % ('a', 7) }}{{ '{:>3}'.format('b') }}{{ '%s'|format(1) }}", "a-007  b1"),
    ],
)
def test_filters_take_their_arguments_as_ever(source: str, text: str) -> None:
    assert ChatTemplate(source).render([]) == text


def test_mutations() -> None:
    found = outcomes("mutations")
    assert {name: broken for name, broken in found.items() if broken} == {}
    assert len(found) == 9 * hostile_cases.MUTATIONS + 2 * hostile_cases.BUNDLED


def test_regression_files_are_small() -> None:
    assert {p.name for p in hostile_cases.FILES.iterdir() if p.stat().st_size > 5000} == set()
