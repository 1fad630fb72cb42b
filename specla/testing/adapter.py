"""``check_adapter``: everything that an adapter promises, tried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specla.backends.base import Backend
from specla.models.load import ModelFile
from specla.testing.adapter_checks import adapter_checks
from specla.testing.errors import ConformanceError
from specla.testing.report import AdapterReport
from specla.testing.subject import Factory, make_subject
from specla.testing.watch import Watch


def check_adapter(
    factory: Factory,
    *,
    model: ModelFile | str | Path | None = None,
    backend: str | Backend = "auto",
    prompts: Sequence[str | Sequence[int]] | None = None,
    options: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    tokens: int = 24,
    seconds_per_call: float = 1.0,
    hang_seconds: float | None = 60.0,
    require_proposals: bool = True,
) -> AdapterReport:
    """Try an adapter on a model, from its types to the bytes of the text.

    factory: an Adapter class, a function that makes a new one at each call, or a name as for
    ``specla decode --adapter``.  options: texts as for ``--adapter-opt``, for a class or a name.
    model: the bundled one, unless given; needed where a draft belongs to a target of its own.
    prompts: texts or token ids, some that the adapter has guesses for.  only, skip: names of
    checks.  tokens: decoded per run, 1..64.  seconds_per_call: longer calls are listed in the
    report.  hang_seconds: a call that takes longer fails; calls are made on a thread for that,
    None makes them directly.  require_proposals: fail when no candidate was ever proposed, since
    then nothing was tried.

    Raises ConformanceError at the first check that fails, OptionError for arguments that make no
    sense.
    """
    chosen, left_out = names_of(only), names_of(skip) or ()
    adapter_checks.select(chosen, left_out)
    watch = Watch(seconds_per_call, hang_seconds)
    subject = make_subject(
        factory,
        model=model,
        backend=backend,
        prompts=prompts,
        tokens=tokens,
        options=options,
        watch=watch,
    )
    results = adapter_checks.run(subject, chosen, left_out)
    if require_proposals and watch.calls and not watch.candidates:
        raise ConformanceError(
            "coverage",
            expected="a candidate now and then",
            found="empty proposals only",
            remedy="Give prompts for which the adapter has guesses, or require_proposals=False.",
        )
    return AdapterReport(
        subject.name,
        subject.backend.name,
        tuple(results),
        tuple(subject.figures),
        watch.calls,
        tuple(watch.slow),
    )


def names_of(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """One name or several, as a tuple."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)
