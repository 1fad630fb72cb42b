"""From what was asked for to how a run speculates: one frozen value, before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from specla.adapters.base import Adapter, adapters, authored, create_adapter, option_fields
from specla.adapters.combinator import Combinator
from specla.adapters.expression import parse, resolve
from specla.cli.speculation_flags import AUTO, SpeculationFlags
from specla.errors import OptionError
from specla.request import DEFAULT_BUDGET

if TYPE_CHECKING:
    from specla.verification import Verifier


class DraftKind(Enum):
    """What a draft file holds."""

    DSPARK = "a DFlash drafter with DSpark heads"
    DFLASH = "a DFlash drafter"
    MODEL = "a qwen35 model"
    MTP = "an extra prediction layer"


DRAFTED_BY = {
    DraftKind.DSPARK: "adaptive(dspark)",
    DraftKind.DFLASH: "adaptive(ddtree)",
    DraftKind.MODEL: "adaptive(chain)",
    DraftKind.MTP: "adaptive(mtp)",
}
"""What "auto" chooses for a draft."""

OWN_LAYER, NO_DRAFT = "adaptive(mtp)", "adaptive(suffix)"
"""What it chooses without one: for a target with an extra prediction layer, and for any other."""


@dataclass(frozen=True)
class TargetFacts:
    """What the choice depends on. own_draft: the drafter that ships with this target, if any;
    own_draft_kind: what it is.  mtp: whether the target carries an extra prediction layer."""

    own_draft: str | None = None
    own_draft_kind: DraftKind = DraftKind.DSPARK
    mtp: bool = False


@dataclass(frozen=True)
class Speculation:
    """How a run speculates.

    adapter: the expression.  options: of its adapters, as texts.  draft: the file that is its
    option ``draft``.  budget: most candidates per round.  specla: whether SpecLA was asked for by
    name.  verification: "tree", "replay" or "sequential" (specla/verification.py).  fused_commit:
    fold with the next verify.  plain_because: why it is off although it was asked for.
    """

    adapter: str = "none"
    options: tuple[tuple[str, str], ...] = ()
    draft: str | None = None
    budget: int = DEFAULT_BUDGET
    specla: bool = False
    verification: str = "tree"
    fused_commit: bool = True
    plain_because: str | None = None

    def plainly(self, reason: str) -> Speculation:
        """Plain decoding instead. Nothing of the adapter is left: no draft, no option."""
        return replace(
            self, adapter="none", options=(), draft=None, specla=False, plain_because=reason
        )

    @property
    def verifier(self) -> type[Verifier]:
        """For the session."""
        from specla import verification

        if self.verification == "replay":
            return verification.ReplayVerifier
        if self.verification == "sequential":
            return verification.SequentialVerifier
        fused = self.fused_commit
        return verification.TreeVerifier if fused else verification.UnfusedTreeVerifier

    def create_adapter(self) -> Adapter:
        """Raises OptionError."""
        return create_adapter(self.adapter, dict(self.options))

    def settings(self) -> dict[str, Any]:
        """All of it as JSON-able values, with the value of every option of every adapter."""
        resolved = resolve(self.adapter, dict(self.options)).options
        return {
            "adapter": self.adapter,
            "adapter_options": {
                name: asdict(options)
                for name, options in resolved.items()
                if is_dataclass(options) and not isinstance(options, type)
            },
            "draft": self.draft,
            "budget": self.budget,
            "specla": self.specla,
            "verification": self.verification,
            "fused_commit": self.fused_commit,
            "plain_because": self.plain_because,
        }


def speculation(
    flags: SpeculationFlags, draft: DraftKind | None, target: TargetFacts
) -> Speculation:
    """Flags and facts as one value; depends on nothing else and changes nothing.

    draft: what the file of ``flags.draft`` holds; it matters only where the adapter is "auto".
    Raises OptionError, one line, for an adapter or option that doesn't exist, a flag that no
    adapter of the expression heeds, and a draft that is missing.
    """
    expression, path = _choice(flags, draft, target)
    known = _known_options(expression)
    named = any(name.rpartition(".")[2] == "draft" for name, _ in flags.adapter_options)
    if path is None and not named and target.own_draft is not None and _runs_blocks(known):
        path = target.own_draft
    options = _options(flags, expression, known, path)
    if flags.uses_specla and path is None and "draft" not in options:
        _require_no_draft(expression, known, options)
    result = Speculation(
        adapter=expression,
        options=tuple(options.items()),
        draft=path or options.get("draft"),
        budget=flags.most_candidates,
        specla=flags.uses_specla,
        verification=_verification(flags),
        fused_commit=flags.environment.fused_commit,
    )
    resolve(expression, options)
    return result


def _choice(
    flags: SpeculationFlags, draft: DraftKind | None, target: TargetFacts
) -> tuple[str, str | None]:
    """The expression, and the draft that was chosen with it."""
    if flags.adapter != AUTO:
        return str(parse(flags.adapter)), flags.draft
    if flags.draft is not None:
        return DRAFTED_BY[draft or DraftKind.DFLASH], flags.draft
    if target.own_draft is not None:
        return DRAFTED_BY[target.own_draft_kind], target.own_draft
    if target.mtp:
        return OWN_LAYER, None
    if flags.uses_specla:
        raise OptionError(
            f"--specla needs a draft for this target; give --draft FILE, or an adapter that needs "
            f"none: --adapter {' or '.join(draft_free())}"
        )
    return NO_DRAFT, None


def _known_options(expression: str) -> dict[str, dict[str, bool]]:
    """Of each adapter of the expression: its options, and whether each must be given."""
    known = {}
    for part in parse(expression).walk():
        with authored(part.name, "class"):
            schema = getattr(adapters.get(part.name), "Options", None)
        known[part.name] = option_names(part.name, schema)
    return known


def option_names(name: str, schema: type[Any] | None) -> dict[str, bool]:
    """Names of an adapter's options, and whether each must be given."""
    from specla.cli.adapters import is_required

    return {field.name: is_required(field) for field in option_fields(name, schema)}


def _runs_blocks(known: dict[str, dict[str, bool]]) -> bool:
    """Whether an adapter runs a block drafter that it must be given."""
    return any(options.get("draft") and "block" in options for options in known.values())


def _options(
    flags: SpeculationFlags, expression: str, known: dict[str, dict[str, bool]], path: str | None
) -> dict[str, str]:
    """The options that the adapters are made with: flags, then --adapter-opt, then environment."""
    options = dict(flags.adapter_options)
    heeded = {name for names in known.values() for name in names}
    for flag, key, value in (
        ("--draft", "draft", path),
        ("--ddtree-tau", "tau", flags.tau),
        ("--specla-top-k", "top_k", flags.top_k),
        ("--draft-swa", "window", flags.window),
        ("--draft-block-size", "block", flags.block),
    ):
        if value is None:
            continue
        if key not in heeded:
            remedy = "choose another adapter ('specla adapters' lists them)"
            if path is None and flags.adapter == AUTO:
                remedy = "give --draft FILE"
            raise OptionError(
                f"{flag} is given, but adapter {expression!r} has no option {key}; leave it out, "
                f"or {remedy}"
            )
        text = str(value)
        _refuse_two(flag, key, text, known, dict(flags.adapter_options))
        if key == "draft":
            options = _draft_options(known, text) | options
            continue
        options.setdefault(key, text)
    if flags.uses_specla:
        environment = flags.environment
        for key, wish in (("top_k", environment.top_k), ("conditional", environment.conditional)):
            if wish is not None and key in heeded:
                options.setdefault(key, str(int(wish)))
    return options


def _refuse_two(
    flag: str, key: str, text: str, known: dict[str, dict[str, bool]], given: dict[str, str]
) -> None:
    """Raise OptionError where --adapter-opt leaves nobody who would heed a flag."""
    takers = {f"{name}.{key}" for name, names in known.items() if key in names}
    others = {name for name, value in given.items() if not _same(value, text)}
    if key in others or takers <= others:
        name = key if key in others else min(takers)
        raise OptionError(
            f"{flag} is {text} and --adapter-opt {name} is {given[name]}, which mean the same; "
            f"give one"
        )


def _draft_options(known: dict[str, dict[str, bool]], path: str) -> dict[str, str]:
    """A draft goes to the adapters that can't do without; if there are none, to all that take
    one."""
    needing = [name for name, names in known.items() if names.get("draft")]
    taking = [name for name, names in known.items() if "draft" in names]
    if not needing or needing == taking:
        return {"draft": path}
    return {f"{name}.draft": path for name in needing}


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _require_no_draft(
    expression: str, known: dict[str, dict[str, bool]], options: dict[str, str]
) -> None:
    for name, names in known.items():
        if names.get("draft") and f"{name}.draft" not in options:
            raise OptionError(
                f"--specla with adapter {expression!r} needs a draft; give --draft FILE, or an "
                f"adapter that needs none: --adapter {' or '.join(draft_free())}"
            )


def _verification(flags: SpeculationFlags) -> str:
    if flags.seq_verify:
        return "sequential"
    return "tree" if flags.fast_rollback else "replay"


def draft_free() -> list[str]:
    """Specla's own adapters that propose without a draft."""
    names = [name for name in adapters.names() if adapters.origin(name) == "specla"]
    kinds = {name: adapters.get(name) for name in names if name != "none"}
    return [
        name
        for name, kind in kinds.items()
        if not issubclass(kind, Combinator)
        and "draft" not in option_names(name, kind.Options)
        and not any(option_names(name, kind.Options).values())
    ]
