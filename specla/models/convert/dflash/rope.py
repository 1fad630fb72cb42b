"""A drafter's own RoPE: base, rotated dimensions, and linear or YaRN scaling."""

from __future__ import annotations

import math
from typing import NoReturn

from specla.errors import UnsupportedModelError
from specla.models.convert.json_file import Keys
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.gguf.write import Value

# optional YaRN settings: name in a checkpoint, GGUF key below rope.scaling
_YARN = (
    ("extrapolation_factor", "yarn_ext_factor"),
    ("beta_fast", "yarn_beta_fast"),
    ("beta_slow", "yarn_beta_slow"),
)


def rope_keys(top: Keys) -> dict[str, Value]:
    """Base and scaling, as keys below `dflash.rope`.

    Reads `rope_parameters`, or `rope_scaling` and a flat `rope_theta`, the older layout. Raises
    UnsupportedModelError for other scalings than linear and YaRN.
    """
    rope = _part(top)
    base = (rope if rope.get("rope_theta") is not None else top).number("rope_theta")
    whole = top.part(_name(top))
    sliding = whole.part("sliding_attention").get("rope_theta")
    if sliding is not None and sliding != base:
        _unsupported(top, f"rope_theta {quoted(sliding)} of the sliding layers beside {base:g}")
    return {"freq_base": Value("f32", base)} | _scaling(top, rope)


def rotary_dim(top: Keys, head_dim: int) -> int:
    """How many features of a head are rotated: all, or what `partial_rotary_factor` leaves."""
    rope = _part(top)
    holder = rope if rope.get("partial_rotary_factor") is not None else top
    factor = holder.number("partial_rotary_factor", 1.0)
    size = int(head_dim * factor)
    if size < 2 or size % 2 or size > head_dim:
        wanted = f"an even number of rotated dimensions of {head_dim}"
        holder.reject("partial_rotary_factor", factor, wanted)
    return size


def _name(top: Keys) -> str:
    return "rope_parameters" if top.get("rope_parameters") else "rope_scaling"


def _part(top: Keys) -> Keys:
    """The settings of the full-attention layers, where they differ by kind of layer."""
    rope = top.part(_name(top))
    return rope.part("full_attention") if rope.get("full_attention") else rope


def _scaling(top: Keys, rope: Keys) -> dict[str, Value]:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind in ("default", "mrope"):
        return {}
    if kind not in ("linear", "yarn"):
        _unsupported(top, f"rope type {quoted(kind)}")
    keys = {
        "scaling.type": Value("str", kind),
        "scaling.factor": Value("f32", rope.number("factor")),
    }
    if kind == "linear":
        return keys
    factor = rope.number("factor")
    if factor < 1:
        rope.reject("factor", factor, "a number from 1")
    if not rope.boolean("truncate", True):
        _unsupported(top, "truncate False of a YaRN scaling")
    name = "original_max_position_embeddings"
    holder = rope if rope.get(name) is not None else top
    if holder.get(name) is None:
        fail(top.path, f"{name} is missing, which a YaRN scaling needs; add it")
    keys["scaling.original_context_length"] = Value("u32", holder.integer(name, low=1))
    for name, key in _YARN:
        if rope.get(name) is not None:
            keys[f"scaling.{key}"] = Value("f32", rope.number(name))
    magnitude = _magnitude(rope, factor) / _mscale(factor, 1.0)
    if not math.isclose(magnitude, 1.0, rel_tol=1e-6):
        keys["scaling.attn_factor"] = Value("f32", magnitude)
    return keys


def _magnitude(rope: Keys, factor: float) -> float:
    """What cosine and sine are multiplied by, as transformers decides.

    A reader of the GGUF file multiplies by YaRN's own magnitude, so only the rest of it is written.
    """
    for name in ("attention_factor", "attn_factor"):
        if rope.get(name) is not None:
            return rope.number(name)
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        above, below = (rope.number(name) for name in ("mscale", "mscale_all_dim"))
        return _mscale(factor, above) / _mscale(factor, below)
    return _mscale(factor, 1.0)


def _mscale(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0


def _unsupported(top: Keys, what: str) -> NoReturn:
    raise UnsupportedModelError(
        f"{shown_path(top.path)}: {what} is not supported; unscaled, linear and YaRN rope are"
    )
