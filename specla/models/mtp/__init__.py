"""Multi-token prediction: the extra layer that a Qwen3.5 model is trained with."""
