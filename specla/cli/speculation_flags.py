"""What a user may say about speculation: flags and environment, checked before a file is opened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from specla.errors import OptionError
from specla.request import DEFAULT_BUDGET

AUTO = "auto"
MAX_BUDGET = 4095
MAX_TOP_K = 4096
MAX_WINDOW = 1 << 30
MAX_BLOCK = 32

SPECLA = "DFLASH_SPECLA"
TOP_K = "DFLASH_SPECLA_TOPK"
CONDITIONAL = "DFLASH_SPECLA_CONDITIONAL_DRAFT"
FUSED = "DFLASH_SPECLA_FUSED_COMMIT"


@dataclass(frozen=True)
class Environment:
    """The variables of the seed project that harnesses set.

    specla: as --specla.  top_k: as --specla-top-k.  conditional: draft again for every branch.
    fused_commit: fold accepted factors in the next verify, not in a pass of their own.  None is
    unset.
    """

    specla: bool = False
    top_k: int | None = None
    conditional: bool | None = None
    fused_commit: bool = True

    @staticmethod
    def read(variables: Mapping[str, str]) -> Environment:
        """Raises OptionError, naming the variable, for a value that makes no sense."""
        return Environment(
            specla=variables.get(SPECLA, "") not in ("", "0"),
            top_k=_positive(variables, TOP_K),
            conditional=_switch(variables, CONDITIONAL),
            fused_commit=_switch(variables, FUSED) is not False,
        )


def _positive(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= number <= MAX_TOP_K:
        raise OptionError(f"{name} is {text!r}; set it to 1..{MAX_TOP_K}, or unset it")
    return number


def _switch(variables: Mapping[str, str], name: str) -> bool | None:
    text = variables.get(name, "")
    if text not in ("", "0", "1"):
        raise OptionError(f"{name} is {text!r}; set it to 0 or 1, or unset it")
    return text == "1" if text else None


@dataclass(frozen=True)
class SpeculationFlags:
    """Flags as given; None is not given.

    adapter: "auto", a name or an expression.  adapter_options: of --adapter-opt.  specla: --specla
    or --no-specla.  tau, top_k: of --ddtree-tau and --specla-top-k.  window, block: of --draft-swa
    and --draft-block-size.  environment: what holds where no flag says otherwise.

    Raises OptionError, one line, for numbers out of range and for flags that exclude each other.
    """

    adapter: str = AUTO
    adapter_options: tuple[tuple[str, str], ...] = ()
    draft: str | None = None
    specla: bool | None = None
    budget: int | None = None
    ddtree_budget: int | None = None
    tau: float | None = None
    top_k: int | None = None
    window: int | None = None
    block: int | None = None
    fast_rollback: bool = True
    seq_verify: bool = False
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.specla and not self.fast_rollback:
            raise OptionError(
                "--specla rolls back by its factor banks, --no-fast-rollback by a snapshot; "
                "leave one out"
            )
        if self.specla and self.seq_verify:
            raise OptionError(
                "--specla verifies a tree in one pass, --seq-verify node by node; leave one out"
            )
        if self.seq_verify and not self.fast_rollback:
            raise OptionError("--seq-verify has nothing to roll back; leave --no-fast-rollback out")
        if self.top_k is not None and not self.uses_specla:
            raise OptionError(
                f"--specla-top-k is {self.top_k}, but SpecLA isn't asked for; give --specla too, "
                f"or --adapter-opt top_k={self.top_k}"
            )
        if self.draft == "":
            raise OptionError("--draft is empty; name a GGUF file or leave it out")

    def _check_numbers(self) -> None:
        check_range("--budget", self.budget, 0, MAX_BUDGET)
        check_range("--ddtree-budget", self.ddtree_budget, 1, MAX_BUDGET)
        if None not in (self.budget, self.ddtree_budget) and self.budget != self.ddtree_budget:
            raise OptionError(
                f"--budget is {self.budget} and --ddtree-budget {self.ddtree_budget}, which mean "
                f"the same; give one"
            )
        if self.tau is not None and not (math.isfinite(self.tau) and self.tau >= 0):
            raise OptionError(f"--ddtree-tau is {self.tau}; it must be finite, 0 or more")
        check_range("--specla-top-k", self.top_k, 1, MAX_TOP_K)
        check_range("--draft-swa", self.window, 1, MAX_WINDOW)
        check_range("--draft-block-size", self.block, 2, MAX_BLOCK)

    @property
    def uses_specla(self) -> bool:
        """Whether SpecLA is asked for. Flags go before the environment: one that SpecLA can't be
        combined with switches off what only the environment asks for."""
        if self.specla is not None:
            return self.specla
        return self.environment.specla and self.fast_rollback and not self.seq_verify

    @property
    def most_candidates(self) -> int:
        """Of one round."""
        given = (self.budget, self.ddtree_budget)
        return next((value for value in given if value is not None), DEFAULT_BUDGET)


def check_range(option: str, value: int | None, low: int, high: int) -> None:
    """Raise OptionError for a value outside low..high; None is always right."""
    if value is not None and not low <= value <= high:
        raise OptionError(f"{option} is {value}; it must be {low}..{high}")
