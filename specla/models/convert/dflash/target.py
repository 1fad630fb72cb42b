"""What a drafter takes from its target's GGUF file, and whether it fits that target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specla.models.convert.dflash.config import DrafterConfig
from specla.models.gguf import GgufFile
from specla.models.gguf.text import fail, quoted
from specla.models.gguf.write import Value
from specla.models.inspect_drafter import is_drafter

MASK_KEY = "tokenizer.ggml.mask_token_id"
_TOKENS = "tokenizer.ggml.tokens"
_KINDS = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32",
          "int32": "i32", "float32": "f32", "bool": "bool", "string": "str", "uint64": "u64",
          "int64": "i64", "float64": "f64"}  # fmt: skip


@dataclass(frozen=True)
class DraftTarget:
    """Facts of a target file of any architecture.

    vocab_size: tokens, or rows of the embedding without them.  mask_token_id: if it names one.
    multi_axis_rope: whether it turns features by more than one position.
    """

    gguf: GgufFile
    d_model: int
    n_layers: int
    vocab_size: int
    multi_axis_rope: bool
    mask_token_id: int | None

    @classmethod
    def open(cls, path: Path) -> DraftTarget:
        """Raises FileFormatError, one line, for a file without the usual keys of a target."""
        gguf = GgufFile.open(path)
        keys, name = gguf.metadata, gguf.architecture
        if is_drafter(gguf):
            fail(path, f"is a drafter itself (architecture {quoted(name)}); name its target")
        n_layers = keys.get_int(f"{name}.block_count", low=1)
        tokens = keys.count(_TOKENS)
        return cls(
            gguf,
            keys.get_int(f"{name}.embedding_length", low=1),
            n_layers - keys.get_int(f"{name}.nextn_predict_layers", 0, low=0, high=n_layers),
            gguf.tensor("token_embd.weight").shape[0] if tokens is None else tokens,
            f"{name}.rope.dimension_sections" in keys,
            keys.get_int(MASK_KEY, None, low=0),
        )

    def check(self, config: DrafterConfig, notes: list[str]) -> None:
        """Raise FileFormatError, one line naming both sizes, unless the drafter fits."""
        for what, ours, theirs in (
            ("hidden_size", config.d_model, self.d_model),
            ("vocab_size", config.vocab_size, self.vocab_size),
            ("num_target_layers", config.n_target_layers or self.n_layers, self.n_layers),
        ):
            if ours != theirs:
                self._misfit(f"its {what} is {theirs}, the drafter's {ours}")
        deepest = max(config.captured)
        if deepest >= self.n_layers:
            self._misfit(f"it has {self.n_layers} layers, the drafter reads layer {deepest}")
        if deepest == self.n_layers - 1:
            notes.append(
                f"reads the target's last layer ({deepest}), which llama.cpp can't capture"
            )

    def _misfit(self, why: str) -> None:
        fail(self.gguf.path, f"is not this drafter's target: {why}")

    def tokenizer(self) -> dict[str, Value]:
        """Its tokenizer metadata, unchanged, but for the mask token."""
        keys = self.gguf.metadata
        if _TOKENS not in keys:
            fail(self.gguf.path, "holds no tokenizer; name another target or use --no-tokenizer")
        found = {}
        for key in keys:
            if not key.startswith("tokenizer.") or key == MASK_KEY:
                continue
            kind = keys.type_name(key).removeprefix("array of ")
            if kind not in _KINDS:
                fail(self.gguf.path, f"metadata {quoted(key)} has the unknown type {quoted(kind)}")
            found[key] = Value(_KINDS[kind], keys[key])
        return found
