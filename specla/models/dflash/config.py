"""Shapes and constants of a DFlash drafter, read from GGUF metadata in either naming.

``dflash`` is llama.cpp's architecture: its ``target_layers`` count the layer whose *input* is
taken, one more than the layer whose output it is. ``dflash-draft`` and ``qwen35-dflash-draft`` are
lucebox's: layer ids as they are, and sliding layers of another kind (:class:`Dialect`).
"""

from __future__ import annotations

from dataclasses import dataclass

from specla.models.dflash.keys import Dialect, DraftKeys
from specla.models.dflash.rope import Rope, Scaling
from specla.models.gguf import GgufFile
from specla.models.gguf.text import quoted

# Far above any published drafter; they keep out damaged files that ask for terabytes.
MAX_LAYERS, _MAX_WIDTH, _MAX_FFN, _MAX_HEADS, _MAX_HEAD = 1024, 1 << 17, 1 << 19, 1024, 1024
_MAX_FEATURES, _MAX_WINDOW, _MAX_TOKEN = 256, 1 << 30, 1 << 22
_MAX_TAPS, _MAX_RANK, _MAX_TOP_K = 64, 1 << 14, 1 << 10
# Outside of these, angles or cosines are no finite numbers, or all the same.
_BASES, _FACTORS, _TURNS = (1e-3, 1e18), (1e-3, 1e6), (1e-6, 1e6)
MAX_BLOCK = 32
DEFAULT_BLOCK, DEFAULT_EPS, DEFAULT_MASK = 16, 1e-6, 248070


@dataclass(frozen=True)
class Dflash2:
    """What DFlash2 adds. conv_taps, conv_group: taps of the convolution in a block, and channels
    that share a coefficient.  rank, top_k: of the selector, and how many candidates it ranks."""

    conv_taps: int
    conv_group: int
    rank: int
    top_k: int


@dataclass(frozen=True)
class DraftConfig:
    """A DFlash drafter.

    target_layers: 0-based layers of the target whose output is read, in the order of ``fc``.
    block_size: slots of a trained block, root included.  mask_token: stands in the other slots.
    anchor_first: whether slot 0, the root's, already predicts the first candidate.
    causal: whether a slot is blind to later ones.  window, sliding: size, and per layer whether it
    has one.  vocabulary: digest of the token list; n_tokens: its length, both None without one.
    confidence: what the file says of a confidence head; None where it says nothing.
    dflash2: None for a plain DFlash or DSpark.
    notes: what the file left open and what was taken instead, a line each.
    """

    name: str
    dialect: Dialect
    d_model: int
    n_layers: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rms_eps: float
    rope: Rope
    target_layers: tuple[int, ...]
    block_size: int
    mask_token: int
    anchor_first: bool
    causal: bool
    window: int | None
    sliding: tuple[bool, ...]
    vocabulary: str | None
    n_tokens: int | None
    confidence: bool | None
    dflash2: Dflash2 | None
    notes: tuple[str, ...]

    @property
    def most_slots(self) -> int:
        """Largest block that makes sense."""
        return min(2 * self.block_size, MAX_BLOCK)

    @property
    def least_slots(self) -> int:
        """Smallest block that drafts anything."""
        return 1 if self.anchor_first else 2


def read_config(gguf: GgufFile) -> DraftConfig:
    """The drafter's configuration.

    Raises UnsupportedModelError when the file is sound but holds something else or more than specla
    computes, FileFormatError when keys are missing or contradict each other; one line each.
    """
    keys = DraftKeys(gguf)
    keys.refuse_extras()
    n_layers = keys.size("block_count", MAX_LAYERS)
    n_heads = keys.size("attention.head_count", _MAX_HEADS)
    n_kv_heads = keys.size("attention.head_count_kv", _MAX_HEADS)
    if n_heads % n_kv_heads:
        keys.reject("attention.head_count", f"is {n_heads}, no multiple of {n_kv_heads} KV heads")
    head_dim = _head_dim(keys)
    window, sliding = _sliding(keys, n_layers)
    d_model = keys.size("embedding_length", _MAX_WIDTH)
    return DraftConfig(
        name=gguf.metadata.get_str("general.name", "") or gguf.path.stem,
        dialect=keys.dialect,
        d_model=d_model,
        n_layers=n_layers,
        d_ff=keys.size("feed_forward_length", _MAX_FFN),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        rms_eps=_eps(keys),
        rope=_rope(keys, head_dim),
        target_layers=_target_layers(keys),
        block_size=_block_size(keys),
        mask_token=_mask_token(keys),
        anchor_first=_anchor_first(keys, "markov_w1.weight" in gguf.tensors),
        causal=keys.metadata.get_bool(keys.full("attention.causal"), False),
        window=window,
        sliding=sliding,
        vocabulary=gguf.metadata.digest("tokenizer.ggml.tokens"),
        n_tokens=gguf.metadata.count("tokenizer.ggml.tokens"),
        confidence=keys.metadata.get_bool(keys.own("has_confidence_head"), None),
        dflash2=_dflash2(keys, d_model) if "selector_hidden.weight" in gguf.tensors else None,
        notes=tuple(keys.notes),
    )


def _head_dim(keys: DraftKeys) -> int:
    head_dim = keys.size("attention.key_length", _MAX_HEAD)
    value_dim = keys.metadata.get_int(keys.full("attention.value_length"), head_dim)
    if value_dim != head_dim:
        keys.unsupported(
            keys.full("attention.value_length"), f"is {value_dim}, key_length {head_dim}"
        )
    if head_dim % 2:
        keys.reject("attention.key_length", f"is {head_dim}; rope needs an even number")
    return head_dim


def _eps(keys: DraftKeys) -> float:
    key = keys.full("attention.layer_norm_rms_epsilon")
    if keys.dialect is Dialect.LUCEBOX and key not in keys.metadata:
        keys.note(f"metadata {key} is missing; {DEFAULT_EPS} taken")
        return DEFAULT_EPS
    eps = keys.metadata.get_float(key)
    if eps <= 0:
        keys.metadata.reject(key, f"is {eps}; it must be positive")
    return keys.metadata.get_float(key, low=1e-30, high=1.0)


def _rope(keys: DraftKeys, head_dim: int) -> Rope:
    dim = keys.metadata.get_int(keys.full("rope.dimension_count"), head_dim, low=2, high=head_dim)
    if dim % 2:
        keys.reject("rope.dimension_count", f"is {dim}; an even number is needed")
    sections = keys.metadata.get_ints(keys.full("rope.dimension_sections"), None)
    # on text every axis but the last has the same position, so sections don't change an angle
    if sections is not None and (any(sections[3:]) or min(sections, default=0) < 0):
        keys.unsupported(
            keys.full("rope.dimension_sections"), f"is {quoted(sections)}; three axes are served"
        )
    base = keys.metadata.get_float(keys.full("rope.freq_base"), None)
    if base is None:
        keys.note(f"metadata {keys.full('rope.freq_base')} is missing; the target's base taken")
    elif base <= 0:
        keys.reject("rope.freq_base", f"is {base}; it must be positive")
    else:
        keys.within("rope.freq_base", _BASES)
    scaling = _scaling(keys)
    if scaling is not None and scaling.original_context is not None and base == 1.0:
        keys.reject("rope.freq_base", "is 1, from which YaRN can't be computed")
    return Rope(base, dim, scaling)


def _scaling(keys: DraftKeys) -> Scaling | None:
    get, full = keys.metadata.get_float, keys.full
    # llama.cpp's reading: a factor without a type is linear, 0 is none
    kind = keys.metadata.get_str(full("rope.scaling.type"), "linear")
    factor = get(full("rope.scaling.factor"), get(full("rope.scale_linear"), 1.0)) or 1.0
    attention = get(full("rope.scaling.attn_factor"), 1.0)
    keys.within("rope.scaling.attn_factor", _FACTORS)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None if attention == 1.0 else Scaling(1.0, attention=attention)
    if kind not in ("linear", "yarn"):
        keys.unsupported(
            full("rope.scaling.type"), f"is {quoted(kind)}; linear and yarn are served"
        )
    if factor <= 0:
        keys.reject("rope.scaling.factor", f"is {factor}; it must be positive")
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        keys.within(key, _FACTORS, unset=0.0)
    if kind == "linear":
        return Scaling(factor, attention=attention)
    for key in ("rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_attn_factor"):
        if get(full(key), 0.0) not in (0.0, 1.0):
            keys.unsupported(full(key), "is set, which specla doesn't compute")
    for key, default in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        if get(full(f"rope.scaling.yarn_{key}"), default) <= 0:
            keys.reject(f"rope.scaling.yarn_{key}", "must be positive")
        keys.within(f"rope.scaling.yarn_{key}", _TURNS)
    keys.within("rope.scaling.yarn_ext_factor", (-1e6, 1e6))
    return Scaling(
        factor,
        original_context=keys.metadata.get_int(
            full("rope.scaling.original_context_length"), low=1, high=_MAX_WINDOW
        ),
        extrapolation=get(full("rope.scaling.yarn_ext_factor"), 1.0),
        attention=attention,
        beta_fast=get(full("rope.scaling.yarn_beta_fast"), 32.0),
        beta_slow=get(full("rope.scaling.yarn_beta_slow"), 1.0),
    )


def _target_layers(keys: DraftKeys) -> tuple[int, ...]:
    shifted = keys.dialect is Dialect.LLAMA_CPP
    key = keys.own("target_layers" if shifted else "target_layer_ids")
    layers = [layer - shifted for layer in keys.metadata.get_ints(key)]
    if not 1 <= len(layers) <= _MAX_FEATURES:
        keys.metadata.reject(key, f"names {len(layers)} layers; 1 to {_MAX_FEATURES} are possible")
    for layer in layers:
        if not 0 <= layer < MAX_LAYERS:
            why = "counts from 1 (the layer whose input is taken)" if shifted else "counts from 0"
            keys.metadata.reject(key, f"holds {layer + shifted}; it {why}")
    if len(set(layers)) != len(layers):
        keys.metadata.reject(key, f"is {quoted(layers)}, with a layer twice")
    return tuple(layers)


def _block_size(keys: DraftKeys) -> int:
    key = keys.own("block_size")
    if key not in keys.metadata:
        keys.note(f"metadata {key} is missing; a block of {DEFAULT_BLOCK} taken")
    return keys.metadata.get_int(key, DEFAULT_BLOCK, low=1, high=MAX_BLOCK)


def _mask_token(keys: DraftKeys) -> int:
    for key in ("tokenizer.ggml.mask_token_id", keys.own("mask_token_id")):
        if key in keys.metadata:
            return keys.metadata.get_int(key, low=0, high=_MAX_TOKEN)
    if keys.dialect is Dialect.LLAMA_CPP:
        return keys.metadata.get_int("tokenizer.ggml.mask_token_id")
    keys.note(f"metadata {keys.own('mask_token_id')} is missing; token {DEFAULT_MASK} taken")
    return DEFAULT_MASK


def _anchor_first(keys: DraftKeys, is_dspark: bool) -> bool:
    """DSpark drafts from the root's slot unless it says otherwise; DFlash from the one after."""
    return keys.metadata.get_bool(keys.own("sample_from_anchor"), is_dspark)


def _dflash2(keys: DraftKeys, d_model: int) -> Dflash2:
    group = keys.size("conv_group_size", _MAX_WIDTH)
    if d_model % group:
        keys.reject("conv_group_size", f"is {group}, which doesn't divide the width {d_model}")
    return Dflash2(
        keys.size("conv_kernel_size", _MAX_TAPS),
        group,
        keys.size("selector_rank", _MAX_RANK),
        keys.size("selector_top_k", _MAX_TOP_K),
    )


def _sliding(keys: DraftKeys, n_layers: int) -> tuple[int | None, tuple[bool, ...]]:
    window = keys.metadata.get_int(
        keys.full("attention.sliding_window"), None, low=0, high=_MAX_WINDOW
    )
    key = keys.full("attention.sliding_window_pattern")
    pattern = keys.metadata.get_bools(key, None)
    if pattern is None:
        if window:
            keys.note(f"metadata {key} is missing; no layer has a sliding window")
        return None, (False,) * n_layers
    if len(pattern) != n_layers:
        keys.metadata.reject(key, f"has {len(pattern)} entries for {n_layers} layers")
    if any(pattern) and not window:
        keys.metadata.reject(key, "marks sliding layers, but there is no attention.sliding_window")
    return (window if any(pattern) else None), tuple(pattern)
