"""What is asked of a generation, and what comes back token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from specla.core.sampling import Sampler
from specla.errors import OptionError

DEFAULT_BUDGET = 22
"""Most candidates of one round unless the caller says otherwise (SpecLA's default)."""


class Stop(Enum):
    """Why a generation ended."""

    END_OF_TEXT = "end of text"
    STOP_RULE = "stop rule"
    MAX_TOKENS = "token limit"
    CONTEXT = "context is full"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class TokenEvent:
    """One emitted token. position: its index in prompt plus text.

    stop: set on the last one, unless the generation is cancelled or closed after that.
    """

    token: int
    position: int
    stop: Stop | None = None


@dataclass(frozen=True)
class Request:
    """One generation. stop_ids: tokens that end the text (they are emitted, as the last one).

    stop_rule: told every emitted token but a stop id; True stops after it (stop strings, say).
    on_logits: told (position, logits float32 [vocab]) of every emitted token, for checks.
    """

    max_tokens: int
    sampler: Sampler
    stop_ids: frozenset[int] = frozenset()
    budget: int = DEFAULT_BUDGET
    stop_rule: Callable[[int], bool] | None = None
    on_logits: Callable[[int, npt.NDArray[np.float32]], None] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        for name in ("max_tokens", "budget"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise OptionError(f"{name} is {value!r}; it must be a whole number, 0 or more")
