"""The configuration of a Hugging Face Qwen3.5 text checkpoint (config.json)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specla.errors import UnsupportedModelError
from specla.models.convert.json_file import Keys, load_json
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.qwen35.config import Qwen35Config

_TEXT_TYPES = ("qwen3_5_text",)
_WRAPPER_TYPES = ("qwen3_5",)
TARGET_TYPES = _TEXT_TYPES + _WRAPPER_TYPES
_LAYER_TYPES = {"linear_attention": False, "full_attention": True}


@dataclass(frozen=True)
class TokenIds:
    """What the tokenizer has to know of config.json: the embedding's rows, and special tokens."""

    vocab_size: int
    eos_ids: tuple[int, ...]
    bos_id: int | None
    pad_id: int | None


@dataclass(frozen=True)
class HfConfig:
    """config: the target's shapes; its eos_ids are config.json's and generation_config.json's.

    rope_sections: four sizes for `rope.dimension_sections`.
    bos_id, pad_id: token ids or None.
    """

    config: Qwen35Config
    rope_sections: tuple[int, int, int, int]
    bos_id: int | None
    pad_id: int | None

    @property
    def tokens(self) -> TokenIds:
        """For the tokenizer."""
        config = self.config
        return TokenIds(config.vocab_size, config.eos_ids, self.bos_id, self.pad_id)


def looks_like_target(keys: Keys) -> bool:
    """Whether a config.json is a target's."""
    return keys.get("model_type") in TARGET_TYPES


def read_hf_config(folder: Path, name: str) -> HfConfig:
    """Configuration of the text model in a checkpoint folder.

    Takes a text checkpoint or the multimodal wrapper (with `text_config`). Raises
    UnsupportedModelError for another model or an option specla lacks, FileFormatError for
    missing or contradicting keys; one line each.
    """
    whole = Keys(folder / "config.json", load_json(folder / "config.json"))
    text = _text_part(whole)
    _check_options(text)
    n_layers = text.integer("num_hidden_layers", low=1)
    vocab_size = text.integer("vocab_size", low=1)
    head_dim = text.integer("head_dim", low=1)
    rotary_dim, rope_base, sections = _rope(text, head_dim)
    config = Qwen35Config(
        name=name,
        n_layers=n_layers,
        n_mtp_layers=text.integer("mtp_num_hidden_layers", 0),
        d_model=text.integer("hidden_size", low=1),
        d_ff=text.integer("intermediate_size", low=1),
        vocab_size=vocab_size,
        context_length=text.integer("max_position_embeddings", low=1),
        n_heads=text.integer("num_attention_heads", low=1),
        n_kv_heads=text.integer("num_key_value_heads", low=1),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_base=rope_base,
        n_key_heads=text.integer("linear_num_key_heads", low=1),
        n_value_heads=text.integer("linear_num_value_heads", low=1),
        key_dim=text.integer("linear_key_head_dim", low=1),
        value_dim=text.integer("linear_value_head_dim", low=1),
        conv_width=text.integer("linear_conv_kernel_dim", low=2),
        attention_layers=_attention_layers(text, n_layers),
        rms_eps=text.number("rms_norm_eps"),
        tied_output=_tied(text, whole),
        eos_ids=eos_ids(text, folder, vocab_size),
    )
    for heads, groups in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        if text.integer(heads) % text.integer(groups):
            text.reject(heads, text.get(heads), f"a multiple of {groups} ({text.get(groups)})")
    return HfConfig(
        config, sections, token_id(text, "bos_token_id"), token_id(text, "pad_token_id")
    )


def _text_part(whole: Keys) -> Keys:
    found = whole.get("model_type")
    if found in _WRAPPER_TYPES:
        text = whole.part("text_config")
        found = text.get("model_type") or _TEXT_TYPES[0]
    else:
        text = whole
    if found not in _TEXT_TYPES:
        known = ", ".join(_TEXT_TYPES + _WRAPPER_TYPES)
        raise UnsupportedModelError(
            f"{shown_path(whole.path)}: model_type {quoted(found)} is not supported; specla "
            f"converts {known}"
        )
    return text


def _check_options(text: Keys) -> None:
    for key, only in (
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("attn_output_gate", True),
    ):
        found = text.get(key)
        if found is not None and found != only:
            raise UnsupportedModelError(
                f"{shown_path(text.path)}: {key} {quoted(found)} is not supported; only {only!r} is"
            )


def _rope(text: Keys, head_dim: int) -> tuple[int, float, tuple[int, int, int, int]]:
    # older files: rope_theta and partial_rotary_factor on top, rope_scaling for the rest
    rope = text.part("rope_parameters" if text.get("rope_parameters") else "rope_scaling")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "mrope"):
        raise UnsupportedModelError(
            f"{shown_path(text.path)}: rope type {quoted(kind)} is not supported; only unscaled "
            f"rope is"
        )
    base = (rope if rope.get("rope_theta") else text).number("rope_theta")
    holder = rope if rope.get("partial_rotary_factor") else text
    factor = holder.number("partial_rotary_factor", 0.25)
    rotary_dim = int(head_dim * factor)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        wanted = f"an even number of rotated dimensions of {head_dim}"
        holder.reject("partial_rotary_factor", factor, wanted)
    return rotary_dim, base, _sections(rope, rotary_dim)


def _sections(rope: Keys, rotary_dim: int) -> tuple[int, int, int, int]:
    found = rope.get("mrope_section") or []
    is_sizes = isinstance(found, list) and all(type(size) is int and size >= 0 for size in found)
    if not is_sizes or len(found) > 4:
        rope.reject("mrope_section", found, "up to four sizes")
    # Text has one position on all axes, so sections only have to cover the pairs.
    if sum(found) != rotary_dim // 2:
        found = [rotary_dim // 2]
    one, two, three, four = [*found, 0, 0, 0, 0][:4]
    return one, two, three, four


def _attention_layers(text: Keys, n_layers: int) -> tuple[bool, ...]:
    types = text.get("layer_types")
    if types is None:
        interval = text.integer("full_attention_interval", 4, low=1)
        return tuple((layer + 1) % interval == 0 for layer in range(n_layers))
    if not isinstance(types, list) or len(types) != n_layers:
        text.reject("layer_types", types, f"a list of {n_layers} layer types")
    for kind in types:
        if not isinstance(kind, str) or kind not in _LAYER_TYPES:
            text.reject("layer_types", kind, f"one of {', '.join(_LAYER_TYPES)} per layer")
    return tuple(_LAYER_TYPES[kind] for kind in types)


def _tied(text: Keys, whole: Keys) -> bool:
    if text.get("tie_word_embeddings") is not None:
        return text.boolean("tie_word_embeddings")
    return whole.boolean("tie_word_embeddings", False)


def token_id(keys: Keys, key: str) -> int | None:
    """A token id, None when the key is absent."""
    return None if keys.get(key) is None else keys.integer(key)


def eos_ids(text: Keys, folder: Path, vocab_size: int) -> tuple[int, ...]:
    """Ids that end a text, of generation_config.json (if there) and of config.json, in order."""
    path = folder / "generation_config.json"
    holders = [Keys(path, load_json(path))] if path.exists() else []
    ids: list[int] = []
    for keys in [*holders, text]:
        found = keys.get("eos_token_id")
        for token in found if isinstance(found, list) else [found]:
            if token is None or token in ids:
                continue
            if type(token) is not int or not 0 <= token < vocab_size:
                fail(
                    keys.path, f"eos_token_id is {quoted(found)}; ids below {vocab_size} are needed"
                )
            ids.append(token)
    return tuple(ids)
