"""The adapter in the engine: the text is plain decoding's, whatever happens around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specla.check import MismatchError, Trace, compare
from specla.core.sampling import Sampler
from specla.engine import Request, Session
from specla.testing.adapter_checks import adapter_checks
from specla.testing.errors import ConformanceError
from specla.testing.report import Figures
from specla.testing.subject import SAMPLING, Subject

BUDGETS = (1, 7, 22, 64)


@adapter_checks.add("lossless")
def lossless(subject: Subject) -> str:
    """Tokens, logits and committed state are byte for byte those of plain decoding, greedy and
    sampled, at every budget, and no call fails and no proposal is refused."""
    for prompt in subject.prompts:
        for sampling in SAMPLING:
            subject.plain(prompt, sampling, subject.tokens)  # before the adapter touches anything
    for prompt in subject.prompts:
        for sampling in SAMPLING:
            for budget in BUDGETS:
                with _session(subject, prompt) as session:
                    trace = _generate(session, sampling, subject.tokens, budget)
                    _compare("lossless", subject, session, trace, prompt, sampling)
    return f"{subject.tokens} tokens, {len(subject.prompts)} prompts, budgets {BUDGETS}"


@adapter_checks.add("cancel")
def cancelled_in_mid_round(subject: Subject) -> str:
    """A round that is cancelled after any of its tokens, or left, is cut there; decoding then goes
    on to plain decoding's text."""
    prompt = subject.prompts[0]
    for stop_after in (1, 2, 5):
        for way in ("the generator is closed", "cancel() is called"):
            with _session(subject, prompt) as session:
                trace, request = Trace(), _request("greedy", subject.tokens, 22)
                request["on_logits"] = trace.on_logits
                running = session.generate(Request(**request))
                for event in running:
                    trace.tokens.append(event.token)
                    if len(trace.tokens) == stop_after:
                        if way == "the generator is closed":
                            running.close()  # type: ignore[attr-defined]
                            break
                        session.cancel()
                rest = subject.tokens - len(trace.tokens)
                if rest > 0:
                    trace = _generate(session, "greedy", rest, 22, trace)
                _compare("cancel", subject, session, trace, prompt, "greedy")
    return "after 1, 2 and 5 tokens, closed and cancelled"


@adapter_checks.add("extend")
def text_that_grows(subject: Subject) -> str:
    """A text may grow by tokens that nobody proposed (Session.extend: a user's next turn)."""
    prompt, more = subject.prompts[0], subject.three[1][:9]
    with _session(subject, prompt) as session:
        first = _generate(session, "greedy", 8, 22).tokens
        session.extend(more)
        trace = _generate(session, "greedy", 12, 22)
        _compare("extend", subject, session, trace, [*prompt, *first, *more], "greedy")
    return f"{len(more)} tokens appended after 8"


@adapter_checks.add("accept_length")
def accept_lengths(subject: Subject) -> str:
    """Figures, no promise: how many tokens a round brings on each prompt."""
    for n, prompt in enumerate(subject.prompts):
        for sampling in SAMPLING:
            with _session(subject, prompt) as session:
                _generate(session, sampling, 2 * subject.tokens, 22)
                _healthy("accept_length", subject, session)
                subject.figures.append(Figures.of(n, sampling, session.stats))
    lengths = [f.accept_length for f in subject.figures]
    return f"mean accept length {sum(lengths) / len(lengths):.2f}"


def _session(subject: Subject, prompt: Sequence[int]) -> Session:
    return Session(subject.target, subject.new(), prompt, adapter_name=subject.name)


def _request(sampling: str, tokens: int, budget: int) -> dict[str, Any]:
    return {"max_tokens": tokens, "sampler": Sampler(SAMPLING[sampling]), "budget": budget}


def _generate(
    session: Session, sampling: str, tokens: int, budget: int, trace: Trace | None = None
) -> Trace:
    trace = trace or Trace()
    request = Request(**_request(sampling, tokens, budget), on_logits=trace.on_logits)
    trace.tokens += [event.token for event in session.generate(request)]
    return trace


def _healthy(check: str, subject: Subject, session: Session) -> None:
    subject.watch.check()
    stats = session.stats
    if stats.refused or stats.adapter_errors:
        raise ConformanceError(
            check,
            expected="every proposal to be verified and every hook to return",
            found=f"{stats.refused} refused, {stats.adapter_errors} errors, the last: "
            f"{stats.refusal or stats.adapter_error}",
            remedy="The text is not affected, but each costs a round.",
        )


def _compare(
    check: str,
    subject: Subject,
    session: Session,
    trace: Trace,
    prompt: Sequence[int],
    sampling: str,
) -> None:
    _healthy(check, subject, session)
    plain, state = subject.plain(prompt, sampling, len(trace.tokens))
    ours = subject.target.state_arrays(session.sequence)
    try:
        compare(trace, plain, ours, state, len(prompt))
    except MismatchError as error:
        raise ConformanceError(
            check,
            expected="the bytes of plain decoding",
            found=str(error),
            remedy="An adapter can only do this by writing into the target's arrays (features, "
            "parts): copy before working in place. If it doesn't, report a defect of specla.",
        ) from error
