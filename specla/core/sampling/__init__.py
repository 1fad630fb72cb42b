"""Choosing a token from logits, the same way with and without speculation."""

from specla.core.sampling.params import SamplingParams
from specla.core.sampling.processors import LogitProcessor
from specla.core.sampling.random import DRAFT_STREAM, TARGET_STREAM, uniform
from specla.core.sampling.sampler import Sampler

__all__ = [
    "DRAFT_STREAM",
    "TARGET_STREAM",
    "LogitProcessor",
    "Sampler",
    "SamplingParams",
    "uniform",
]
