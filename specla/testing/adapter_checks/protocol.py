"""The hooks and their types."""

from __future__ import annotations

from dataclasses import is_dataclass

from specla.adapters.base import Adapter
from specla.core.proposal import Outcome
from specla.testing.adapter_checks import adapter_checks
from specla.testing.errors import ConformanceError
from specla.testing.stage import Life, Stage
from specla.testing.subject import Subject


@adapter_checks.add("protocol.types")
def types(subject: Subject) -> str:
    """Each call of the factory makes an Adapter of its own, whose Options, if any, are a frozen
    dataclass."""
    one, other = subject.new().inner, subject.new().inner
    if not isinstance(one, Adapter):
        raise ConformanceError(
            "protocol.types",
            expected="an instance of specla.adapters.base.Adapter",
            found=type(one).__name__,
            remedy="Derive the class from Adapter; give its class, a factory or its name.",
        )
    if one is other:
        raise ConformanceError(
            "protocol.types",
            expected="a new adapter at each call of the factory",
            found="the same object twice",
            remedy="Give the class itself, or a function that makes one.",
        )
    schema = type(one).Options
    if schema is not None and not (
        is_dataclass(schema) and schema.__dataclass_params__.frozen  # type: ignore[attr-defined]
    ):
        raise ConformanceError(
            "protocol.types",
            expected="Options to be a frozen dataclass",
            found=repr(schema),
            remedy="Declare it with @dataclass(frozen=True).",
        )
    return type(one).__name__


@adapter_checks.add("protocol.needs")
def needs_are_stable(subject: Subject) -> str:
    """needs() answers before anything is bound, with the same value ever after."""
    wanted = subject.needs
    adapter = subject.bound()
    stage = Stage(subject, adapter, "protocol.needs")
    text = stage.open(Life(subject.prompts[0]))
    stage.round([text])
    later = [("of another instance", subject.new().needs()), ("after a round", adapter.needs())]
    stage.close(text)
    for when, found in (*later, ("after close", adapter.needs())):
        if found != wanted:
            raise ConformanceError(
                "protocol.needs",
                expected=f"needs() {when} to be {wanted}",
                found=repr(found),
                remedy="Derive needs() from the options alone.",
            )
    return f"{wanted}"


@adapter_checks.add("protocol.hooks")
def hooks_in_any_legal_order(subject: Subject) -> str:
    """Between open and close, propose and observe come in any order and number: a round may be
    discarded, may leave no room for candidates, and may have refused the proposal."""
    stage = Stage(subject, subject.bound(), "protocol.hooks")
    life = Life(subject.prompts[0])
    stage.close(stage.open(life))  # nothing at all
    text = stage.open(life)
    for _ in range(3):  # rounds that were discarded: the text stays
        stage.propose([stage.round_view(text)])
    refused = Outcome((), life.prompt[0], "made up by the kit", 1, 1e-3)
    plain = Outcome((), life.prompt[1], None, 1, 1e-3)
    for outcome in (plain, refused, plain):  # rounds without a proposal, or with a refused one
        stage.target.prefill([(text.sequence, [text.tokens[-1]])])
        text.tokens.append(outcome.bonus)
        stage.adapter.observe([stage.view(text)], [outcome])
    for _ in range(2):
        stage.round([text])
    stage.close(text)
    return "propose without observe, observe without propose, refused outcomes"
