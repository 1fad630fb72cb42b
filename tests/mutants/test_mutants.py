"""Planted bugs: the catalogue is in order (always), and every bug is caught (``-m mutants``)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

import pytest

from mutants import table
from mutants.catalogue import PARTS, mutants
from mutants.catalogue.control import CONTROL
from mutants.kernels import is_compiled, never_compiled
from mutants.mutant import Change, Fuzz, Mutant, Named
from mutants.running import CI_ROUNDS, TESTS, judge
from mutants.switch import StaleMutantError, changed, source_of


def _kind(catcher: Fuzz | Named) -> str:
    return f"fuzz-{catcher.level}" if isinstance(catcher, Fuzz) else "test"


EVERYONE = [*mutants.values(), CONTROL]
CATCHERS = [
    pytest.param(mutant.name, catcher, id=f"{mutant.name}-{_kind(catcher)}-{i}")
    for mutant in mutants.values()
    for i, catcher in enumerate(mutant.caught_by)
]
FUZZ = dict.fromkeys(
    catcher for m in mutants.values() for catcher in m.caught_by if isinstance(catcher, Fuzz)
)
NAMED = dict.fromkeys(
    catcher for m in mutants.values() for catcher in m.caught_by if isinstance(catcher, Named)
)


# -- the catalogue -----------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", EVERYONE, ids=lambda mutant: mutant.name)
def test_changes_are_of_the_present_code(mutant: Mutant) -> None:
    by_module = defaultdict(list)
    for change in mutant.changes:
        assert change.old != change.new
        by_module[change.module].append(change)
    for module, changes in by_module.items():
        source = source_of(module)
        compile(changed(source, changes), module, "exec")


def test_descriptions_and_catchers() -> None:
    for name, mutant in mutants.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name), name
        assert mutant.wrong.endswith(".") and "\n" not in mutant.wrong, name
        assert mutant.caught_by, f"{name} is caught by nothing"
        for catcher in mutant.caught_by:
            if isinstance(catcher, Named):
                assert "::" in catcher.test, f"{name}: name one test, not a file"
            else:
                assert catcher.level in CI_ROUNDS, name
    assert CONTROL.name not in mutants
    assert len(mutants) >= 45


def test_named_tests_exist() -> None:
    names = [named.test for named in NAMED]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *names],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_the_page_is_current() -> None:
    assert set(PARTS) <= set(table.TITLES)
    found = table.PAGE.read_text(encoding="utf-8")
    assert found == table.page(), "run `cd tests && python -m mutants.table`"


# -- the machinery -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["", "x = 1\nx = 1\n"])
def test_a_text_that_is_not_there_once_is_stale(source: str) -> None:
    with pytest.raises(StaleMutantError, match="times, not once"):
        changed(source, [Change("some.module", "x = 1", "x = 2")])


def test_no_such_module() -> None:
    with pytest.raises(StaleMutantError, match=r"no module specla\.nowhere"):
        source_of("specla.nowhere")


def test_which_mutants_compile_anew() -> None:
    assert "specla.backends.numba.steps" in never_compiled()
    assert not is_compiled(mutants["progress-of-the-step-before"])
    assert is_compiled(mutants["compiled-gather-forgets-the-decays"])
    assert not is_compiled(CONTROL)


def test_a_test_that_is_not_there_catches_nothing() -> None:
    verdict = judge(CONTROL.name, Named("tests/mutants/test_mutants.py::test_nowhere"))
    assert not verdict.caught and not verdict.passed


def test_a_mutant_is_on_and_its_failure_is_told_from_success() -> None:
    named = Named("tests/core/test_banks.py::test_truth_table")
    assert judge("banks-not-rotated", named).caught
    verdict = judge(CONTROL.name, named)
    assert verdict.passed and not verdict.caught


def test_a_failure_is_seen_through_any_length_of_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI is set, pytest shows two differing arrays of bytes to their last byte."""
    monkeypatch.setenv("CI", "true")
    name = "features-of-rejected-rows"
    (named,) = (c for c in mutants[name].caught_by if isinstance(c, Named))
    verdict = judge(name, named)
    assert verdict.caught
    assert len(verdict.output) > 2 * len(verdict.end)


# -- the bugs ------------------------------------------------------------------------------------


@pytest.mark.mutants
@pytest.mark.parametrize(("name", "catcher"), CATCHERS)
def test_it_is_caught(name: str, catcher: Fuzz | Named) -> None:
    verdict = judge(name, catcher)
    assert not verdict.passed, f"{name} survived {catcher}: a hole"
    assert verdict.caught, f"{catcher} ended otherwise:\n{verdict.end}"


@pytest.mark.mutants
@pytest.mark.parametrize("catcher", FUZZ, ids=lambda c: f"{c.level}-{c.backend}")
def test_the_fuzzer_finds_nothing_without_one(catcher: Fuzz) -> None:
    verdict = judge(CONTROL.name, catcher)
    assert verdict.passed, verdict.end


@pytest.mark.mutants
def test_all_named_tests_pass_without_one() -> None:
    verdict = judge(CONTROL.name, list(NAMED))
    assert verdict.passed, verdict.end
