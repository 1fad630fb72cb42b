"""Run something with a mutant on: ``python -m mutants NAME pytest ...``, ``... fuzz ...``, or
``... script FILE``, which runs a Python program.

From the folder ``tests``, or with it on PYTHONPATH. Exits as the program does. Hypothesis takes the
same examples in every run and doesn't make what fails smaller.
"""

from __future__ import annotations

import runpy
import sys

from mutants.catalogue import mutants
from mutants.catalogue.control import CONTROL
from mutants.kernels import own_kernels
from mutants.switch import switch_on


def main(arguments: list[str]) -> int:
    """NAME, then ``pytest``, ``script`` or a command of ``specla``, and its arguments."""
    known = mutants | {CONTROL.name: CONTROL}
    if arguments == ["--list"]:
        print(*known, sep="\n")
        return 0
    if len(arguments) < 2:
        print("usage: python -m mutants NAME pytest|script|COMMAND ..., or --list", file=sys.stderr)
        return 2
    if arguments[0] not in known:
        print(f"no bug is called {arguments[0]!r}; python -m mutants --list", file=sys.stderr)
        return 2
    name, program, *rest = arguments
    with own_kernels(known[name]) as mutant:
        switch_on(mutant)
        if program == "pytest":
            return _pytest(rest)
        if program == "script":
            runpy.run_path(rest[0], run_name="__main__")
            return 0
        from specla.cli import main as specla

        return specla([program, *rest])


def _pytest(arguments: list[str]) -> int:
    import pytest
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # Hypothesis is imported already
    options = ["-p", "no:cacheprovider", "--hypothesis-profile=mutants", *quiet]
    return int(pytest.main([*options, *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
