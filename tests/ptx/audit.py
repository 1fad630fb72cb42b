"""Compile every kernel of the Triton backend for every target, check the code, tabulate its size.

Kernels are found by recording what a large model launches (model.py), so new ones join by
themselves. Those that it doesn't need are found in the cases of specla.testing.kernels, where the
launch with the largest constants (tiles) speaks for a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import triton

from ptx.cases import launching_cases, recorded
from ptx.compile import TARGETS, Launch, Resources, compile_for, resources_of
from ptx.model import model_launches
from ptx.rules import forbidden_in_amdgcn, forbidden_in_ptx

EXAMPLES = 15
"""Calls of each case: enough to see its large shapes."""


@dataclass(frozen=True)
class Finding:
    """A kernel's code on a target. problems: what the rules forbid, spills among it."""

    kernel: str
    constants: str
    warps: int
    target: str
    resources: Resources
    problems: tuple[str, ...]


@cache
def default_launches() -> tuple[Launch, ...]:
    """What a large model launches, and one launch of every other kernel that the cases reach."""
    found = model_launches()
    known = {launch.name for launch in found}
    others: dict[str, Launch] = {}
    for name, case in launching_cases().items():
        for launch in recorded(case, name, EXAMPLES):
            if launch.name not in known:
                others[launch.name] = max(launch, others.get(launch.name, launch), key=_size)
    return (*found, *others.values())


def one_of_each() -> list[Launch]:
    """Of each kernel the default launch with the largest constants."""
    largest: dict[str, Launch] = {}
    for launch in default_launches():
        largest[launch.name] = max(launch, largest.get(launch.name, launch), key=_size)
    return list(largest.values())


def _size(launch: Launch) -> int:
    return sum(value for value in launch.constants.values() if isinstance(value, int))


def audit(launches: Iterable[Launch], targets: Iterable[str] = TARGETS) -> Iterator[Finding]:
    """Compile and check; a finding per launch and target."""
    names = list(targets)
    for launch in launches:
        for target in names:
            yield _finding(launch, target)


def _finding(launch: Launch, target: str) -> Finding:
    compiled = compile_for(launch, target)
    resources = resources_of(compiled)
    if "ptx" in compiled.asm:
        problems = forbidden_in_ptx(compiled.asm["ptx"])
    else:
        problems = forbidden_in_amdgcn(compiled.asm["amdgcn"])
    if resources.spills:
        problems.append(f"{resources.spills} spills")
    if resources.private:
        problems.append(f"{resources.private} bytes of private memory")
    warps = int(launch.options["num_warps"])
    return Finding(launch.name, _constants(launch), warps, target, resources, tuple(problems))


def _constants(launch: Launch) -> str:
    """The kernel's own constants; integers that became ones are left out."""
    names = list(launch.signature)
    own = {param.name for param in launch.kernel.params if param.is_constexpr}
    return ", ".join(
        f"{names[at[0]]}={value}" for at, value in launch.constants.items() if names[at[0]] in own
    )


def table(findings: Iterable[Finding]) -> str:
    """Markdown: a row per kernel and its constants, a column per target.

    Of launches that differ in the alignment of their arguments, the largest code is shown.
    """
    rows: dict[tuple[str, str, int], dict[str, Resources]] = {}
    for one in findings:
        row = rows.setdefault((one.kernel, one.constants, one.warps), {})
        row[one.target] = max(
            one.resources, row.get(one.target, one.resources), key=lambda r: r.code
        )
    targets = list(next(iter(rows.values()), {}))
    lines = [
        f"| kernel | constants | warps | {' | '.join(targets)} |",
        f"|{'---|' * (3 + len(targets))}",
    ]
    for (kernel, constants, warps), found in rows.items():
        cells = [f"{r.registers} / {r.shared} / {r.code}" for r in map(found.__getitem__, targets)]
        lines.append(f"| `{kernel}` | {constants} | {warps} | {' | '.join(cells)} |")
    return "\n".join(lines)


BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def page_with(page: str, findings: Iterable[Finding]) -> str:
    """The page with its table made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    version = f"Triton {triton.__version__}. Registers / bytes of shared memory / bytes of code."
    return f"{before}{BEGIN}\n{version}\n\n{table(findings)}\n{END}{after}"
