"""RMSNorm, its gated form, and the L2 norm of queries and keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.numpy.sums import halving_tree
from specla.core.elementary import rsqrt, silu

Float32 = npt.NDArray[np.float32]


def _inverse_rms(x: Float32, eps: float) -> Float32:
    mean = halving_tree(x * x) / np.float32(x.shape[-1])
    return rsqrt(mean + np.float32(eps))[..., None]


@np.errstate(all="ignore")
def rms_norm(x: Float32, weight: Float32, eps: float, out: Float32) -> None:
    """See Backend.rms_norm."""
    out[...] = (x * _inverse_rms(x, eps)) * weight


@np.errstate(all="ignore")
def gated_rms_norm(x: Float32, gate: Float32, weight: Float32, eps: float, out: Float32) -> None:
    """See Backend.gated_rms_norm."""
    out[...] = ((x * _inverse_rms(x, eps)) * weight) * silu(gate)


@np.errstate(all="ignore")
def l2_norm(x: Float32, eps: float, scale: float, out: Float32) -> None:
    """See Backend.l2_norm."""
    inverse = rsqrt(halving_tree(x * x) + np.float32(eps))[..., None]
    out[...] = (x * inverse) * np.float32(scale)
