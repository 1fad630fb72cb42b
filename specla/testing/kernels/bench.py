"""One kernel call on two backends with the same inputs: both must write the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from specla.backends.base import Backend
from specla.backends.compositions import COMPOSITIONS
from specla.core.plan import Plan, map_arrays
from specla.testing.arrays import MOODS, Array, difference_of, equal, filled, values
from specla.testing.errors import ConformanceError

T = TypeVar("T")


@dataclass
class Bench:
    """A backend, and all arrays that a case gives it.

    Cases draw shapes and values from ``rng`` alone, so that two benches with the same seed see the
    same inputs.  mood: of the floats, see specla.testing.arrays.
    """

    backend: Backend
    rng: np.random.Generator
    mood: str
    _inputs: list[tuple[str, Any, Array]] = field(default_factory=list)
    _results: list[tuple[str, Any]] = field(default_factory=list)

    def pick(self, *options: T) -> T:
        """One of several sizes."""
        return options[int(self.rng.integers(len(options)))]

    def values(self, *shape: int) -> Array:
        """float32 of the bench's mood, on the host."""
        return values(self.rng, self.mood, *shape)

    def input(self, name: str, host: Array) -> Any:
        """Give an array that must not change."""
        device = self.backend.upload(host)
        self._inputs.append((name, device, host.copy()))
        return device

    def floats(self, name: str, *shape: int) -> Any:
        """Give floats that must not change."""
        return self.input(name, self.values(*shape))

    def strided(self, name: str, *shape: int) -> Any:
        """The same, half of the time as columns of a wider array."""
        host = self.values(*shape)
        if self.rng.random() < 0.5:
            return self.input(name, host)
        wide = np.full((*shape[:-1], shape[-1] + 5), np.nan, np.float32)
        wide[..., 3 : 3 + shape[-1]] = host
        return self.backend.columns(self.input(name, wide), 3, 3 + shape[-1])

    def result(self, name: str, *shape: int, dtype: str = "float32") -> Any:
        """An output that nobody has written: NaN, or the lowest integer."""
        return self.changing(name, filled(*shape, dtype=dtype))

    def changing(self, name: str, host: Array, into: Any = None) -> Any:
        """An array that is read and written. into: where the backend has room for it."""
        device = self.backend.upload(host) if into is None else into
        if into is not None:
            self.backend.upload(host, into=into)
        self._results.append((name, device))
        return device

    def plan(self, plan: Plan) -> Plan:
        """A plan on the device; its arrays must not change."""
        return map_arrays(plan, lambda name, array: self.input(f"plan.{name}", array))

    def host(self, name: str, value: Array) -> None:
        """Something that a case computed on the host, to be compared like an output."""
        self._results.append((name, np.asarray(value)))

    def changed_inputs(self) -> list[str]:
        """Names of inputs that are no longer what was given."""
        download = self.backend.download
        return [name for name, device, host in self._inputs if not equal(download(device), host)]

    def results(self) -> dict[str, Array]:
        """All outputs on the host."""
        return {
            name: array if isinstance(array, np.ndarray) else self.backend.download(array)
            for name, array in self._results
        }


Case = Callable[[Bench], None]


class KernelCases:
    """Cases by the name of the protocol's method."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def add(self, name: str) -> Callable[[Case], Case]:
        """Decorator: enter the case of a kernel."""

        def enter(case: Case) -> Case:
            if name in self.cases:
                raise ValueError(f"kernel {name!r} has two cases")
            self.cases[name] = case
            return case

        return enter

    def missing(self, protocol: type[Backend] = Backend) -> set[str]:
        """Abstract methods and compositions of the protocol that no case tries."""
        return {*protocol.__abstractmethods__, *COMPOSITIONS} - set(self.cases)


def compare(name: str, case: Case, tested: Backend, reference: Backend, examples: int) -> None:
    """Run a case on both backends, ``examples`` times. Raises ConformanceError."""
    for example in range(examples):
        mood = MOODS[example % len(MOODS)]
        seed = [example, *name.encode()]
        compare_one(name, case, tested, reference, seed, mood, f"example {example}")


def compare_one(
    name: str,
    case: Case,
    tested: Backend,
    reference: Backend,
    seed: int | Sequence[int],
    mood: str,
    label: str = "",
) -> None:
    """Run a case once on both backends, with what a seed draws. Raises ConformanceError, which
    calls the example ``label``, or by its seed."""
    benches = [Bench(backend, np.random.default_rng(seed), mood) for backend in (reference, tested)]
    case(benches[0])
    where = f"{label or f'seed {seed}'} ({mood} floats)"
    try:
        case(benches[1])
    except Exception as error:
        raise ConformanceError(
            name,
            expected=f"{name} to run, {where}",
            found=f"{type(error).__name__}: {' '.join(str(error).split())}",
            remedy="See the cause below.",
        ) from error
    _compare(name, where, benches[1], benches[0])


def _compare(name: str, where: str, tested: Bench, reference: Bench) -> None:
    found, wanted = tested.results(), reference.results()
    where_defined = "compositions.py" if name in COMPOSITIONS else "base.py"
    for output, array in wanted.items():
        if not equal(found[output], array):
            raise ConformanceError(
                name,
                expected=f"the reference's bytes in {output!r}, {where}",
                found=difference_of(found[output], array),
                remedy=f"See Backend.{name} in specla/backends/{where_defined} and "
                "docs/arithmetic.md, which fix every operation and its order.",
            )
    changed = tested.changed_inputs()
    if changed:
        raise ConformanceError(
            name,
            expected=f"inputs to stay as they are, {where}",
            found=f"that {', '.join(map(repr, changed))} changed",
            remedy="Write to the out arguments only.",
        )
