"""What the processor can do, as Numba compiles for it, and the integer dot that follows."""

from __future__ import annotations

import os
from functools import cache

from specla.errors import OptionError

LEVELS = ("portable", "avx2", "vnni256", "vnni")
VARIABLE = "SPECLA_CPU_LEVEL"


@cache
def _features() -> frozenset[str]:
    from numba.core.registry import cpu_target

    # NUMBA_CPU_FEATURES limits these, too
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


def has(feature: str) -> bool:
    """Whether compiled code may use ``feature`` (LLVM's name)."""
    return feature in _features()


def supported(level: str) -> bool:
    """Whether this machine can run a level of LEVELS."""
    if level == "vnni":
        return all(has(f) for f in ("avx512f", "avx512bw", "avx512vl", "avx512vnni"))
    if level == "vnni256":
        return has("avxvnni") or (has("avx512vl") and has("avx512vnni"))
    return level == "portable" or has("avx2")


def choose_level(wanted: str | None = None) -> str:
    """The level to use: ``wanted``, else the environment's, else the best this machine has.

    All levels compute the same bits. Raises OptionError for one that is unknown or can't run here.
    """
    source = "CPU level" if wanted else VARIABLE
    wanted = wanted or os.environ.get(VARIABLE)
    if not wanted:
        return [level for level in LEVELS if supported(level)][-1]
    if wanted not in LEVELS:
        raise OptionError(f"{source} {wanted!r} is unknown; choose one of {', '.join(LEVELS)}")
    if not supported(wanted):
        raise OptionError(f"{source} {wanted} isn't supported by this processor; leave it unset")
    return wanted
