"""What a draft model shares with its target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specla.backends.base import Weight
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.weights import TensorReader


@dataclass(frozen=True)
class TargetParts:
    """Loaded parts of a target, on its backend; they stay the target's own.

    embedding, output: [vocab, d_model], one object when tied.  output_norm: weight [d_model] of
    the norm before ``output``.  extra: reads what the file holds beside the trunk (the target's
    own extra prediction layers); None for a target that comes from no file.
    """

    config: Qwen35Config
    options: TargetOptions
    embedding: Weight
    output: Weight
    output_norm: Any
    extra: TensorReader | None = None
