"""specla: lossless speculative decoding on Gated-DeltaNet hybrid language models."""

__version__ = "0.1.0"
