"""`specla fuzz`: play random orders of operations and compare every byte with plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specla.cli.outcome import DifferenceError, one_line
from specla.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from specla.cli.progress import Row
    from specla.fuzz.campaign import Campaign, Outcome
    from specla.fuzz.log import Log

LONGEST = 60 * 24 * 365.0


@click.command("fuzz", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--backend", default="auto", show_default=True, metavar="NAME")
@click.option("--level", default="kernels", show_default=True, help="kernels, engine or model.")
@click.option("--minutes", type=float, metavar="M", help="Stop after this time.  [default: 1]")
@click.option(
    "--rounds",
    type=int,
    metavar="R",
    help="Stop when so many rounds of verification are played and an example ends.",
)
@click.option("--short", is_flag=True, help="As many rounds as specla's own tests: about 20 s.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S")
@click.option("--save", default=".", show_default=True, metavar="DIR", help="For what is found.")
@click.option("--no-shrink", is_flag=True, help="Save what is found as it is, not the smallest.")
@click.option("--quiet", is_flag=True, help="Nothing on standard error but errors.")
def command(
    backend: str,
    level: str,
    minutes: float | None,
    rounds: int | None,
    short: bool,
    seed: int,
    save: str,
    no_shrink: bool,
    quiet: bool,
) -> None:
    """Play any order of operations on several sequences, with injected failures, and compare
    outputs and all state with plain decoding, byte for byte.

    The same seed plays the same. At a difference the smallest case is saved as a Python script,
    and the exit code is 1. Ctrl-C ends the run after the present operation; a case that is still
    being made smaller is saved as it is.
    """
    from pathlib import Path

    from specla.backends import best_backend
    from specla.cli.interrupt import Interrupt
    from specla.cli.progress import reporter

    _need_hypothesis()
    from specla.fuzz.campaign import Campaign, run

    if backend == "auto":
        backend, _ = best_backend()
    if short and rounds is None:
        rounds = _short(level, backend)
    campaign = Campaign(level, backend, seed, _minutes(minutes, rounds), rounds, not no_shrink)
    _check(campaign)
    _check_folder(Path(save))
    show = reporter(quiet=quiet)
    timed = campaign.minutes is not None and campaign.rounds is None
    total = round(60 * (campaign.minutes or 0)) if timed else campaign.rounds or 0
    with show.step(f"fuzzing {backend}, {level}", "s" if timed else "rounds") as advance:

        def tell(log: Log, pairs: int, seconds: float) -> None:
            advance(round(seconds) if timed else log.rounds, total, _line(log, pairs))

        # no KeyboardInterrupt in the middle of an operation: a world takes it for one of its own
        with Interrupt(lambda: None) as interrupt:
            outcome = run(campaign, tell, lambda: interrupt.pressed)
    if interrupt.again:
        raise KeyboardInterrupt
    show.rows(_rows(outcome))
    if outcome.error is not None:
        raise DifferenceError(_found(campaign, outcome, Path(save)))
    if interrupt.pressed:
        raise KeyboardInterrupt


def _need_hypothesis() -> None:
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        raise OptionError(
            "specla fuzz needs the package hypothesis; install it with: pip install 'specla[fuzz]'"
        ) from None


def _short(level: str, backend: str) -> int:
    """Rounds of a short run; fewer where kernels are interpreted."""
    from specla.binding import naming
    from specla.fuzz.computing import pace
    from specla.fuzz.levels import level_of

    rounds = level_of(level).short
    with naming("backend", backend):
        return max(1, rounds // pace(backend).share)


def _minutes(minutes: float | None, rounds: int | None) -> float | None:
    return 1.0 if minutes is None and rounds is None else minutes


def _check(campaign: Campaign) -> None:
    """Everything that can be wrong, before anything is loaded."""
    from specla.binding import naming
    from specla.fuzz.computing import computing
    from specla.fuzz.levels import level_of

    if campaign.minutes is not None and not 0 < campaign.minutes <= LONGEST:
        raise OptionError(f"--minutes is {campaign.minutes:g}; it must be above 0, a year at most")
    if campaign.rounds is not None and campaign.rounds < 1:
        raise OptionError(f"--rounds is {campaign.rounds}; it must be 1 or more")
    if campaign.seed < 0:
        raise OptionError(f"--seed is {campaign.seed}; it must be 0 or more")
    level_of(campaign.level)
    with naming("backend", campaign.backend):
        computing(campaign.backend)


def _check_folder(folder: Path) -> None:
    """A find must not be lost: refuse a folder that can't be made or written."""
    import os

    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise OptionError(f"--save {folder}: {existing} is no folder that can be written")


def _line(log: Log, pairs: int) -> str:
    # short: beside a bar in 80 columns
    return f"{log.rounds:,} rounds, {log.operations:,} ops, {len(log.pairs)}/{pairs} pairs"


def _rows(outcome: Outcome) -> list[Row]:
    log = outcome.log
    return [
        ("examples", f"{log.examples:,}"),
        ("rounds", f"{log.rounds:,}"),
        ("operations", f"{log.operations:,}, of {len(log.kinds)} of the {outcome.kinds} kinds"),
        ("pairs", f"{len(log.pairs)} of {outcome.pairs}"),
        ("time", f"{outcome.seconds:.1f} s"),
        ("found", "no difference" if outcome.error is None else "a difference"),
    ]


def _found(campaign: Campaign, outcome: Outcome, folder: Path) -> str:
    """Save the case; the line that says so."""
    from shlex import quote

    from specla.fuzz.script import save, script

    error: Any = outcome.error
    # also fit for a file of source text
    text = one_line(f"{type(error).__name__}: {error}")
    if outcome.case is None:
        return text
    by = f"specla fuzz --level {campaign.level} --backend {campaign.backend} --seed {campaign.seed}"
    name = f"specla-fuzz-{campaign.level}-{campaign.backend}-{campaign.seed}"
    n = len(outcome.case.operations)
    try:
        path = save(script(outcome.case, campaign.backend, by, text), folder, name)
    except OSError as failed:
        # the difference is what matters: it must not end as a complaint about a disk
        why = f"{failed.filename or folder}: {failed.strerror or failed}"
        return f"{text} ({n} operations; not saved, {why}; play it again with: {by})"
    return f"{text} ({n} operations; play them again with: python {quote(str(path))})"
