"""Shapes and constants of a `qwen35` target (dense Qwen3.5, 3.6, 3.8), read from GGUF metadata.

Keys as llama.cpp's converter writes them. `block_count` counts the trunk and the extra
prediction (nextn, MTP) layers together; plain decoding runs the trunk only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from specla.errors import FileFormatError, UnsupportedModelError
from specla.models.gguf import GgufFile
from specla.models.gguf.metadata import Metadata
from specla.models.gguf.text import quoted, shown_path

ARCHITECTURE = "qwen35"
# Far above any published model; what they keep out is a damaged file that asks for terabytes.
_MAX_LAYERS, _MAX_WIDTH, _MAX_HEADS, _MAX_HEAD = 1024, 1 << 18, 4096, 4096
_MAX_VOCABULARY, _MAX_CONTEXT, _MAX_CONV = 1 << 22, 1 << 31, 64
_NO_TOKEN = 0xFFFFFFFF


@dataclass(frozen=True)
class Qwen35Config:
    """A dense Gated-DeltaNet hybrid.

    n_layers: trunk layers.  n_mtp_layers: extra prediction layers after them.
    rotary_dim: rotated dimensions of each attention head, half-split pairs (i, i + rotary_dim/2).
    key_dim, value_dim: head sizes of the recurrence; its state is [n_value_heads, key_dim,
    value_dim]; value head h uses key head h % n_key_heads (the file's tiled order).
    attention_layers: per trunk layer, True = full attention, False = Gated DeltaNet.
    eos_ids: token ids that end a text.
    vocabulary: digest of the token list, by which a draft model's is compared; None without one.
    """

    name: str
    n_layers: int
    n_mtp_layers: int
    d_model: int
    d_ff: int
    vocab_size: int
    context_length: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_base: float
    n_key_heads: int
    n_value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int
    attention_layers: tuple[bool, ...]
    rms_eps: float
    tied_output: bool
    eos_ids: tuple[int, ...]
    vocabulary: str | None = None

    @property
    def conv_channels(self) -> int:
        """Channels of the causal convolution: queries, keys, values."""
        return 2 * self.n_key_heads * self.key_dim + self.n_value_heads * self.value_dim

    @property
    def n_attention_layers(self) -> int:
        return sum(self.attention_layers)

    @property
    def n_gdn_layers(self) -> int:
        return self.n_layers - self.n_attention_layers


def read_config(gguf: GgufFile) -> Qwen35Config:
    """The target's configuration.

    Raises UnsupportedModelError when the file is sound but not servable, FileFormatError when
    keys are missing or contradict each other; one line each.
    """
    check_architecture(gguf)
    keys = _Keys(gguf.metadata)
    n_blocks = keys.size("block_count", _MAX_LAYERS)
    n_mtp = keys.number("nextn_predict_layers", 0, low=0, high=_MAX_LAYERS)
    if n_mtp >= n_blocks:
        keys.reject("nextn_predict_layers", f"is {n_mtp}, but there are {n_blocks} blocks in all")
    n_heads, n_kv_heads = _attention_heads(keys)
    head_dim, rotary_dim = _head_dims(keys)
    n_key_heads, n_value_heads, value_dim = _recurrence_heads(keys)
    _check_rope(keys)
    vocab_size = _vocabulary_size(gguf, keys)
    return Qwen35Config(
        name=gguf.metadata.get_str("general.name", "") or gguf.path.stem,
        n_layers=n_blocks - n_mtp,
        n_mtp_layers=n_mtp,
        d_model=keys.size("embedding_length", _MAX_WIDTH),
        d_ff=keys.size("feed_forward_length", _MAX_WIDTH),
        vocab_size=vocab_size,
        context_length=keys.size("context_length", _MAX_CONTEXT),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        rope_base=keys.positive_float("rope.freq_base", 1e-3, 1e18),
        n_key_heads=n_key_heads,
        n_value_heads=n_value_heads,
        key_dim=keys.size("ssm.state_size", _MAX_HEAD),
        value_dim=value_dim,
        conv_width=keys.number("ssm.conv_kernel", low=2, high=_MAX_CONV),
        attention_layers=_attention_layers(keys, n_blocks, n_blocks - n_mtp),
        rms_eps=keys.positive_float("attention.layer_norm_rms_epsilon", 1e-30, 1.0),
        tied_output="output.weight" not in gguf.tensors,
        eos_ids=_eos_ids(gguf.metadata, vocab_size),
        vocabulary=gguf.metadata.digest("tokenizer.ggml.tokens"),
    )


def check_architecture(gguf: GgufFile) -> None:
    """Raise UnsupportedModelError, one line, unless the file is a whole `qwen35` model."""
    where = shown_path(gguf.path)
    found = gguf.architecture
    if found != ARCHITECTURE:
        raise UnsupportedModelError(
            f"{where}: architecture {quoted(found)} is not supported; specla serves "
            f"{ARCHITECTURE} (dense Qwen3.5, 3.6, 3.8)"
        )
    kind = gguf.metadata.get_str("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(f"{where}: holds a {quoted(kind)}, not a model")
    experts = gguf.metadata.get_int(f"{ARCHITECTURE}.expert_count", 0)
    if experts:
        raise UnsupportedModelError(
            f"{where}: has {experts} experts; specla serves dense {ARCHITECTURE} models"
        )


class _Keys:
    """Metadata under the architecture's prefix."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata

    def full(self, key: str) -> str:
        return f"{ARCHITECTURE}.{key}"

    def number(self, key: str, default: int | None = None, *, low: int, high: int) -> int:
        if default is not None and self.full(key) not in self.metadata:
            return default
        return self.metadata.get_int(self.full(key), low=low, high=high)

    def size(self, key: str, high: int) -> int:
        return self.number(key, low=1, high=high)

    def positive_float(self, key: str, low: float, high: float) -> float:
        value = self.metadata.get_float(self.full(key))
        if value <= 0:
            self.reject(key, f"is {value}; it must be positive")
        return self.metadata.get_float(self.full(key), low=low, high=high)

    def reject(self, key: str, why: str) -> NoReturn:
        self.metadata.reject(self.full(key), why)

    def unsupported(self, key: str, why: str) -> NoReturn:
        where = shown_path(self.metadata.path)
        raise UnsupportedModelError(f"{where}: {self.full(key)} {why}")


def _attention_heads(keys: _Keys) -> tuple[int, int]:
    n_heads = keys.size("attention.head_count", _MAX_HEADS)
    n_kv_heads = keys.size("attention.head_count_kv", _MAX_HEADS)
    if n_heads % n_kv_heads:
        keys.reject(
            "attention.head_count", f"is {n_heads}, not a multiple of {n_kv_heads} KV heads"
        )
    return n_heads, n_kv_heads


def _head_dims(keys: _Keys) -> tuple[int, int]:
    head_dim = keys.size("attention.key_length", _MAX_HEAD)
    value_length = keys.size("attention.value_length", _MAX_HEAD)
    if head_dim != value_length:
        keys.unsupported(
            "attention.key_length",
            f"is {head_dim} and value_length {value_length}; they must agree",
        )
    rotary_dim = keys.size("rope.dimension_count", _MAX_HEAD)
    if rotary_dim % 2 or rotary_dim > head_dim:
        keys.reject(
            "rope.dimension_count", f"is {rotary_dim}; even and at most {head_dim} is possible"
        )
    return head_dim, rotary_dim


def _recurrence_heads(keys: _Keys) -> tuple[int, int, int]:
    n_key_heads = keys.size("ssm.group_count", _MAX_HEADS)
    n_value_heads = keys.size("ssm.time_step_rank", _MAX_HEADS)
    if n_value_heads % n_key_heads:
        keys.reject(
            "ssm.time_step_rank", f"is {n_value_heads}, not a multiple of {n_key_heads} key heads"
        )
    inner = keys.size("ssm.inner_size", _MAX_WIDTH)
    if inner % n_value_heads:
        keys.reject("ssm.inner_size", f"is {inner}, not a multiple of {n_value_heads} value heads")
    value_dim = inner // n_value_heads
    if value_dim > _MAX_HEAD:
        keys.reject("ssm.inner_size", f"is {inner}: value heads of {value_dim} are too large")
    return n_key_heads, n_value_heads, value_dim


def _check_rope(keys: _Keys) -> None:
    scaling = keys.metadata.get_str(keys.full("rope.scaling.type"), "none")
    if scaling != "none":
        keys.unsupported("rope.scaling.type", f"is {quoted(scaling)}; only unscaled rope is served")
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        factor = keys.metadata.get_float(keys.full(key), 1.0)
        if factor not in (0.0, 1.0):
            keys.unsupported(key, f"is {factor}; only unscaled rope is served")
    # Text has the same position on every rope axis, so sections don't change the angles; they
    # are checked because nonsense there means that the other rope keys can't be trusted either.
    sections = keys.metadata.get_ints(keys.full("rope.dimension_sections"), None)
    if sections is not None and (len(sections) > 4 or min(sections, default=0) < 0):
        keys.reject("rope.dimension_sections", f"is {quoted(sections)}; up to 4 sizes are possible")


def _attention_layers(keys: _Keys, n_blocks: int, n_layers: int) -> tuple[bool, ...]:
    recurrent = keys.metadata.get_bools(keys.full("attention.recurrent_layers"), None)
    if recurrent is not None:
        if len(recurrent) not in (n_blocks, n_layers):
            keys.reject(
                "attention.recurrent_layers",
                f"has {len(recurrent)} entries for {n_blocks} blocks",
            )
        return tuple(not is_recurrent for is_recurrent in recurrent[:n_layers])
    interval = keys.number("full_attention_interval", 4, low=1, high=_MAX_LAYERS)
    return tuple((layer + 1) % interval == 0 for layer in range(n_layers))


def _vocabulary_size(gguf: GgufFile, keys: _Keys) -> int:
    listed = gguf.metadata.count("tokenizer.ggml.tokens")
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None:
        size = listed if listed else keys.size("vocab_size", _MAX_VOCABULARY)
    else:
        shape = embedding.matrix_shape
        size = shape[0] if len(shape) == 2 else 1
        if listed is not None and listed != size:
            keys.metadata.reject(
                "tokenizer.ggml.tokens", f"lists {listed} tokens, token_embd.weight has {size} rows"
            )
    if size > _MAX_VOCABULARY:
        raise FileFormatError(f"{shown_path(gguf.path)}: a vocabulary of {size} tokens is absurd")
    return size


def _eos_ids(metadata: Metadata, vocab_size: int) -> tuple[int, ...]:
    ids: list[int] = []
    for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
        token = metadata.get_int(key, _NO_TOKEN)
        if token in (_NO_TOKEN, -1) or token in ids:
            continue
        if not 0 <= token < vocab_size:
            metadata.reject(key, f"is {token}, outside the vocabulary of {vocab_size}")
        ids.append(token)
    return tuple(ids)
