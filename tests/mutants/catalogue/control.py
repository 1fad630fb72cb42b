"""A mutant that changes nothing: what catches mutants must let it pass."""

from __future__ import annotations

from mutants.mutant import Change, Mutant

_AFTER = "from __future__ import annotations\n"
_MODULES = (
    "specla.backends.numpy.gdn",
    "specla.core.banks",
    "specla.core.lifecycle",
    "specla.engine",
    "specla.models.store",
)

CONTROL = Mutant(
    name="control",
    wrong="Nothing: modules get one more comment.",
    changes=tuple(Change(name, _AFTER, f"{_AFTER}# nothing is wrong\n") for name in _MODULES),
    caught_by=(),
)
