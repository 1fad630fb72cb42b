"""`specla decode` behind the option parser: load, prefill, decode, check, report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from specla.check import MismatchError, Trace, compare, plain_decode
from specla.cli.decode_config import DecodeConfig
from specla.cli.interrupt import Interrupt
from specla.cli.job import Job, prepare
from specla.cli.memory import enough_memory
from specla.cli.outcome import DONE, INTERRUPTED, DifferenceError
from specla.cli.output import as_json, is_terminal, utf8_stdout, write_json, write_text
from specla.cli.preparing import prepare_backend
from specla.cli.progress import Reporter, reporter
from specla.cli.summary import summary_rows, tokens
from specla.core.sampling import Sampler
from specla.engine import Request, Session, Stop
from specla.models.qwen35.target import Qwen35Target
from specla.text import TextStream

PREPARED = 17
"""Trees of up to so many nodes are prepared while loading; larger ones when they come."""


@dataclass(frozen=True)
class Decoded:
    """What a run wrote.

    stop: why it ended, in words.  matched: the stop string.  trace, state: only for the check.
    """

    text: str
    tokens: list[int]
    stop: str
    matched: str | None
    stats: dict[str, Any]
    interrupted: bool
    trace: Trace | None
    state: dict[str, Any]


def run_decode(config: DecodeConfig) -> int:
    """Decode as configured; returns the exit code. Raises SpeclaError, one line, for bad input."""
    utf8_stdout()
    show = reporter(quiet=config.quiet)
    job = prepare(config, show)
    trained = job.model.config.context_length
    if job.options.context > trained:
        show.note(f"note: --ctx {job.options.context} is beyond the model's {trained} positions")
    prepare_backend(job.backend, job.model.matrix_kinds, show, [config.kv])
    start = perf_counter()
    with show.step(f"loading {job.model.path}"), enough_memory(job.backend):
        target = job.model.target(job.backend, job.options)
        most = 1 if job.speculation.adapter == "none" else PREPARED
        target.prepare_rows(range(1, min(job.options.max_nodes, most) + 1))
    load_seconds = perf_counter() - start
    with enough_memory(job.backend):
        decoded = _decode(job, target, show)
    show.rows(summary_rows(decoded.stats, job.settings(), decoded.stop, load_seconds))
    compared = _checked(job, target, decoded, show)
    if config.json:
        write_json({**_report(job, decoded, compared), "load_seconds": round(load_seconds, 6)})
    if isinstance(compared, MismatchError):
        raise DifferenceError(f"check failed: {compared}")
    return INTERRUPTED if decoded.interrupted else DONE


def _decode(job: Job, target: Qwen35Target, show: Reporter) -> Decoded:
    config = job.config
    with show.step(f"prefill of {tokens(len(job.prompt) - 1)}", "tokens") as advance:
        if len(job.prompt) > 1:
            advance(0, len(job.prompt) - 1)
        session = Session(
            target,
            job.adapter,
            job.prompt,
            adapter_name=job.speculation.adapter,
            on_prefill=advance,
            verifier=job.speculation.verifier,
        )
    trace = Trace() if config.check else None
    stream = TextStream(job.model.tokenizer, config.stop)
    request = Request(
        max_tokens=config.max_tokens,
        sampler=Sampler(config.sampling),
        stop_ids=job.model.stop_ids,
        budget=config.budget,
        stop_rule=stream.feed,
        on_logits=trace.on_logits if trace is not None else None,
    )
    output = _Output(shown=not config.json)
    stop: Stop | None = None
    with session:
        try:
            with Interrupt(session.cancel) as interrupt:
                for event in session.generate(request):
                    output.write(stream.take())
                    stop = event.stop
            output.write(stream.finish())
        finally:
            output.end()
        return Decoded(
            text=output.text,
            tokens=list(session.tokens[len(job.prompt) :]),
            stop=_reason(stop, stream, interrupt.pressed),
            matched=stream.matched,
            stats=session.stats.report(),
            interrupted=interrupt.pressed,
            trace=trace,
            state=target.state_arrays(session.sequence) if trace is not None else {},
        )


class _Output:
    """Text on standard output as it comes. text: all of it. shown: False only collects."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def write(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._shown:
            write_text(piece)

    def end(self) -> None:
        """A person's prompt starts on a new line; a file gets the text and nothing else."""
        if self._shown and is_terminal(sys.stdout) and not self.text.endswith("\n"):
            write_text("\n")


def _reason(stop: Stop | None, stream: TextStream, pressed: bool) -> str:
    if stop is Stop.STOP_RULE:
        return f"stop string {stream.matched!r}"
    if stop is None:
        stop = Stop.CANCELLED if pressed else Stop.MAX_TOKENS
    return stop.value


def _checked(
    job: Job, target: Qwen35Target, decoded: Decoded, show: Reporter
) -> int | MismatchError | None:
    """Positions found identical to plain decoding, or the difference; None without --check."""
    if decoded.trace is None:
        return None
    decoded.trace.tokens = decoded.tokens
    with show.step("checking against plain decoding"), enough_memory(job.backend):
        plain, plain_state = plain_decode(
            target, job.prompt, len(decoded.tokens), Sampler(job.config.sampling)
        )
    try:
        positions = compare(decoded.trace, plain, decoded.state, plain_state, len(job.prompt))
    except MismatchError as difference:
        return difference
    show.note(f"check: {positions} tokens, their logits and the state identical to plain decoding")
    return positions


def _report(job: Job, decoded: Decoded, compared: int | MismatchError | None) -> dict[str, Any]:
    check: dict[str, Any] | None = None
    if isinstance(compared, int):
        check = {"identical": True, "positions": compared}
    elif compared is not None:
        check = {"identical": False, "difference": str(compared)}
    return {
        "text": decoded.text,
        "prompt_tokens": job.prompt,
        "tokens": decoded.tokens,
        "stop": decoded.stop,
        "stop_string": decoded.matched,
        "stats": decoded.stats,
        "settings": job.settings(),
        "adapter_report": _adapter_report(job),
        "check": check,
    }


def _adapter_report(job: Job) -> dict[str, Any]:
    """What the adapter says of itself; whatever it says is no reason to lose the rest."""
    try:
        report: dict[str, Any] = as_json(job.adapter.report())
        return report
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
