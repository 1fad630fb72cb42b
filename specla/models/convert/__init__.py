"""Converting Hugging Face checkpoints, Qwen3.5 targets and their drafters, to GGUF files."""

from specla.models.convert.checkpoint import convert_checkpoint
from specla.models.convert.output import Conversion
from specla.models.convert.qwen35 import convert_qwen35

__all__ = ["Conversion", "convert_checkpoint", "convert_qwen35"]
