"""What a GGUF file holds, what it costs to run, and whether specla serves it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from specla.errors import SpeclaError

if TYPE_CHECKING:
    from specla.models.gguf import GgufFile
    from specla.models.inspect_drafter import DrafterReport
    from specla.models.qwen35.config import Qwen35Config


@dataclass(frozen=True)
class KindUsage:
    """Tensors of one GGML type: how many, their weights, their bytes."""

    tensors: int
    weights: int
    bytes: int


@dataclass(frozen=True)
class StateCost:
    """Memory beside the weights, in bytes.

    recurrent_bytes: states S of one sequence, [layers, Hv, K, V] float32.
    conv_bytes: convolution windows of one sequence, [layers, C, width - 1] float32.
    kv_bytes_per_token_f16, _f32: keys and values of one position, all attention layers.
    factor_bytes_per_node: one node of one bank, all GDN layers: key Hk*K, update Hv*V, decay Hv,
    convolution input C, float32.  factor_banks: banks per sequence.
    """

    recurrent_bytes: int
    conv_bytes: int
    kv_bytes_per_token_f16: int
    kv_bytes_per_token_f32: int
    factor_bytes_per_node: int
    factor_banks: int = 2


@dataclass(frozen=True)
class ModelReport:
    """Report of `describe`.

    files: all parts.  file_bytes: their size.  parameters: weights of all tensors.
    kinds: GGML type -> usage.  config: the target's fields, or None when it isn't a readable
    target.  drafter: the drafter's facts, or None when it isn't a readable drafter.
    state: memory beside the weights, or None.  tokenizer: model and pre-tokeniser, or None.
    serves: whether specla runs it as a target.  reason: why not, one line, or None.
    """

    path: str
    files: tuple[str, ...]
    file_bytes: int
    gguf_version: int
    architecture: str | None
    name: str | None
    parameters: int
    kinds: dict[str, KindUsage]
    tokenizer: str | None
    config: Qwen35Config | None
    drafter: DrafterReport | None
    state: StateCost | None
    serves: bool
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values that `json.dumps` takes."""
        return asdict(self)


def describe(path: str | os.PathLike[str]) -> ModelReport:
    """Describe any GGUF file, whether specla can run it or not.

    Raises FileFormatError, one line, when it is no sound GGUF file at all.
    """
    from specla.models.gguf import GgufFile
    from specla.models.inspect_drafter import is_drafter

    gguf = GgufFile.open(path)
    drafter = config = None
    if is_drafter(gguf):
        drafter, reason = _drafter(gguf)
    else:
        config, reason = _readable(gguf)
    return ModelReport(
        path=str(gguf.path),
        files=tuple(str(part) for part in gguf.parts),
        file_bytes=gguf.n_bytes,
        gguf_version=gguf.version,
        architecture=_text(gguf, "general.architecture"),
        name=_text(gguf, "general.name"),
        parameters=sum(tensor.n_elements for tensor in gguf.tensors.values()),
        kinds=_kinds(gguf),
        tokenizer=_tokenizer(gguf),
        config=config,
        drafter=drafter,
        state=None if config is None else state_cost(config),
        serves=reason is None,
        reason=reason,
    )


def state_cost(config: Qwen35Config) -> StateCost:
    """Memory that a sequence needs beside the weights."""
    from specla.models.qwen35.options import TargetOptions, recurrent_shape

    shape = recurrent_shape(config, TargetOptions(slots=1))
    kv = 2 * config.n_attention_layers * config.n_kv_heads * config.head_dim
    return StateCost(
        recurrent_bytes=shape.recurrent_bytes,
        conv_bytes=shape.window_bytes,
        kv_bytes_per_token_f16=kv * 2,
        kv_bytes_per_token_f32=kv * 4,
        factor_bytes_per_node=shape.node_bytes,
    )


def _drafter(gguf: GgufFile) -> tuple[DrafterReport | None, str | None]:
    """(facts if readable, reason why the file isn't servable as a target)."""
    from specla.models.inspect_drafter import describe_drafter

    try:
        return describe_drafter(gguf), "a drafter; give it to a target with --draft"
    except SpeclaError as error:
        return None, str(error).removeprefix(f"{gguf.path}: ")


def _readable(gguf: GgufFile) -> tuple[Qwen35Config | None, str | None]:
    """(configuration if readable, reason why the file isn't servable)."""
    from specla.models.qwen35.config import read_config
    from specla.models.qwen35.weights import read_weights
    from specla.models.tokenizer.metadata import read_metadata
    from specla.models.tokenizer.pretokenizers import pre_tokenizer_pattern

    config = None
    source = str(gguf.path)
    try:
        config = read_config(gguf)
        read_weights(gguf, config)
        pre_tokenizer_pattern(read_metadata(gguf.metadata, source).pre, source)
    except SpeclaError as error:
        return config, str(error).removeprefix(f"{source}: ")
    return config, None


def _kinds(gguf: GgufFile) -> dict[str, KindUsage]:
    usage: dict[str, KindUsage] = {}
    for tensor in gguf.tensors.values():
        old = usage.get(tensor.kind, KindUsage(0, 0, 0))
        usage[tensor.kind] = KindUsage(
            old.tensors + 1, old.weights + tensor.n_elements, old.bytes + tensor.n_bytes
        )
    return dict(sorted(usage.items(), key=lambda item: -item[1].bytes))


def _text(gguf: GgufFile, key: str) -> str | None:
    """A string of the metadata, None when it isn't there or isn't a string."""
    try:
        return gguf.metadata.get_str(key, None)
    except SpeclaError:
        return None


def _tokenizer(gguf: GgufFile) -> str | None:
    model = _text(gguf, "tokenizer.ggml.model")
    pre = _text(gguf, "tokenizer.ggml.pre")
    return model if model is None or pre is None else f"{model}/{pre}"
