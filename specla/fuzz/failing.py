"""A backend that fails on command, for injected failures, and that logs what it was asked to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

from specla.backends.compositions import COMPOSITIONS, Compositions
from specla.backends.plans import PlanBuffers
from specla.backends.steps import StepRunner

FOLDS = ("conv_verify", "gdn_verify", "fold_window", "fold_state")
KERNELS = (
    *FOLDS,
    *("embed", "quantise", "linear_quantised", "linear_float", "rms_norm", "gated_rms_norm"),
    *("l2_norm", "rotary", "swiglu", "sigmoid_gate", "add", "gdn_gates"),
    *("conv_prefill", "gdn_prefill", "gather", "kv_write", "attention", "kv_move"),
    *("feature_write", "feature_move", "argmax", "top_k", "soft_sums", "block_conv"),
)
TRANSFERS = ("upload", "download", "download_all", "copy", "clear")


@dataclass(frozen=True)
class Fold:
    """What a fold kernel was told: how many factors to fold for the sequence in each slot.

    kind: "window" or "state".
    """

    kind: str
    layer: int
    slots: list[int]
    counts: list[int]


class InjectedError(Exception):
    """What the failing backend raises."""


class FailingBackend:
    """Delegates to ``inner``; the n-th counted call after ``arm`` raises.

    when: "before" the inner call, "after" it, or "wreck": after it and after durable state of the
    layer was overwritten with NaN, as a half-finished write would leave it.
    log: a Fold for every completed fold kernel since ``log`` was last cleared.
    failed: (name, layer) of the call that raised.  failed_slots: of the sequences it was about, as
    far as its plan tells.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls = 0
        self.log: list[Fold] = []
        self.failed: tuple[str, int | None] | None = None
        self.failed_slots: list[int] = []
        self._countdown: int | None = None
        self._when = "before"
        self._names: tuple[str, ...] = KERNELS

    def arm(self, n: int, when: str = "before", names: tuple[str, ...] = KERNELS) -> None:
        """Raise at the n-th call (from 0) of ``names`` from now on."""
        self._countdown, self._when, self._names, self.failed = n, when, names, None

    def disarm(self) -> None:
        """No more failures."""
        self._countdown = None

    def step_runner(self) -> StepRunner:
        """One by one, so that each call can fail; a recorded step is none of this backend's."""
        return StepRunner()

    def plan_buffers(self, context: int) -> PlanBuffers:
        """Through this backend, so that each upload can fail."""
        backend: Any = self
        return PlanBuffers(backend)

    def __getattr__(self, name: str) -> Any:
        if name in COMPOSITIONS:
            # never fused: kernels one after another, so that each can fail
            return MethodType(getattr(Compositions, name), self)
        attribute = getattr(self.inner, name)
        if name not in KERNELS and name not in TRANSFERS:
            return attribute
        return lambda *args, **kwargs: self._call(name, attribute, args, kwargs)

    def _call(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        now = False
        if name in self._names:
            self.calls += 1
            if self._countdown is not None:
                now = self._countdown == 0
                self._countdown = None if now else self._countdown - 1
        layer, plan = _layer_and_plan(name, args)
        if now:
            self.failed = (name, layer)
            # a copy: the next plan goes to the same buffers
            self.failed_slots = plan.slot.tolist() if plan is not None else []
        if now and self._when == "before":
            raise InjectedError(f"before {name}, layer {layer}")
        result = function(*args, **kwargs)
        if now:
            if self._when == "wreck":
                _wreck(name, args, layer, plan)
            raise InjectedError(f"after {name}, layer {layer}")
        if name in FOLDS:
            pending = plan.pending_window if _is_window(name) else plan.pending_state
            kind = "window" if _is_window(name) else "state"
            # copies: the next plan goes to the same buffers
            self.log.append(Fold(kind, layer, plan.slot.tolist(), pending[layer].tolist()))
        return result


def _layer_and_plan(name: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    if name in ("fold_window", "fold_state"):
        return args[1], args[2]
    if name in ("conv_verify", "conv_prefill"):
        return args[3], args[4]
    if name in ("gdn_verify", "gdn_prefill"):
        return args[6], args[7]
    return None, None


def _is_window(name: str) -> bool:
    return name in ("fold_window", "conv_verify")


def _wreck(name: str, args: tuple[Any, ...], layer: Any, plan: Any) -> None:
    """NaN where a half-finished durable write may have left anything."""
    if name.endswith("_prefill"):
        pool = args[2] if name == "conv_prefill" else args[5]
        (pool.window if name == "conv_prefill" else pool.state)[plan.slot, layer] = float("nan")
    elif name in FOLDS:
        window = _is_window(name)
        pool = args[{"fold_window": 0, "fold_state": 0, "conv_verify": 2, "gdn_verify": 5}[name]]
        pending = (plan.pending_window if window else plan.pending_state)[layer]
        slots = plan.slot[pending > 0]
        (pool.window if window else pool.state)[slots, layer] = float("nan")
    elif name == "gather":
        pool, commit = args
        pool.delta[commit.slot, 1 - commit.source_bank] = float("nan")
