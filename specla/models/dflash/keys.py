"""Metadata of a drafter's file under either naming, and what is said about its gaps."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from specla.errors import UnsupportedModelError
from specla.models.gguf import GgufFile
from specla.models.gguf.metadata import Metadata
from specla.models.gguf.text import quoted, shown_path


class Dialect(Enum):
    """Whose naming a file follows, and whose sliding layers.

    LLAMA_CPP: a key is hidden from a query iff query position - key position >= window, in the
    context and in the block alike; keys after the query stay visible unless ``causal``.
    LUCEBOX: a sliding layer sees the last ``window`` committed positions and is causal inside the
    block; the other layers see everything.
    """

    LLAMA_CPP = "llama.cpp"
    LUCEBOX = "lucebox"


ARCHITECTURES = {
    "dflash": Dialect.LLAMA_CPP,
    "dflash-draft": Dialect.LUCEBOX,
    "qwen35-dflash-draft": Dialect.LUCEBOX,
}


class DraftKeys:
    """Metadata under the architecture's prefix, and what was said about its gaps."""

    def __init__(self, gguf: GgufFile) -> None:
        self.metadata: Metadata = gguf.metadata
        self.prefix = gguf.architecture
        self.notes: list[str] = []
        where = shown_path(gguf.path)
        if self.prefix not in ARCHITECTURES:
            raise UnsupportedModelError(
                f"{where}: architecture {quoted(self.prefix)} is no drafter that specla runs; it "
                f"runs {', '.join(ARCHITECTURES)}"
            )
        kind = gguf.metadata.get_str("general.type", "model")
        if kind != "model":
            raise UnsupportedModelError(f"{where}: holds a {quoted(kind)}, not a model")
        self.dialect = ARCHITECTURES[self.prefix]

    def full(self, key: str) -> str:
        return f"{self.prefix}.{key}"

    def own(self, key: str) -> str:
        """A key of DFlash itself, which lucebox gives a second prefix."""
        return self.full(key if self.dialect is Dialect.LLAMA_CPP else f"dflash.{key}")

    def size(self, key: str, high: int) -> int:
        return self.metadata.get_int(self.full(key), low=1, high=high)

    def within(self, key: str, bounds: tuple[float, float], *, unset: float | None = None) -> None:
        """Raise FileFormatError for a number out of bounds, unless it is missing or `unset`."""
        low, high = bounds
        if self.metadata.get_float(self.full(key), unset) != unset:
            self.metadata.get_float(self.full(key), low=low, high=high)

    def note(self, what: str) -> None:
        self.notes.append(f"{shown_path(self.metadata.path)}: {what}")

    def reject(self, key: str, why: str) -> NoReturn:
        self.metadata.reject(self.full(key), why)

    def unsupported(self, key: str, why: str) -> NoReturn:
        raise UnsupportedModelError(f"{shown_path(self.metadata.path)}: metadata {key} {why}")

    def refuse_extras(self) -> None:
        """What would change a number and isn't computed here must not be passed over."""
        for key, plain in (
            ("logit_scale", 1.0),
            ("final_logit_softcapping", 0.0),
            ("attn_logit_softcapping", 0.0),
            ("embedding_scale", 1.0),
            ("residual_scale", 1.0),
            ("attention.value_scale", 1.0),
            ("attention.scale", 0.0),
            ("expert_count", 0.0),
        ):
            value = self.metadata.get_float(self.full(key), plain)
            if value not in (plain, 0.0):
                self.unsupported(self.full(key), f"is {value}, which specla doesn't compute")
        for key in ("dflash.context_kv_layer_norm", "dflash.domino.enabled"):
            if self.metadata.get_bool(self.full(key), False):
                self.unsupported(self.full(key), "is true, which specla doesn't compute")
