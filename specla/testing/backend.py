"""``check_backend``: every kernel against the reference, in bytes, then whole decodings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specla.adapters.replay import ReplayAdapter
from specla.backends import create_backend
from specla.backends.base import Backend
from specla.backends.numpy.backend import NumpyBackend
from specla.check import MismatchError, Trace, compare, plain_decode
from specla.core.sampling import Sampler
from specla.engine import Request, Session
from specla.models.load import ModelFile, bundled_model, open_model
from specla.models.qwen35.target import TargetOptions
from specla.testing.adapter import names_of
from specla.testing.errors import ConformanceError
from specla.testing.kernels import bench, kernel_cases
from specla.testing.report import BackendReport
from specla.testing.subject import PROMPTS, SAMPLING
from specla.testing.table import Table

OPTIONS = TargetOptions(context=256, max_nodes=65, chunk=7, poison=True)


@dataclass
class Candidate:
    """The backend under test. plain: what the reference decoded, by sampling."""

    backend: Backend
    reference: Backend
    model: ModelFile
    examples: int
    tokens: int
    _plain: dict[str, tuple[Trace, Any]] = field(default_factory=dict)

    @property
    def prompt(self) -> list[int]:
        """A text that repeats itself."""
        return self.model.tokenizer.encode(PROMPTS[0], parse_special=False)

    def plain(self, sampling: str) -> tuple[Trace, Any]:
        """Plain decoding on the reference."""
        if sampling not in self._plain:
            target, sampler = (
                self.model.target(self.reference, OPTIONS),
                Sampler(SAMPLING[sampling]),
            )
            self._plain[sampling] = plain_decode(target, self.prompt, self.tokens, sampler)
        return self._plain[sampling]


backend_checks: Table[Candidate] = Table("backend")


def _kernel_check(name: str) -> Callable[[Candidate], str]:
    def check(candidate: Candidate) -> str:
        bench.compare(
            name,
            kernel_cases.cases[name],
            candidate.backend,
            candidate.reference,
            candidate.examples,
        )
        return f"{candidate.examples} examples"

    check.__doc__ = f"{name} writes the reference's bytes, all of them, and nothing else."
    return check


for _name in kernel_cases.cases:
    backend_checks.add(_name)(_kernel_check(_name))


@backend_checks.add("engine.plain")
def plain_decoding(candidate: Candidate) -> str:
    """Plain decoding of the bundled model has the reference's tokens, logits and state."""
    for sampling in SAMPLING:
        target = candidate.model.target(candidate.backend, OPTIONS)
        trace, state = plain_decode(
            target, candidate.prompt, candidate.tokens, Sampler(SAMPLING[sampling])
        )
        _same("engine.plain", candidate, sampling, trace, state)
    return f"{candidate.tokens} tokens, greedy and sampled"


@backend_checks.add("engine.trees")
def speculative_decoding(candidate: Candidate) -> str:
    """Speculation over trees and chains has the bytes of plain decoding on the reference."""
    target = candidate.model.target(candidate.backend, OPTIONS)
    for sampling in SAMPLING:
        truth = candidate.plain(sampling)[0].tokens
        for make in (
            partial(ReplayAdapter.of, truth, error=0.25, seed=3),
            partial(ReplayAdapter.of, truth, error=0.1, branch=3, side_depth=2, seed=4),
        ):
            trace = Trace()
            with Session(target, make(), candidate.prompt) as session:
                request = Request(
                    candidate.tokens,
                    Sampler(SAMPLING[sampling]),
                    budget=22,
                    on_logits=trace.on_logits,
                )
                trace.tokens = [event.token for event in session.generate(request)]
                state = target.state_arrays(session.sequence)
            _same("engine.trees", candidate, sampling, trace, state)
    return f"{candidate.tokens} tokens, chains and trees, greedy and sampled"


def _same(check: str, candidate: Candidate, sampling: str, trace: Trace, state: Any) -> None:
    plain, wanted = candidate.plain(sampling)
    try:
        compare(trace, plain, state, wanted, len(candidate.prompt))
    except MismatchError as error:
        raise ConformanceError(
            check,
            expected=f"the reference's bytes ({sampling})",
            found=str(error),
            remedy="All kernels passed alone? Then look at what happens between them: buffers used "
            "again, the order of asynchronous calls, a step that was recorded.",
        ) from error


def check_backend(
    backend: str | Backend | type[Backend],
    *,
    model: ModelFile | str | Path | None = None,
    threads: int | None = None,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    examples: int = 15,
    tokens: int = 12,
) -> BackendReport:
    """Compare a backend with the NumPy reference, byte for byte.

    backend: a name as for ``specla decode --backend``, a class, or an instance.  threads: for a
    name.  model: for the whole decodings; the bundled one, unless given.  only, skip: names of
    checks: the kernels' own, ``engine.plain``, ``engine.trees``.  examples: calls of each kernel,
    with other shapes and floats.  tokens: decoded in each whole run.

    Raises ConformanceError at the first check that fails, OptionError for arguments that make no
    sense.
    """
    chosen, left_out = names_of(only), names_of(skip) or ()
    backend_checks.select(chosen, left_out)
    if isinstance(backend, str):
        backend = create_backend(backend, threads=threads)
    elif isinstance(backend, type):
        backend = backend()
    opened = model if isinstance(model, ModelFile) else open_model(model or bundled_model())
    candidate = Candidate(backend, NumpyBackend(), opened, examples, tokens)
    return BackendReport(backend.name, tuple(backend_checks.run(candidate, chosen, left_out)))
