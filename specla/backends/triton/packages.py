"""Whether torch and Triton are here, in one line with the remedy. Imports neither on its own."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

from specla.errors import OptionError

NEEDED = ("torch", "triton")
TESTED = ((3, 6), (3, 9))
"""First and last version of Triton that the tests run on."""

INSTALL = (
    'pip install "specla[triton]" (for an AMD GPU with a ROCm build of torch, which brings Triton, '
    "see https://pytorch.org/get-started)"
)


def require() -> None:
    """Import torch and triton. Raises OptionError, one line, where that can't be done."""
    # look first: importing torch takes seconds
    why = next(filter(None, map(missing, NEEDED)), None)
    why = why or next(filter(None, map(broken, NEEDED)), None)
    if why is not None:
        raise OptionError(f"backend 'triton' can't be used: {why}")


def missing(name: str) -> str | None:
    """What to do where a package isn't installed, None where it is; imports nothing."""
    if found(name):
        return None
    return f"the package {name} isn't installed; install it with {INSTALL}"


def found(name: str) -> bool:
    """Whether there is a package of this name to import."""
    try:
        return find_spec(name) is not None
    except ValueError:  # imported already, by unusual means
        return True


def broken(name: str) -> str | None:
    """Why importing a package fails, None if it doesn't."""
    try:
        module = import_module(name)
    # a library that doesn't load, another Python, a half-removed package
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        return f"importing {name} failed: {type(error).__name__}: {text}; install it anew"
    if not hasattr(module, "__version__"):
        where = getattr(module, "__file__", None) or next(iter(module.__path__))
        return f"{where} is taken for the package {name}, but isn't it; rename or remove it"
    return None


def untested(version: str) -> str | None:
    """A line to tell for a version of Triton that the tests don't run on, or None."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or TESTED[0] <= (int(numbers[1]), int(numbers[2])) <= TESTED[1]:
        return None
    first, last = (".".join(map(str, numbers)) for numbers in TESTED)
    return (
        f"Triton {version} is not among {first} to {last}, with which specla is tested; "
        f"specla.testing.check_backend('triton') compares it with the reference"
    )
