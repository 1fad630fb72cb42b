"""Run something with a mutant on: ``python -m mutants NAME pytest ...`` or ``... fuzz ...``.

From the folder ``tests``, or with it on PYTHONPATH. Exits as the program does. Hypothesis takes the
same examples in every run and doesn't make what fails smaller.
"""

from __future__ import annotations

import sys

from mutants.catalogue import mutants
from mutants.catalogue.control import CONTROL
from mutants.kernels import own_kernels
from mutants.switch import switch_on


def main(arguments: list[str]) -> int:
    """NAME, then ``pytest`` or a command of ``specla``, and its arguments."""
    known = mutants | {CONTROL.name: CONTROL}
    if len(arguments) < 2 or arguments[0] not in known:
        print(f"usage: python -m mutants NAME pytest|COMMAND ...; names: {', '.join(known)}")
        return 2
    name, program, *rest = arguments
    with own_kernels(known[name]) as mutant:
        switch_on(mutant)
        if program == "pytest":
            return _pytest(rest)
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
