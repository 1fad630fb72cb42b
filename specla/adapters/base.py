"""The adapter protocol: whoever proposes candidate tokens implements this, and nothing more.

An adapter may be wrong, slow, or raise: the engine validates every proposal, and a bad one costs a
round's speed, never a byte of the text. See docs/adapters.md for a complete one in 30 lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.registry import Registry
from specla.errors import OptionError, SpeclaError

if TYPE_CHECKING:
    from specla.models.qwen35.parts import TargetParts


@dataclass(frozen=True)
class Needs:
    """What an adapter must get from the target; checked when it is chosen, not in mid-decode.

    features: 0-based layers whose output it reads through ``SequenceView.features``; a negative one
    counts from the end, so -1 is the last layer of any target.
    embeddings, lm_head: whether it calls ``TargetInfo.embed`` / ``TargetInfo.lm_head``.
    parts: whether it runs a draft model that shares matrices with the target.
    """

    features: tuple[int, ...] = ()
    embeddings: bool = False
    lm_head: bool = False
    parts: bool = False

    def layers(self, n_layers: int) -> tuple[int, ...]:
        """``features`` for a target of ``n_layers``: each once, none negative that exists."""
        ids = (n_layers + layer if layer < 0 else layer for layer in self.features)
        return tuple(dict.fromkeys(ids))


@dataclass(frozen=True)
class TargetInfo:
    """The target as an adapter may know it.

    context: most positions of a sequence.  features: layers that are captured, in the order of
    ``SequenceView.features``.  vocabulary: digest of the token list, None if the file has none.
    ``embed`` and ``lm_head`` work on backend arrays: int32 [N] -> [N, d_model], and [N, d_model] ->
    [N, vocab].  parts: the loaded matrices themselves (models/qwen35/parts.py).  These three are
    None unless declared as needed.
    """

    architecture: str
    vocab_size: int
    d_model: int
    n_layers: int
    eos_ids: tuple[int, ...]
    max_nodes: int
    backend: Any
    context: int = 0
    features: tuple[int, ...] = ()
    vocabulary: str | None = None
    embed: Callable[[Any], Any] | None = None
    lm_head: Callable[[Any], Any] | None = None
    parts: TargetParts | None = None


class Adapter(ABC):
    """Base class of all adapters.

    A subclass may declare a frozen dataclass ``Options``; ``--adapter-opt key=value`` fills it and
    the instance finds it as ``self.options``.
    """

    Options: ClassVar[type[Any] | None] = None

    deterministic: ClassVar[bool] = True
    """Whether equal texts give equal proposals; False where time or chance decides."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def needs(self) -> Needs:
        """What must be there before decoding starts."""
        return Needs()

    def bind(self, target: TargetInfo) -> None:
        """Called once with the target. Raise OptionError when the two don't fit together."""

    def open(self, view: SequenceView) -> None:
        """A sequence begins; its prompt is in ``view.tokens``."""

    @abstractmethod
    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One proposal per view, in order; an empty one decodes plainly."""

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """What became of the last proposals. The views already contain the new tokens."""

    def close(self, view: SequenceView) -> None:
        """The sequence is over: drop whatever is kept for ``view.key``."""

    def report(self) -> dict[str, Any]:
        """What it did and decided so far, as JSON-able values, for whoever wants to look."""
        return {}


adapters: Registry[type[Adapter]] = Registry("adapter", "specla.adapters")
"""All adapters by name. A new one is added in ``specla/adapters/__init__.py``, or by another
package through the entry-point group."""


def create_adapter(expression: str, options: Mapping[str, str] | None = None) -> Adapter:
    """Build an adapter from its name, or from an expression such as ``adaptive(suffix)``.

    options: ``key`` for every adapter of the expression that has such an option, ``name.key`` for
    those of that name (and before a bare ``key``).

    Raises OptionError for a malformed expression, an unknown name or option (listing the known
    ones) and for a bad value.
    """
    from specla.adapters.expression import build

    return build(expression, options or {})


def check_options(expression: str, options: Mapping[str, str] | None = None) -> None:
    """Raise whatever create_adapter would raise for names and values; makes no adapter."""
    from specla.adapters.expression import resolve

    resolve(expression, options or {})


def parse_options(name: str, schema: type[Any] | None, given: Mapping[str, str]) -> Any:
    """``key=value`` texts as an instance of the frozen dataclass ``schema``.

    Raises OptionError, also where the schema itself is faulty.
    """
    known = {field.name: field for field in option_fields(name, schema)}
    for key in given:
        if key not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise OptionError(f"adapter {name!r} has no option {key!r}; known: {listed}")
    if schema is None:
        return None
    with authored(name, "options"):
        hints = get_type_hints(schema)
    values = {key: _convert(name, key, text, hints[key]) for key, text in given.items()}
    for key, field in known.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and key not in values:
            remedy = "--draft FILE" if key == "draft" else f"--adapter-opt {key}="
            raise OptionError(f"adapter {name!r} needs the option {key}; give {remedy}")
    with authored(name, "options"):
        return schema(**values)


def option_fields(name: str, schema: Any) -> tuple[Field[Any], ...]:
    """The fields of an adapter's ``Options``, none if it has none. Raises OptionError, naming the
    adapter, for what isn't a dataclass."""
    if schema is None:
        return ()
    with authored(name, "Options"):
        return fields(schema)


@contextmanager
def authored(name: str, what: str) -> Iterator[None]:
    """A part of an adapter is read, which may be anybody's and faulty: then OptionError says so."""
    try:
        yield
    except (SpeclaError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise OptionError(
            f"adapter {name!r}: its {what} can't be used: {type(error).__name__}: "
            f"{' '.join(str(error).split())}; tell its author"
        ) from error


def _convert(name: str, key: str, text: str, kind: Any) -> Any:
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() in words:
            return words[text.lower()]
    else:
        for candidate in getattr(kind, "__args__", (kind,)):
            if candidate in (int, float, str):
                try:
                    return candidate(text)
                except ValueError:
                    continue
    words_for = {int: "a whole number", float: "a number", bool: "true or false"}
    wanted = words_for.get(kind, getattr(kind, "__name__", str(kind)))
    raise OptionError(f"adapter {name!r}: option {key} is {text!r}; it must be {wanted}")
