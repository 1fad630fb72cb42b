"""How large everything is: the shape that is measured, and a tiny one that shows the code works."""

from __future__ import annotations

from dataclasses import dataclass

from shapes import SHAPES, Shape

Matrix = tuple[str, int, int]
"""Name, rows and columns."""


def matrices_of(shape: Shape) -> tuple[Matrix, ...]:
    """The large matrices of a model; others have the sizes of one of them, or are small."""
    s = shape
    inner, query = s.n_value_heads * s.gdn_head_dim, s.n_heads * s.head_dim
    channels = inner + 2 * s.n_key_heads * s.gdn_head_dim
    return (
        ("qkv", channels, s.d_model),
        ("z", inner, s.d_model),
        ("GDN out", s.d_model, inner),
        ("q and gate", 2 * query, s.d_model),
        ("FFN up", s.d_ff, s.d_model),
        ("FFN down", s.d_model, s.d_ff),
        ("head", s.vocab_size, s.d_model),
    )


@dataclass(frozen=True)
class Sizes:
    """shape: of the model.  copy_bytes: of the copy that measures bandwidth.

    Correctness: warps per program, None as the kernels ask for; examples of every kernel with
    these; kernels, None for all; decodings, engine_tokens of each; engine_prompt, None for a whole
    sentence and the bundled model, else of a random one of this shape.
    Recurrence: nodes, batches; pending: factors of an accepted path that wait to be folded.
    Products: rows of x; kinds; matrices.
    Decoding: prompt and tokens; checked: as many are compared in logits and state too; accepts and
    trees, for replay.py's settings; runs of each.
    """

    shape: Shape
    copy_bytes: int
    warps: tuple[int | None, ...]
    examples: tuple[int, ...]
    kernels: tuple[str, ...] | None
    decodings: tuple[str, ...]
    engine_tokens: int
    engine_prompt: int | None
    nodes: tuple[int, ...]
    batches: tuple[int, ...]
    pending: int
    rows: tuple[int, ...]
    kinds: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    prompt: int
    tokens: int
    checked: int
    accepts: tuple[int, ...]
    trees: tuple[int, ...]
    runs: int


FULL = Sizes(
    shape=SHAPES["27b"],
    copy_bytes=4 << 30,
    warps=(None, 2, 8),
    examples=(5, 2, 2),
    kernels=None,
    decodings=("engine.plain", "engine.trees"),
    engine_tokens=12,
    engine_prompt=None,
    nodes=(1, 4, 8, 16, 22, 64),
    batches=(1, 8),
    pending=5,
    rows=(1, 8, 16, 22),
    kinds=("Q4_K", "Q6_K", "Q8_0", "Q5_K", "Q4_0"),
    matrices=matrices_of(SHAPES["27b"]),
    prompt=64,
    tokens=48,
    checked=12,
    accepts=(3, 5, 8),
    trees=(8, 22),
    runs=3,
)

TINY = Sizes(
    shape=Shape(
        2, 64, 64, 2, 1, 32, 1, 2, 32, 16, (4, 2, 2, 0),
        vocab_size=264, n_control=3, n_unused=5, tied=False, interval=2, context_length=512,
    ),
    copy_bytes=1 << 12,
    warps=(None, 2),
    examples=(1, 1),
    kernels=("quantise", "linear_quantised", "gdn_verify", "rms_norm"),
    decodings=("engine.plain",),
    engine_tokens=1,
    engine_prompt=2,
    nodes=(1, 3),
    batches=(1, 2),
    pending=2,
    rows=(2,),
    kinds=("Q4_K", "Q6_K", "Q8_0", "Q5_K", "Q4_0"),
    matrices=(("FFN down", 64, 256),),
    prompt=1,
    tokens=2,
    checked=1,
    accepts=(2,),
    trees=(3,),
    runs=1,
)  # fmt: skip
