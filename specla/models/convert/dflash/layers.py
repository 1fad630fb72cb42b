"""Which target layers a drafter reads, and which of its own layers have a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specla.models.convert.dflash.keys import DraftKeys
from specla.models.convert.json_file import Keys
from specla.models.gguf.text import fail, quoted

_IDS, _SHIFTED = "target_layer_ids", "aux_hidden_state_layer_ids"
# transformers' default: layers from here on slide when layer_types doesn't say
_MAX_WINDOW_LAYERS = 28


class Window(NamedTuple):
    """size: keys a query sees in a sliding layer.  pattern: whether each layer slides."""

    size: int
    pattern: tuple[bool, ...]


def captured_layers(keys: DraftKeys, n_features: int) -> tuple[int, ...]:
    """0-based target layers whose output the drafter reads, in the order of its features.

    `target_layer_ids` are those; `aux_hidden_state_layer_ids` name the layer whose *input* is
    taken, so one more. n_features: layers that fc.weight has room for. Without either key, the
    DFlash rule of evenly spaced layers (its `build_target_layer_ids`) stands in, with a note.
    """
    found = [
        (name, _ids(keys.where(name), name, shift))
        for name, shift in ((_IDS, 0), (_SHIFTED, 1))
        if keys.get(name) is not None
    ]
    if not found:
        return _evenly_spaced(keys, n_features)
    name, layers = found[0]
    if len(found) == 2 and found[1][1] != layers:
        fail(
            keys.path,
            f"{_IDS} {quoted(keys.get(_IDS))} and {_SHIFTED} {quoted(keys.get(_SHIFTED))} name "
            f"different layers (the latter should be one more each); remove the wrong one",
        )
    if len(layers) != n_features:
        fail(
            keys.path,
            f"{name} names {len(layers)} layers, fc.weight has columns for {n_features}",
        )
    n_target = keys.optional("num_target_layers", low=1)
    if n_target is not None and max(layers) >= n_target:
        fail(keys.path, f"{name} names layer {max(layers)}, num_target_layers is {n_target}")
    return layers


def _ids(holder: Keys, name: str, shift: int) -> tuple[int, ...]:
    ids = holder.get(name)
    is_ids = isinstance(ids, list) and ids and all(type(layer) is int for layer in ids)
    if not is_ids or min(ids) < shift or max(ids) >= 2**16 or len(set(ids)) != len(ids):
        holder.reject(name, ids, f"a list of different layers from {shift}")
    return tuple(layer - shift for layer in ids)


def _evenly_spaced(keys: DraftKeys, count: int) -> tuple[int, ...]:
    n_target = keys.optional("num_target_layers", low=1)
    if n_target is None:
        fail(keys.path, f"{_IDS} is missing, and so is num_target_layers; add the layers' ids")
    if count == 1:
        layers: Sequence[int] = (n_target // 2,)
    else:
        span = n_target - 4
        layers = [round(1 + index * span / (count - 1)) for index in range(count)]
    if min(layers) < 0 or len(set(layers)) != count:
        fail(keys.path, f"{_IDS} is missing, and {count} layers don't spread over {n_target}")
    keys.notes.append(
        f"{_IDS} is missing; evenly spaced layers were assumed: {', '.join(map(str, layers))}"
    )
    return tuple(layers)


def sliding_window(keys: DraftKeys, n_layers: int) -> Window | None:
    """The sliding window, None without one.

    `dflash_config.use_swa` makes every layer slide (`swa_window_size`); `use_sliding_window` those
    that `layer_types` names. As in transformers and llama.cpp, `layer_types` alone has no effect.
    """
    types = _layer_types(keys.top, n_layers)
    if keys.nested.boolean("use_swa", False):
        name = "swa_window_size" if keys.nested.get("swa_window_size") else "sliding_window"
        size = keys.where(name).integer(name, low=1)
        if types is not None and not all(types):
            keys.notes.append("use_swa makes every layer slide, though layer_types names others")
        return Window(size, (True,) * n_layers)
    if not keys.top.boolean("use_sliding_window", False):
        if types is not None and any(types):
            keys.notes.append(
                "layer_types names sliding layers, but use_sliding_window isn't true: written "
                "without a window"
            )
        return None
    size = keys.top.integer("sliding_window", low=1)
    if types is None:
        first = keys.top.integer("max_window_layers", _MAX_WINDOW_LAYERS)
        types = tuple(layer >= first for layer in range(n_layers))
        keys.notes.append(
            f"layer_types is missing; layers from max_window_layers {first} on slide, as in "
            f"transformers ({sum(types)} of {n_layers})"
        )
    return Window(size, types) if any(types) else None


def _layer_types(top: Keys, n_layers: int) -> tuple[bool, ...] | None:
    types = top.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != n_layers:
        top.reject("layer_types", types, f"a list of {n_layers} layer types")
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            top.reject("layer_types", kind, "full_attention or sliding_attention per layer")
    return tuple(kind == "sliding_attention" for kind in types)
