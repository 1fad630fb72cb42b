"""A `qwen35` GGUF with random weights of a published shape, so that speed needs no download.

    python benchmarks/make_model.py 0.8b Q8_0 /tmp/0.8b-Q8_0.gguf [--seed 0]

Weights have mean 0 and standard deviation 1/sqrt(columns) (embedding: twice that), norms are near
1, decays as in a fresh model: hidden values stay near 1 and logits have a deviation of about 2.
The text such a model writes means nothing. specla and llama.cpp open the file.

Q4_K_M and Q5_K_M are mixed as llama.cpp does: the output matrix (the embedding, where tied) is
Q6_K, and so are ffn_down and attn_v (attn_qkv in the recurrent layers) of the first and the last
eighth of the layers and of every third between; the rest is Q4_K or Q5_K. Q6_K takes that type for
all. Rows that don't fill blocks of 256 become Q8_0 (llama.cpp: a type of similar size).
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from random_blocks import BLOCKS, random_chunks
from random_vocabulary import vocabulary_metadata
from shapes import SHAPES, Shape

from specla.errors import OptionError, SpeclaError
from specla.models.convert.atomic import replacing
from specla.models.convert.hf_config import HfConfig
from specla.models.convert.plan import Move, trunk_moves
from specla.models.convert.qwen35 import model_metadata
from specla.models.gguf.write import TensorToWrite, write_gguf

# name -> (type of most matrices, general.file_type)
QUANTISATIONS = {
    "F32": ("F32", 0),
    "F16": ("F16", 1),
    "BF16": ("BF16", 32),
    "Q8_0": ("Q8_0", 7),
    "Q4_0": ("Q4_0", 2),
    "Q4_K_M": ("Q4_K", 15),
    "Q5_K_M": ("Q5_K", 17),
    "Q6_K": ("Q6_K", 18),
}
_SENSITIVE = ("ffn_down", "attn_v", "attn_qkv")


def make_model(shape: Shape, name: str, quantisation: str, path: Path, seed: int = 0) -> int:
    """Write the file and return its size in bytes. Raises OptionError, one line."""
    if quantisation not in QUANTISATIONS:
        known = ", ".join(QUANTISATIONS)
        raise OptionError(f"quantisation {quantisation!r} is unknown; use one of {known}")
    config = shape.config(f"random-{name}")
    moves = trunk_moves(config)
    if not config.tied_output:
        moves.append(Move("", "output.weight", (config.vocab_size, config.d_model)))
    hf = HfConfig(config, shape.rope_sections, None, None)
    metadata = model_metadata(hf, QUANTISATIONS[quantisation][1])
    metadata |= vocabulary_metadata(shape.vocab_size, shape.n_control, shape.n_unused)
    tensors = [_tensor(move, matrix_kind(move, shape, quantisation), seed) for move in moves]
    with replacing(path) as (file, _):
        return write_gguf(file, metadata, tensors)


def matrix_kind(move: Move, shape: Shape, quantisation: str) -> str:
    """GGML type of a tensor."""
    if not move.matrix:
        return "F32"
    kind = QUANTISATIONS[quantisation][0]
    if quantisation.endswith("_M") and _more_bits(move.target, shape):
        kind = "Q6_K"
    # Q4_0 files keep their output matrix in more bits, too
    if quantisation == "Q4_0" and _is_output(move.target, shape):
        kind = "Q6_K"
    return "Q8_0" if move.shape[-1] % BLOCKS[kind][0] else kind


def _is_output(name: str, shape: Shape) -> bool:
    return name == ("token_embd.weight" if shape.tied else "output.weight")


def _more_bits(name: str, shape: Shape) -> bool:
    if not name.startswith("blk."):
        return _is_output(name, shape)
    _, layer, part, *_ = name.split(".")
    index, count = int(layer), shape.n_layers
    outer = index < count // 8 or index >= 7 * count // 8
    return part in _SENSITIVE and (outer or (index - count // 8) % 3 == 2)


def _tensor(move: Move, kind: str, seed: int) -> TensorToWrite:
    def chunks() -> Iterator[bytes]:
        # a generator per tensor: its values don't depend on its neighbours
        key = [seed, zlib.crc32(move.target.encode())]
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))
        size = int(np.prod(move.shape))
        if not move.matrix:
            yield random_vector(rng, move.target, size).astype("<f4").tobytes()
            return
        gain = 2.0 if move.target in ("token_embd.weight", "output.weight") else 1.0
        yield from random_chunks(rng, kind, size, gain / np.sqrt(move.shape[-1]))

    return TensorToWrite(move.target, kind, move.shape, chunks)


def random_vector(rng: np.random.Generator, name: str, size: int) -> np.ndarray:
    """Values of a tensor that is no matrix, float64 [size], as its name wants them."""
    part = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.split(".")[-1]
    if part == "ssm_a":
        return -rng.uniform(1, 16, size)
    if part == "ssm_dt":
        step = np.exp(rng.uniform(np.log(0.001), np.log(0.1), size))
        return step + np.log(-np.expm1(-step))  # softplus of it is the step
    if part == "ssm_conv1d":
        return rng.standard_normal(size) / 2
    return 1 + rng.standard_normal(size) / 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("quantisation", choices=QUANTISATIONS)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        size = make_model(SHAPES[args.shape], args.shape, args.quantisation, args.path, args.seed)
    except SpeclaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.path}: {args.shape}, {args.quantisation}, {size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
