"""Activations in int8 blocks of 32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int8 = npt.NDArray[np.int8]
Int16 = npt.NDArray[np.int16]

BLOCK = 32


def pad_blocks(x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """x [N, K] with zeros appended up to a multiple of 32 columns."""
    missing = -x.shape[1] % BLOCK
    if not missing:
        return x
    return np.concatenate([x, np.zeros((x.shape[0], missing), dtype=x.dtype)], axis=1)


@np.errstate(all="ignore")
def quantise(x: Float32, values_out: Int8, scale_out: Float32, sums_out: Int16) -> None:
    """See Backend.quantise. values_out [N, 32 * blocks], scale_out [N, blocks], sums_out [N,
    blocks, 2]."""
    blocks = pad_blocks(x).reshape(x.shape[0], -1, BLOCK)
    scale = np.abs(blocks).max(axis=-1) / np.float32(127)
    divisor = np.where(scale == 0, np.float32(1), scale)
    quotient = np.rint(blocks / divisor[..., None])
    # NaN (from infinite or NaN input) becomes 0: the scale carries it on. A subnormal scale is
    # coarse enough for the quotient to pass 127: it saturates.
    bounded = np.clip(np.where(np.isnan(quotient), np.float32(0), quotient), -127, 127)
    values_out[...] = bounded.astype(np.int8).reshape(values_out.shape)
    scale_out[...] = scale
    halves = values_out.reshape(*sums_out.shape, BLOCK // 2)
    sums_out[...] = halves.sum(axis=-1, dtype=np.int16)  # below 2^11
