"""Tensors of a `.pt` file, read without running what it holds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from specla.errors import FileFormatError
from specla.models.convert.safetensors import SafeTensor
from specla.models.gguf.text import fail, shown_path
from specla.regular_file import open_regular


def read_torch_file(path: Path) -> dict[str, SafeTensor]:
    """Tensors of a pickled state dict (plain or under "state_dict"), floats as float32.

    Needs PyTorch, and only lets it read tensors (`weights_only`). Raises FileFormatError, one line.
    """
    try:
        import torch
    except ImportError:
        fail(path, "needs PyTorch to be read; install it or save the tensors as .safetensors")
    try:
        # its unpickler warns about strange files that it then refuses
        with open_regular(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise FileFormatError(f"{shown_path(path)}: can't read it: {error.strerror}") from None
    except Exception as error:  # the unpickler raises whatever the file makes it raise
        raise FileFormatError(
            f"{shown_path(path)}: can't be read as a file of tensors ({type(error).__name__})"
        ) from None
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        fail(path, "holds no named tensors")
    return {
        name: _plain(name, value, path, torch)
        for name, value in found.items()
        if isinstance(value, torch.Tensor)
    }


def _plain(name: str, value: Any, path: Path, torch: Any) -> SafeTensor:
    if value.is_floating_point():
        return float_tensor(name, value.detach().to(torch.float32).contiguous().numpy(), path)
    array = value.detach().to(torch.int64).contiguous().numpy()
    return SafeTensor(name, "I64", array.shape, array.reshape(-1).view(np.uint8), path)


def float_tensor(name: str, values: np.ndarray, path: Path) -> SafeTensor:
    """An array as if it came from a file. path: for messages."""
    array = np.ascontiguousarray(values, dtype="<f4")
    return SafeTensor(name, "F32", values.shape, array.reshape(-1).view(np.uint8), path)
