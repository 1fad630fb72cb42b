"""docs/bug-zoo.md and what it names: every report has a test, every test a mutant that it kills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutants.catalogue import mutants
from mutants.mutant import Named

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "bug-zoo.md").read_text(encoding="utf-8")
TABLES, _, CANNOT = PAGE.partition("\n## Cannot exist here\n")

REPORTS = {
    "vllm": (
        *(39273, 39809, 40738, 40875, 41233, 42960, 43559, 45614, 46424, 47635, 48375, 50272),
        *(51812, 52942, 53505, 54928, 55504, 56531),
    ),
    "sglang": (*(19415, 27463, 28484, 28695, 29449, 30204, 31099, 33630, 35150, 35541, 36201),),
    "llama.cpp": (20075, 23335, 26695),
    "TheTom/llama-cpp-turboquant": (345,),
    "rMLX": (436,),
    "imp": (1503,),
    "Atlas": (435, 604),
    "mlxcel": (1189, 1201, 1214),
    "mlx-vlm": (1188,),
    "mlx-lm": (1446, 1486),
    "transformers": (45513,),
    "lattice": (243,),
    "TyloQuant": (6,),
    "omlx": (3370,),
    "fak": (12422,),
    "lucebox": (626, 692),
}
"""The survey of public reports that the zoo was made from."""

LESSONS_OF_VLLM_DDTREE = 6
"""Five faults and an advice."""

READ_IN_LUCEBOX = 11
"""Places in lucebox, one row each; lucebox#626 has its number."""


def _rows() -> list[tuple[str, list[str], list[str]]]:
    """(report, tests, mutants) of each row of the tables."""
    rows = []
    for line in TABLES.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "report":
            assert len(cells) == 4, line
            rows.append((cells[0], *(re.findall(r"`([^`]+)`", cell) for cell in cells[2:])))
    return rows  # type: ignore[return-value]


ROWS = _rows()


def _defined() -> dict[str, str]:
    """File of every test of the zoo."""
    return {
        name: path.name
        for path in HERE.glob("test_zoo_*.py")
        if path.name != Path(__file__).name
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


DEFINED = _defined()


@pytest.mark.parametrize(("report", "tests", "planted"), ROWS)
def test_a_row_names_tests_and_mutants_that_exist(
    report: str, tests: list[str], planted: list[str]
) -> None:
    assert tests and planted, report
    wanted = {f"tests/zoo/{DEFINED[test]}::{test}" for test in tests}
    caught = set()
    for name in planted:
        by = {catcher.test for catcher in mutants[name].caught_by if isinstance(catcher, Named)}
        assert by & wanted, f"{name} is caught by none of {tests}"
        assert mutants[name].after
        caught |= by
    assert wanted <= caught, "a test that no mutant shows to be able to fail"


def test_every_report_has_a_row() -> None:
    told = "\n".join(report for report, _, _ in ROWS)
    reports = [f"{project}#{number}" for project, some in REPORTS.items() for number in some]
    assert [report for report in reports if not re.search(rf"{report}\b", told)] == []
    assert told.count("vllm-ddtree]") == LESSONS_OF_VLLM_DDTREE
    assert told.count("lucebox, by reading") == READ_IN_LUCEBOX


def test_every_test_and_mutant_of_the_zoo_has_a_row() -> None:
    named = {test for _, tests, _ in ROWS for test in tests}
    pinned = set(re.findall(r"`(test_\w+)`", CANNOT))
    assert set(DEFINED) == named | pinned
    planted = [name for _, _, names in ROWS for name in names]
    assert sorted(planted) == sorted(name for name in mutants if name.startswith("zoo-"))


def test_links_lead_to_the_report_that_they_name() -> None:
    found = re.findall(r"\[([\w./-]+)#(\d+)\]\(https://github.com/([\w./-]+)/issues/(\d+)\)", PAGE)
    assert len(found) > 40
    for name, number, repository, linked in found:
        assert number == linked
        assert name.lower().split("/")[-1] == repository.lower().split("/")[-1]
