"""A whole model of a shape with random quantised weights that exist on the device only."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from make_model import matrix_kind, random_vector
from shapes import Shape

from gpu.mixtures import choice_of, mixed, small_matrix
from specla.backends.base import Weight
from specla.backends.triton.backend import TritonBackend
from specla.backends.weights import WeightSource
from specla.models.convert.plan import Move, trunk_moves
from specla.models.qwen35.weights import Qwen35Weights, read_attention, read_gdn

RAW = ("token_embd.weight", "output.weight")
"""Matrices with twice the deviation: see make_model.py."""


class RandomBackend(TritonBackend):
    """Loads a source without data: the matrix is made on the device, as its name seeds it."""

    def __init__(self, device: str | None = None) -> None:
        super().__init__(device)
        self._small: dict[tuple[str, int, float], Weight] = {}

    def load(self, source: WeightSource) -> Weight:
        """See mixtures.py. A source that has data is loaded as ever."""
        import torch

        if source.data.size:
            return super().load(source)
        gain = 2.0 if source.name in RAW else 1.0
        key = (source.kind, source.cols, gain)
        if key not in self._small:
            self._small[key] = small_matrix(self, *key)
        random = torch.Generator(self.device).manual_seed(zlib.crc32(source.name.encode()))
        choice = choice_of(self._small[key], source.rows, random, self.device)
        return mixed(self._small[key], source.name, choice)


class _Reader:
    """Stands for a file: the kind of each matrix, and small vectors from a seed."""

    def __init__(self, kinds: dict[str, str]) -> None:
        self._kinds = kinds

    def matrix(self, name: str, rows: int, cols: int) -> WeightSource:
        """Kind and shape, no data."""
        return WeightSource(name, self._kinds[name], rows, cols, np.empty((rows, 0), np.uint8))

    def vector(self, name: str, length: int) -> np.ndarray:
        """float32 [length]."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return random_vector(rng, name, length).astype(np.float32)

    def table(self, name: str, rows: int, cols: int) -> np.ndarray:
        """float32 [rows, cols]."""
        return self.vector(name, rows * cols).reshape(rows, cols)


def random_weights(shape: Shape, quantisation: str) -> Qwen35Weights:
    """A target of the shape, mixed as files of that quantisation are (make_model.py)."""
    config = shape.config(f"random {quantisation}")
    head = Move("", "output.weight", (config.vocab_size, config.d_model))
    moves = [*trunk_moves(config), head]
    reader: Any = _Reader({m.target: matrix_kind(m, shape, quantisation) for m in moves})
    size = (config.vocab_size, config.d_model)
    embedding = reader.matrix("token_embd.weight", *size)
    return Qwen35Weights(
        config,
        embedding,
        embedding if config.tied_output else reader.matrix("output.weight", *size),
        reader.vector("output_norm.weight", config.d_model),
        tuple(
            (read_attention if attention else read_gdn)(reader, config, layer)
            for layer, attention in enumerate(config.attention_layers)
        ),
    )
