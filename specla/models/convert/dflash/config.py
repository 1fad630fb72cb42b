"""A drafter's configuration: config.json and the tensors' shapes, which have to agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from specla.models.convert.dflash.keys import DraftKeys
from specla.models.convert.dflash.layers import Window, captured_layers, sliding_window
from specla.models.convert.dflash.rope import rope_keys, rotary_dim
from specla.models.gguf.text import fail
from specla.models.gguf.write import Value

Shapes = Mapping[str, tuple[int, ...]]
# optional factors: name in a checkpoint -> GGUF key
_FACTORS = (
    ("attention_value_scale", "attention.value_scale"),
    ("output_multiplier", "logit_scale"),
    ("input_embedding_scale", "embedding_scale"),
)


class Dflash2(NamedTuple):
    """DFlash2's dynamic convolution and candidate selector."""

    conv_kernel: int
    conv_group: int
    rank: int
    top_k: int


@dataclass(frozen=True)
class DrafterConfig:
    """A DFlash, DFlash2 or DSpark backbone.

    captured: 0-based target layers whose output is read.  block_size: trained block.
    mask_token_id: None when config.json doesn't say.  causal: inside the block, None = unsaid.
    draft_vocab_size: rows of the head; vocab_size unless reduced.
    rotary_dim: features of a head that RoPE turns.
    rope, factors: GGUF keys below `dflash.rope` and below `dflash`.
    interleaved_rope: query and key features in pairs (2i, 2i + 1), not in halves.
    own_embedding: False when an embedding in the checkpoint is only a copy.
    """

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rotary_dim: int
    vocab_size: int
    draft_vocab_size: int
    context_length: int
    rms_eps: float
    rope: dict[str, Value]
    factors: dict[str, Value]
    captured: tuple[int, ...]
    n_target_layers: int | None
    block_size: int
    mask_token_id: int | None
    causal: bool | None
    window: Window | None
    dflash2: Dflash2 | None
    interleaved_rope: bool
    own_embedding: bool


def read_drafter_config(keys: DraftKeys, shapes: Shapes) -> DrafterConfig:
    """The configuration, checked against the shapes of the checkpoint's tensors.

    Raises FileFormatError or UnsupportedModelError, one line, for what is missing, impossible or
    contradicted by a tensor.
    """
    top = keys.top
    n_layers = _agreeing(keys, "num_hidden_layers", _n_layers(shapes), "layers are in the tensors")
    d_model = _agreeing(keys, "hidden_size", *_size(shapes, "fc.weight", 0))
    head_dim = _agreeing(keys, "head_dim", *_size(shapes, "layers.0.self_attn.q_norm.weight", 0))
    d_ff = _agreeing(keys, "intermediate_size", *_size(shapes, "layers.0.mlp.gate_proj.weight", 0))
    vocab_size = keys.integer("vocab_size", low=1)
    heads = [top.integer(f"num_{kind}_heads", low=1) for kind in ("attention", "key_value")]
    if heads[0] % heads[1]:
        wanted = f"a multiple of num_key_value_heads ({heads[1]})"
        top.reject("num_attention_heads", heads[0], wanted)
    mask = keys.optional("mask_token_id")
    if mask is not None and mask >= vocab_size:
        keys.where("mask_token_id").reject("mask_token_id", mask, f"an id below {vocab_size}")
    causal = top.boolean("is_causal") if top.get("is_causal") is not None else None
    if causal is None and keys.nested.get("causal") is not None:
        causal = keys.nested.boolean("causal")
    return DrafterConfig(
        n_layers=n_layers,
        d_model=d_model,
        d_ff=d_ff,
        n_heads=heads[0],
        n_kv_heads=heads[1],
        head_dim=head_dim,
        rotary_dim=rotary_dim(top, head_dim),
        vocab_size=vocab_size,
        draft_vocab_size=_draft_vocabulary(keys, shapes, vocab_size),
        context_length=top.integer("max_position_embeddings", low=1),
        rms_eps=top.number("rms_norm_eps"),
        rope=rope_keys(top),
        factors=_factors(keys),
        captured=captured_layers(keys, _n_features(keys, shapes, d_model)),
        n_target_layers=keys.optional("num_target_layers", low=1),
        block_size=keys.integer("block_size", low=1),
        mask_token_id=mask,
        causal=causal,
        window=sliding_window(keys, n_layers),
        dflash2=_dflash2(keys, d_model),
        interleaved_rope=keys.flag("rope_is_neox_style") is False,
        own_embedding=keys.flag("has_embed_tokens") is not False,
    )


def _n_layers(shapes: Shapes) -> int:
    numbers = {name.split(".")[1] for name in shapes if name.startswith("layers.")}
    return len({number for number in numbers if number.isdecimal()})


def _size(shapes: Shapes, name: str, axis: int) -> tuple[int | None, str]:
    """(a dimension of a tensor, None when it isn't there; how to speak of it)."""
    shape = shapes.get(name)
    has = shape is not None and len(shape) > axis
    return (shape[axis] if shape is not None and has else None), f"is the size of {name}"


def _agreeing(keys: DraftKeys, key: str, derived: int | None, what: str) -> int:
    """A size that config.json and the tensors both know; either may be absent, with a note."""
    stated = keys.optional(key, low=1)
    if stated is None:
        if not derived:
            fail(keys.path, f"{key} is missing; add it")
        keys.notes.append(f"{key} is missing; {derived} {what}")
        return derived
    if derived is not None and derived != stated:
        fail(keys.path, f"{key} is {stated}, but {derived} {what}; one of both is wrong")
    return stated


def _n_features(keys: DraftKeys, shapes: Shapes, d_model: int) -> int:
    shape = shapes.get("fc.weight", ())
    if len(shape) != 2 or shape[1] == 0 or shape[1] % d_model:
        found = "is missing" if not shape else f"has the shape {list(shape)}"
        fail(keys.path.parent, f"tensor fc.weight {found}; [{d_model}, n * {d_model}] is needed")
    return shape[1] // d_model


def _draft_vocabulary(keys: DraftKeys, shapes: Shapes, vocab_size: int) -> int:
    stated = keys.optional("draft_vocab_size", low=1)
    table = shapes.get("d2t")
    rows = table[0] if table is not None and len(table) == 1 else None
    if stated is None:
        return vocab_size if rows is None else rows
    if stated > vocab_size:
        wanted = f"at most vocab_size ({vocab_size})"
        keys.where("draft_vocab_size").reject("draft_vocab_size", stated, wanted)
    if rows is not None and rows != stated:
        fail(keys.path, f"draft_vocab_size is {stated}, but d2t has {rows} rows")
    return stated


def _factors(keys: DraftKeys) -> dict[str, Value]:
    factors = {
        key: Value("f32", keys.where(name).number(name))
        for name, key in _FACTORS
        if keys.get(name) is not None
    }
    name = "final_logit_softcapping"
    if keys.get(name) not in (None, 0):
        factors[name] = Value("f32", keys.where(name).number(name))
    return factors


def _dflash2(keys: DraftKeys, d_model: int) -> Dflash2 | None:
    # a DFlash configuration may carry them as zeros
    if not keys.get("conv_kernel_size") and keys.architecture != "DFlash2DraftModel":
        return None
    found = Dflash2(
        keys.integer("conv_kernel_size", low=1),
        keys.integer("conv_group_size", low=1),
        keys.integer("selector_rank", low=1),
        keys.integer("selector_top_k", low=1),
    )
    if d_model % found.conv_group:
        wanted = f"a divisor of hidden_size ({d_model})"
        keys.where("conv_group_size").reject("conv_group_size", found.conv_group, wanted)
    if found.top_k * (found.top_k + 1) > d_model:
        keys.notes.append(
            f"selector_top_k {found.top_k} is more than llama.cpp can pack into {d_model} values"
        )
    return found
