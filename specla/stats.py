"""What a generation cost and what speculation brought, as plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass
class GenerationStats:
    """Counters of one session. Times are seconds of wall clock.

    prompt_tokens: given, at first and by ``extend``.  prefilled: fed to the target outside rounds.
    accept_lengths: how often a round committed so many tokens, root included; plain decoding
    commits 1.  refused: proposals that were not verified; refusal: why the last one was not.
    adapter_errors: other calls of the adapter that failed; adapter_error: the last one.
    """

    prompt_tokens: int = 0
    prefilled: int = 0
    emitted: int = 0
    rounds: int = 0
    rows: int = 0
    refused: int = 0
    refusal: str | None = None
    adapter_errors: int = 0
    adapter_error: str | None = None
    accept_lengths: Counter[int] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's time to ``seconds[phase]``: prefill, draft, verify, choose, commit."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += perf_counter() - start  # type: ignore[assignment]

    def refuse(self, reason: str) -> None:
        """Count a proposal that was not verified."""
        self.refused += 1
        self.refusal = reason

    def fail(self, reason: str) -> None:
        """Count another call of the adapter that failed."""
        self.adapter_errors += 1
        self.adapter_error = reason

    @property
    def decode_seconds(self) -> float:
        """All time after the prefill."""
        return sum(t for phase, t in self.seconds.items() if phase != "prefill")

    @property
    def step_seconds(self) -> float:
        """All time in the target: verify, choice and commit."""
        return self.seconds["verify"] + self.seconds["choose"] + self.seconds["commit"]

    @property
    def mean_accept_length(self) -> float:
        """Tokens committed per round, root included (1.0 for plain decoding)."""
        committed = sum(length * n for length, n in self.accept_lengths.items())
        return committed / self.rounds if self.rounds else 0.0

    def report(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        decode = self.decode_seconds
        prefill = self.seconds["prefill"]
        return {
            "prompt_tokens": self.prompt_tokens,
            "prefilled_tokens": self.prefilled,
            "emitted_tokens": self.emitted,
            "rounds": self.rounds,
            "verified_rows": self.rows,
            "mean_accept_length": round(self.mean_accept_length, 4),
            "accept_length_histogram": dict(sorted(self.accept_lengths.items())),
            "refused_proposals": self.refused,
            "last_refusal": self.refusal,
            "adapter_errors": self.adapter_errors,
            "last_adapter_error": self.adapter_error,
            # the last prompt token is the root of the first round, no part of the prefill
            "prefill_tokens_per_second": _rate(self.prefilled, prefill),
            "decode_tokens_per_second": _rate(self.emitted, decode),
            "seconds": {phase: round(t, 6) for phase, t in sorted(self.seconds.items())},
            "share": {
                phase: round(t / decode, 4) if decode else 0.0
                for phase, t in sorted(self.seconds.items())
                if phase != "prefill"
            },
        }


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if seconds > 0 else 0.0
