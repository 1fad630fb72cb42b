"""Tensors of an extra prediction (MTP, nextn) layer: from a whole target or a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specla.backends.weights import WeightSource
from specla.errors import UnsupportedModelError
from specla.models.gguf.text import shown_path
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.weights import AttentionWeights, TensorReader, read_attention


@dataclass(frozen=True)
class MtpWeights:
    """One extra prediction layer of a Qwen3.5 model.

    config: of the file that holds it.  fc: [d_model, 2 * d_model], columns of the embedding first.
    embedding_norm, hidden_norm, output_norm: float32 [d_model], plain factors.
    embedding, output: [vocab_size, d_model], one object when tied; None where the target's serve.
    """

    config: Qwen35Config
    fc: WeightSource
    embedding_norm: np.ndarray
    hidden_norm: np.ndarray
    output_norm: np.ndarray
    layer: AttentionWeights
    embedding: WeightSource | None
    output: WeightSource | None


def read_own_mtp(reader: TensorReader, config: Qwen35Config) -> MtpWeights:
    """The layer that a target's file carries behind its trunk; embedding and output are shared.

    Raises UnsupportedModelError where there is none, otherwise as :func:`read_mtp`.
    """
    own = _Nextn(reader, config)
    return own.weights(own.optional("embed_tokens"), own.optional("shared_head_head"))


def read_mtp(reader: TensorReader, config: Qwen35Config) -> MtpWeights:
    """The layer of a file that is not the target's, with that file's embedding and output, if any.

    Raises UnsupportedModelError for a file without such a layer, FileFormatError for a tensor that
    is missing, has the wrong shape or is damaged.
    """
    own = _Nextn(reader, config)
    embedding = own.optional("embed_tokens") or own.whole("token_embd")
    # a model without an output matrix uses its embedding
    tied = own.whole("output") or own.whole("token_embd")
    return own.weights(embedding, own.optional("shared_head_head") or tied)


def open_mtp(path: str | Path) -> MtpWeights:
    """:func:`read_mtp` of a GGUF file; it stays memory-mapped."""
    from specla.models.gguf.file import GgufFile
    from specla.models.qwen35.config import read_config

    gguf = GgufFile.open(path)
    return read_mtp(TensorReader(gguf), read_config(gguf))


class _Nextn:
    """The first extra layer of a file. Where there are several, the others are not used."""

    def __init__(self, reader: TensorReader, config: Qwen35Config) -> None:
        if not config.n_mtp_layers:
            raise UnsupportedModelError(
                f"{shown_path(reader.gguf.path)}: holds no extra prediction layer "
                f"(qwen35.nextn_predict_layers is 0); convert the model with its MTP layer"
            )
        self.reader, self.config = reader, config
        self.block = f"blk.{config.n_layers}.nextn"
        self._read: dict[str, WeightSource] = {}

    def optional(self, name: str) -> WeightSource | None:
        """A matrix [vocab_size, d_model] of the layer's own."""
        return self._vocabulary(f"{self.block}.{name}.weight")

    def whole(self, name: str) -> WeightSource | None:
        """Such a matrix of the file's model; one object however often it is asked for."""
        return self._vocabulary(f"{name}.weight")

    def _vocabulary(self, name: str) -> WeightSource | None:
        if name not in self._read and name in self.reader.gguf.tensors:
            config = self.config
            self._read[name] = self.reader.matrix(name, config.vocab_size, config.d_model)
        return self._read.get(name)

    def weights(self, embedding: WeightSource | None, output: WeightSource | None) -> MtpWeights:
        config, reader, block = self.config, self.reader, self.block
        width = config.d_model
        # the model's last norm serves a layer that has none of its own
        norm = f"{block}.shared_head_norm.weight"
        return MtpWeights(
            config,
            fc=reader.matrix(f"{block}.eh_proj.weight", width, 2 * width),
            embedding_norm=reader.vector(f"{block}.enorm.weight", width),
            hidden_norm=reader.vector(f"{block}.hnorm.weight", width),
            output_norm=reader.vector(
                norm if norm in reader.gguf.tensors else "output_norm.weight", width
            ),
            layer=read_attention(reader, config, config.n_layers),
            embedding=embedding,
            output=output,
        )
