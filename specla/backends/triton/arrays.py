"""Arrays of this backend: torch tensors on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specla.backends.triton.staging import MOST_BYTES, Staging

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
}


class TorchArrays:
    """The part of the protocol that moves and allocates. device: a torch device."""

    device: torch.device
    _staging: Staging

    def empty(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return torch.empty(shape, dtype=DTYPES[dtype], device=self.device)

    def zeros(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return torch.zeros(shape, dtype=DTYPES[dtype], device=self.device)

    def upload(self, host: npt.NDArray[Any], into: Any = None) -> Any:
        # torch warns of memory that it could write and must not
        tensor = torch.from_numpy(np.require(host, requirements=["C", "W"]))
        if into is None:
            return tensor.to(self.device, copy=True)
        view = into[: len(host)]
        if host.nbytes <= MOST_BYTES:
            self._staging.copy(tensor, view)
        else:
            # pageable memory: the copy has read the host array when it returns
            view.copy_(tensor)
        return view

    def download(self, array: Any) -> npt.NDArray[Any]:
        host: npt.NDArray[Any] = array.detach().cpu().numpy()
        return host.copy() if array.device.type == "cpu" else host

    def download_all(self, *arrays: Any) -> list[npt.NDArray[Any]]:
        if self.device.type != "cuda":
            return [self.download(array) for array in arrays]
        # only into pinned memory is a copy that nobody waits for
        hosts = [torch.empty(a.shape, dtype=a.dtype, pin_memory=True) for a in arrays]
        for host, array in zip(hosts, arrays, strict=True):
            host.copy_(array, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        return [host.numpy() for host in hosts]

    def clear(self, array: Any, index: Any = ...) -> None:
        array[index].zero_()

    def poison(self, array: Any, index: Any = ...) -> None:
        floating = array.dtype.is_floating_point
        array[index].fill_(float("nan") if floating else torch.iinfo(array.dtype).min)

    def copy(self, target: Any, target_index: Any, source: Any, source_index: Any) -> None:
        target[target_index] = source[source_index]

    def heads(self, array: Any, n_heads: int) -> Any:
        # not reshape(), which may copy
        return array.unflatten(-1, (n_heads, array.shape[-1] // n_heads))
