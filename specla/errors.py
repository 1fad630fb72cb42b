"""The errors a user can cause. Each message is one line: the thing, the value, the remedy."""

from __future__ import annotations


class SpeclaError(Exception):
    """Base of every error that bad input can raise. The command line prints it and exits with 2."""


class FileFormatError(SpeclaError):
    """A model, tokenizer or checkpoint file is missing, damaged or inconsistent."""


class UnsupportedModelError(SpeclaError):
    """The file is sound, but specla can't run what it holds."""


class OptionError(SpeclaError):
    """An option, or a combination of options, makes no sense."""


class TopologyError(SpeclaError):
    """A tree or forest is malformed: wrong parents, duplicate siblings, too large."""


class ProposalError(SpeclaError):
    """An adapter proposed something that can't be verified."""


class LifecycleError(SpeclaError):
    """An operation was called in a state in which it is not legal. Nothing was changed."""


class BrokenSequenceError(LifecycleError):
    """A forward pass died half-way through a write: only restore() or close() may follow."""


class CapacityError(SpeclaError):
    """A request doesn't fit: context, pages, slots or factor banks are too small."""
