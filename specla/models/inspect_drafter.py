"""What a drafter's GGUF file holds: its block, the target layers it reads, its heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from specla.models.dflash.config import MAX_LAYERS
from specla.models.dflash.keys import ARCHITECTURES, Dialect
from specla.models.gguf.text import fail, quoted

if TYPE_CHECKING:
    from specla.models.gguf import GgufFile

_FC = ("fc.weight", "dflash.fc.weight", "dflash_fc.weight")
_W1 = ("markov_w1.weight", "dflash.dspark.markov.w1")
_CONFIDENCE = ("conf_proj.weight", "dflash.dspark.confidence.weight")
_SELECTOR = ("selector_hidden.weight", "dflash.selector.hproj.weight")
T = TypeVar("T")


@dataclass(frozen=True)
class DrafterReport:
    """A block drafter, from its metadata and tensor shapes.

    kind: "DFlash", "DFlash2" or "DSpark".  block_size, mask_token_id, rope_base: None if the file
    doesn't say.  block_size: of the trained block, the root included.
    captured_layers: 0-based target layers whose output is read, empty if the file doesn't say.
    n_captured: how many fc.weight has room for.  vocab_size: None if the file doesn't say.
    draft_vocab_size: of a reduced vocabulary, else None.  first_slot_predicts: the root's slot
    gives the first draft token already.  window: positions that sliding layers see, or None.
    rope_scaling: "yarn" or "linear" with its factor, or None.
    """

    kind: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int | None
    draft_vocab_size: int | None
    block_size: int | None
    captured_layers: tuple[int, ...]
    n_captured: int
    mask_token_id: int | None
    causal: bool
    window: int | None
    sliding_layers: tuple[bool, ...]
    rope_base: float | None
    rope_scaling: str | None
    markov_rank: int | None
    confidence_head: bool
    first_slot_predicts: bool
    selector_rank: int | None
    selector_top_k: int | None
    own_embedding: bool
    own_head: bool

    @property
    def fits(self) -> str:
        """Which targets fit, in words."""
        layers = f"at least {max(self.captured_layers) + 1} layers" if self.captured_layers else ""
        vocab = "" if self.vocab_size is None else f"vocabulary {self.vocab_size}"
        parts = [f"width {self.d_model}", vocab, layers]
        return ", ".join(part for part in parts if part)


def is_drafter(gguf: GgufFile) -> bool:
    """Whether a file is a block drafter, by its architecture."""
    found = gguf.metadata.get("general.architecture")
    return isinstance(found, str) and found in ARCHITECTURES


def describe_drafter(gguf: GgufFile) -> DrafterReport:
    """Describe a drafter file. Raises FileFormatError, one line, for a missing or wrong key."""
    keys, arch = gguf.metadata, gguf.architecture
    by_llama_cpp = ARCHITECTURES[arch] is Dialect.LLAMA_CPP
    # lucebox puts the drafter's own keys below `dflash.`
    own = f"{arch}." if by_llama_cpp else f"{arch}.dflash."
    d_model = keys.get_int(f"{arch}.embedding_length", low=1)
    n_layers = keys.get_int(f"{arch}.block_count", low=1, high=MAX_LAYERS)
    n_heads = keys.get_int(f"{arch}.attention.head_count", low=1)
    markov, selector = _shape(gguf, _W1), _shape(gguf, _SELECTOR)
    table = gguf.tensors.get("d2t")
    sliding = _sliding(gguf, arch, n_layers)
    window = keys.get_int(f"{arch}.attention.sliding_window", None, low=0)
    n_captured = _n_captured(gguf, d_model)
    return DrafterReport(
        kind="DSpark" if markov else "DFlash2" if selector else "DFlash",
        n_layers=n_layers,
        d_model=d_model,
        d_ff=keys.get_int(f"{arch}.feed_forward_length", low=1),
        n_heads=n_heads,
        n_kv_heads=keys.get_int(f"{arch}.attention.head_count_kv", n_heads, low=1),
        head_dim=keys.get_int(f"{arch}.attention.key_length", d_model // n_heads, low=1),
        vocab_size=_vocabulary(gguf, markov),
        draft_vocab_size=None if table is None else table.cols,
        block_size=keys.get_int(f"{own}block_size", None, low=1),
        captured_layers=_captured(gguf, own, by_llama_cpp, n_captured),
        n_captured=n_captured,
        mask_token_id=_mask_token(gguf, own, by_llama_cpp),
        causal=keys.get_bool(f"{arch}.attention.causal", False),
        window=window if any(sliding) else None,
        sliding_layers=sliding,
        rope_base=keys.get_float(f"{arch}.rope.freq_base", None),
        rope_scaling=_scaling(gguf, arch),
        markov_rank=markov[-1] if markov else None,
        confidence_head=_shape(gguf, _CONFIDENCE) is not None,
        first_slot_predicts=keys.get_bool(f"{own}sample_from_anchor", bool(markov)),
        selector_rank=selector[0] if selector else None,
        selector_top_k=keys.get_int(f"{own}selector_top_k", None) if selector else None,
        own_embedding="token_embd.weight" in gguf.tensors,
        own_head="output.weight" in gguf.tensors,
    )


def _shape(gguf: GgufFile, names: tuple[str, ...]) -> tuple[int, ...] | None:
    return next((gguf.tensors[name].shape for name in names if name in gguf.tensors), None)


def _n_captured(gguf: GgufFile, d_model: int) -> int:
    shape = _shape(gguf, _FC)
    if shape is None or len(shape) != 2 or shape[0] != d_model or shape[1] % d_model:
        found = "is missing" if shape is None else f"has the shape {quoted(list(shape))}"
        fail(gguf.path, f"tensor fc.weight {found}; [{d_model}, n * {d_model}] is needed")
    return shape[1] // d_model


def _captured(gguf: GgufFile, own: str, by_llama_cpp: bool, n_captured: int) -> tuple[int, ...]:
    # llama.cpp counts the layer that reads the value, the other naming the one that wrote it
    key, shift = (f"{own}target_layers", 1) if by_llama_cpp else (f"{own}target_layer_ids", 0)
    ids = gguf.metadata.get_ints(key, None if shift == 0 else [])
    if ids is None:
        return ()
    layers = tuple(layer - shift for layer in ids)
    if len(layers) != n_captured or min(layers) < 0:
        gguf.metadata.reject(
            key, f"is {quoted(ids)}; {n_captured} layers from {shift} are needed, as in fc.weight"
        )
    return layers


def _mask_token(gguf: GgufFile, own: str, by_llama_cpp: bool) -> int | None:
    key = "tokenizer.ggml.mask_token_id" if by_llama_cpp else f"{own}mask_token_id"
    return gguf.metadata.get_int(key, None, low=0)


def _vocabulary(gguf: GgufFile, markov: tuple[int, ...] | None) -> int | None:
    tokens = gguf.metadata.count("tokenizer.ggml.tokens")
    if tokens is not None:
        return tokens
    if markov is not None and len(markov) == 2:
        return markov[0]
    embedding = _shape(gguf, ("token_embd.weight",))
    return embedding[0] if embedding else None


def _sliding(gguf: GgufFile, arch: str, n_layers: int) -> tuple[bool, ...]:
    key = f"{arch}.attention.sliding_window_pattern"
    pattern = gguf.metadata.get_bools(key, None)
    if pattern is None:
        return (False,) * n_layers
    if len(pattern) != n_layers:
        gguf.metadata.reject(key, f"has {len(pattern)} flags for {n_layers} layers")
    return tuple(pattern)


def _scaling(gguf: GgufFile, arch: str) -> str | None:
    kind = gguf.metadata.get_str(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return None
    return f"{kind} {gguf.metadata.get_float(f'{arch}.rope.scaling.factor'):g}"
