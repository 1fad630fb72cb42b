"""Converting Hugging Face Qwen3.5 checkpoints to `qwen35` GGUF files."""

from specla.models.convert.qwen35 import Conversion, convert_qwen35

__all__ = ["Conversion", "convert_qwen35"]
