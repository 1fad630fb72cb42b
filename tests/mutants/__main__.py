"""Run something with a mutant on: ``python -m mutants NAME pytest ...`` or ``... fuzz ...``.

From the folder ``tests``, or with it on PYTHONPATH. Exits as the program does.
"""

from __future__ import annotations

import sys

from mutants.catalogue import mutants
from mutants.switch import switch_on


def main(arguments: list[str]) -> int:
    """NAME, then ``pytest`` or a command of ``specla``, and its arguments."""
    if not arguments or arguments[0] not in mutants or len(arguments) < 2:
        print(f"usage: python -m mutants NAME pytest|COMMAND ...; names: {', '.join(mutants)}")
        return 2
    name, program, *rest = arguments
    switch_on(mutants[name])
    if program == "pytest":
        import pytest

        return int(pytest.main(rest))
    from specla.cli import main as specla

    return specla([program, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
